package engine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// kind is a sentinel error with the errno that the kernel gives in the same
// situation. errors.Is finds the errno and also, errors.As the errno.
type kind struct {
	text  string
	errno syscall.Errno
	also  error // one more error that it is, or nil
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Unwrap() error        { return k.errno }
func (k *kind) Is(target error) bool { return k.also != nil && target == k.also }

// Timeout makes a kind a net.Error; without it errors.As would go on to the
// errno, and EAGAIN calls itself a timeout.
func (k *kind) Timeout() bool   { return k == ErrTimeout }
func (k *kind) Temporary() bool { return k == ErrTimeout || k == ErrAgain || k == ErrCongested }

// The sentinel errors; the root package documents them for users.
var (
	ErrCongested    = &kind{"destination port is congested", syscall.ENOBUFS, nil}
	ErrAgain        = &kind{"would block", syscall.EAGAIN, nil}
	ErrMessageSize  = &kind{"message too long", syscall.EMSGSIZE, nil}
	ErrNotConnected = &kind{"no destination given and not connected", syscall.ENOTCONN, nil}
	ErrAddrInUse    = &kind{"address in use", syscall.EADDRINUSE, nil}
	ErrAddrNotAvail = &kind{"not an address of this node", syscall.EADDRNOTAVAIL, nil}
	ErrNotSupported = &kind{"destination is of another address family than the socket", syscall.EOPNOTSUPP, nil}
	ErrInvalid      = &kind{"invalid argument", syscall.EINVAL, nil}
	ErrTimeout      = &kind{"timed out", syscall.ETIMEDOUT, os.ErrDeadlineExceeded}
	ErrClosed       = &kind{"closed", syscall.EBADF, net.ErrClosed}
	ErrNotAllowed   = &kind{"address is not among the allowed peers", syscall.EACCES, nil}
	ErrPeerLimit    = &kind{"too many peers", syscall.ENOMEM, nil}
	ErrPeerGone     = &kind{"peer is gone", syscall.EHOSTUNREACH, nil}
)

// detail is a kind with a number and the limit that it meets. Its text is made
// only when somebody reads it, because callers that poll drop most of them.
type detail struct {
	kind     *kind
	format   string // with %d for n and limit
	n, limit int
}

func (d *detail) Error() string { return d.kind.text + ": " + fmt.Sprintf(d.format, d.n, d.limit) }
func (d *detail) Unwrap() error { return d.kind }

// GoneError is an ErrPeerGone with the peer that a socket has given up on.
type GoneError struct {
	Peer     netip.Addr
	Messages int           // messages to it that were cancelled since the last Flush; 0 when a new one is refused
	Limit    time.Duration // how long the socket waits for a peer
}

func (g *GoneError) Error() string {
	s := fmt.Sprintf("%v: no progress within %v (GiveUp)", ErrPeerGone, g.Limit)
	if g.Messages > 0 {
		s += fmt.Sprintf(", %d messages cancelled", g.Messages)
	}
	return s
}

func (g *GoneError) Unwrap() error { return ErrPeerGone }

func errSize(n, limit int, what string) error {
	return &detail{ErrMessageSize, "%d bytes, but " + what + " is %d bytes", n, limit}
}

// ended says how a context ended a wait: it is the context's error and cause
// and, when that was its deadline, ErrTimeout as well.
func ended(ctx context.Context) error {
	err := ctx.Err()
	e := &ctxError{text: err.Error(), errs: []error{err}}
	if cause := context.Cause(ctx); cause != nil && cause != err {
		e.text += ": " + cause.Error()
		e.errs = append(e.errs, cause)
	}
	if err == context.DeadlineExceeded {
		e.errs = append(e.errs, ErrTimeout)
	}
	return e
}

type ctxError struct {
	text string
	errs []error
}

func (e *ctxError) Error() string   { return e.text }
func (e *ctxError) Unwrap() []error { return e.errs }
