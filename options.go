package rds

import (
	"time"

	"github.com/rds-go/rds/internal/engine"
)

// SocketOption changes a socket at [Node.Bind], before it can be used.
type SocketOption struct {
	apply func(*engine.Socket) error
}

// WithSendBuffer is [Socket.SetSendBuffer] at binding.
func WithSendBuffer(bytes int) SocketOption {
	return SocketOption{func(s *engine.Socket) error { return s.SetSendBuffer(bytes) }}
}

// WithRecvBuffer is [Socket.SetRecvBuffer] at binding.
func WithRecvBuffer(bytes int) SocketOption {
	return SocketOption{func(s *engine.Socket) error { return s.SetRecvBuffer(bytes) }}
}

// WithLinger is [Socket.SetLinger] at binding.
func WithLinger(d time.Duration) SocketOption {
	return SocketOption{func(s *engine.Socket) error { s.SetLinger(d); return nil }}
}

// WithGiveUp is [Socket.SetGiveUp] at binding.
func WithGiveUp(d time.Duration) SocketOption {
	return SocketOption{func(s *engine.Socket) error { return s.SetGiveUp(d) }}
}

// WithCongMonitor is [Socket.SetCongMonitor](true) at binding.
func WithCongMonitor() SocketOption {
	return SocketOption{func(s *engine.Socket) error { s.SetCongMonitor(true); return nil }}
}

// WithTimestamps is [Socket.SetTimestamps](true) at binding.
func WithTimestamps() SocketOption {
	return SocketOption{func(s *engine.Socket) error { s.SetTimestamps(true); return nil }}
}
