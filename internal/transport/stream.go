package transport

import (
	"context"
	"net/netip"
)

// Network is where the tcp transport gets its byte streams from: the operating
// system (internal/transport/tcp), virtual time (internal/simnet), or a
// wrapper that injects faults around either (internal/fault).
type Network interface {
	// Listen accepts streams to local.
	Listen(local netip.AddrPort) (Listener, error)
	// Dial connects from the address local to remote. The source port is
	// congruent to path modulo 8 (RDS spec section 12), taken from the same
	// fixed groups of ports in every run, beginning with the given attempt (0, 1, 2, …; an
	// implementation may skip groups in use). It returns when connected,
	// refused, or when ctx ends.
	Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (Stream, error)
}

// Listener accepts streams.
type Listener interface {
	// Accept waits for the next stream. Temporary failures (EMFILE, ECONNABORTED) are
	// returned like others: the caller waits a little and calls again, unless the error
	// is net.ErrClosed.
	Accept() (Stream, error)
	Addr() netip.AddrPort
	// Close stops listening and ends Accept with net.ErrClosed. Streams already accepted live on.
	Close() error
}

// ReadBuffers gives a reading stream its buffers only while there is something
// to read, so that an idle connection holds none.
type ReadBuffers interface {
	// Buffers is called right before an attempt to read and returns where the bytes go: one
	// or two buffers, filled in order. They stay valid until the Read returns or Idle is called.
	Buffers() [][]byte
	// Idle is called when the attempt found nothing and the stream is about to wait. The
	// buffers may be taken back; Buffers is called again before the next attempt.
	Idle()
}

// Stream is one established byte stream between two nodes, with the semantics of
// a TCP socket on Linux. One goroutine reads and one (maybe another one) writes at a time;
// all other methods may be called at any time from any goroutine.
type Stream interface {
	// Read waits for data and reads what is there, at most what the buffers
	// hold. After the peer's FIN it returns 0, io.EOF; after an RST or a timeout of the
	// connection first the data that had arrived before, then the error.
	// Close ends it with net.ErrClosed.
	Read(b ReadBuffers) (int, error)
	// TryWrite takes as many bytes as fit without waiting. n less than the sum of bufs with a nil error means
	// that the stream is full: WaitWrite tells when to go on.
	TryWrite(bufs [][]byte) (n int, err error)
	// WaitWrite waits until the stream can take more bytes, has failed or was closed.
	WaitWrite() error
	// Unacked returns how many of the bytes taken by TryWrite the peer's transport
	// has not acknowledged (SIOCOUTQ). It works after the stream has failed, until Close.
	Unacked() (int, error)
	// CloseWrite sends FIN after what was written. Reading goes on.
	CloseWrite() error
	// Close releases the stream. Unread data is lost and makes an RST of it: drain first.
	Close() error
	// Reset aborts the stream with an RST at once.
	Reset() error
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
}
