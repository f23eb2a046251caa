package rds

import (
	"errors"

	"github.com/rds-go/rds/internal/engine"
)

// Errors of sockets and nodes, for use with [errors.Is]. Each also matches the
// errno that an AF_RDS socket of the kernel gives in the same situation, and
// [errors.As] finds that syscall.Errno. What methods return is an [*OpError]
// around one of them, which says the addresses and the limit as well.
var (
	// ErrCongested (ENOBUFS): the destination port is congested: the
	// receiving socket has more unread than its receive buffer.
	ErrCongested error = engine.ErrCongested
	// ErrAgain (EAGAIN): the socket's send buffer is full, or nothing is
	// there to receive.
	ErrAgain error = engine.ErrAgain
	// ErrMessageSize (EMSGSIZE): the message is larger than
	// Config.MaxMessage or than the socket's send buffer.
	ErrMessageSize error = engine.ErrMessageSize
	// ErrNotConnected (ENOTCONN): no destination was given and the socket is
	// not connected.
	ErrNotConnected error = engine.ErrNotConnected
	// ErrAddrInUse (EADDRINUSE): the RDS port is taken, no automatic port is
	// left, or somebody else listens on the node's address and TCP port.
	ErrAddrInUse error = engine.ErrAddrInUse
	// ErrAddrNotAvail (EADDRNOTAVAIL): the address is not one of the node's.
	ErrAddrNotAvail error = engine.ErrAddrNotAvail
	// ErrNotSupported (EOPNOTSUPP): the destination is of another address
	// family than the socket.
	ErrNotSupported error = engine.ErrNotSupported
	// ErrInvalid (EINVAL): an argument that cannot be right.
	ErrInvalid error = engine.ErrInvalid
	// ErrTimeout (ETIMEDOUT): a deadline passed or a context's deadline was
	// exceeded. It also matches [os.ErrDeadlineExceeded], and a [net.Error]
	// found in it says Timeout.
	ErrTimeout error = engine.ErrTimeout
	// ErrClosed (EBADF): the socket or the node was closed. It also matches
	// [net.ErrClosed].
	ErrClosed error = engine.ErrClosed
	// ErrNotAllowed (EACCES): Config.AllowPeers does not contain the address.
	ErrNotAllowed error = engine.ErrNotAllowed
	// ErrPeerLimit (ENOMEM): Config.MaxPeers remote addresses are known
	// already.
	ErrPeerLimit error = engine.ErrPeerLimit
	// ErrPeerGone (EHOSTUNREACH): the socket has given up on the peer, after
	// the time of [Socket.SetGiveUp]. It is no timeout: that would say that the
	// caller's own time was over.
	ErrPeerGone error = engine.ErrPeerGone
)

// OpError says which operation failed, between which addresses and why. It
// implements [net.Error].
type OpError struct {
	// Op is the operation: "send", "recv", "bind", "connect", "ping", "node", …
	Op string
	// Local is the socket's address; the zero value where there is none.
	Local Addr
	// Remote is the destination; the zero value where there is none.
	Remote Addr
	// Err is the reason. It names the limit when there is one, and wraps one
	// of the errors above, an errno, or a context's error.
	Err error
	// Detail says what can be done about it; it may be empty and may have
	// several lines.
	Detail string
}

// Error returns "rds: OP LOCAL -> REMOTE: REASON", and the detail if any.
func (e *OpError) Error() string {
	s := "rds: " + e.Op
	if e.Local.IsValid() {
		s += " " + e.Local.String()
	}
	if e.Remote.IsValid() {
		s += " -> " + e.Remote.String()
	}
	s += ": " + e.Err.Error()
	if e.Detail != "" {
		s += "\n" + e.Detail
	}
	return s
}

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout says whether the reason is a deadline.
func (e *OpError) Timeout() bool { return errors.Is(e.Err, ErrTimeout) }

// Temporary says whether the same call may succeed later.
//
// Deprecated: it is there for [net.Error] only.
func (e *OpError) Temporary() bool {
	return e.Timeout() || errors.Is(e.Err, ErrAgain) || errors.Is(e.Err, ErrCongested)
}
