package rds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/engine"
)

// Socket sends and receives messages from one RDS address. It implements
// [net.PacketConn] and [net.Conn]. All its methods may be called from any
// goroutine; several goroutines may send and receive at the same time.
//
// A message is delivered at most once, and in the order in which the socket
// sent it to the same destination. It is retransmitted until the peer has it,
// for as long as both sockets are open. One that is sent to a port where no
// socket is bound is dropped there without notice.
type Socket struct {
	s *engine.Socket

	// lastFrom is what ReadFrom returned last, so that it need not allocate for
	// messages from the same address.
	lastFrom atomic.Pointer[netAddr]
}

// netAddr is an Addr and the same as a net.Addr.
type netAddr struct {
	addr Addr
	net  net.Addr
}

var (
	_ net.PacketConn = (*Socket)(nil)
	_ net.Conn       = (*Socket)(nil)
)

// fail wraps what the engine returned.
func (s *Socket) fail(op string, to Addr, err error) error {
	return &OpError{Op: op, Local: s.Addr(), Remote: to, Err: err}
}

// failTo is fail for a destination that may be the connected one.
func (s *Socket) failTo(op string, to Addr, err error) error {
	if !to.IsValid() {
		to, _ = s.Peer()
	}
	return s.fail(op, to, err)
}

// Send queues a message. It waits while the send buffer is full or the
// destination port congested; not for the message to arrive (see
// [Socket.Flush]). The zero value of to means the address given to
// [Socket.Connect]. p is copied and may be used again at once; an empty message
// is a message.
//
// A wait ends with [ErrTimeout] when the write deadline has passed, with the
// context's error when ctx ends (and ErrTimeout as well, if its deadline was
// exceeded), and with [ErrClosed]. A context that has ended already fails the
// call at once. Other errors, in the order of the checks (RDS spec section 3):
// [ErrInvalid] for a destination that cannot receive, [ErrNotConnected],
// [ErrNotSupported] for one of another address family, [ErrMessageSize],
// [ErrNotAllowed], [ErrPeerLimit], [ErrPeerGone].
func (s *Socket) Send(ctx context.Context, to Addr, p []byte) error {
	if err := s.s.Send(ctx, to.addrPort(), p); err != nil {
		return s.failTo("send", to, err)
	}
	return nil
}

// TrySend is Send without waiting: it fails with [ErrCongested] when the
// destination port is congested and with [ErrAgain] when the send buffer is
// full.
func (s *Socket) TrySend(to Addr, p []byte) error {
	if err := s.s.TrySend(to.addrPort(), p); err != nil {
		return s.failTo("send", to, err)
	}
	return nil
}

// Recv waits for a message and copies it to p. What does not fit is thrown away;
// [Socket.RecvMsg] tells when that happens. n = 0 with a nil error is an empty
// message. A wait ends as that of [Socket.Send] does, with the read deadline.
func (s *Socket) Recv(ctx context.Context, p []byte) (n int, from Addr, err error) {
	var d engine.Delivery
	if n, err = s.s.Recv(ctx, p, &d); err != nil {
		return 0, Addr{}, s.fail("recv", Addr{}, err)
	}
	return n, addrOf(d.From), nil
}

// TryRecv is Recv without waiting: it fails with [ErrAgain] when nothing is
// there.
func (s *Socket) TryRecv(p []byte) (n int, from Addr, err error) {
	var d engine.Delivery
	if n, err = s.s.TryRecv(p, &d); err != nil {
		return 0, Addr{}, s.fail("recv", Addr{}, err)
	}
	return n, addrOf(d.From), nil
}

// Connect sets the destination of messages sent without one. Nothing is sent,
// and messages are still received from everybody. It may be called again.
// Errors (RDS spec section 3): EDESTADDRREQ for 0.0.0.0, [ErrInvalid] for an
// IPv4 multicast or broadcast address, EPROTOTYPE for :: or an IPv6 multicast
// address, EAFNOSUPPORT for the zero value.
func (s *Socket) Connect(to Addr) error {
	if err := s.s.Connect(to.addrPort()); err != nil {
		return s.fail("connect", to, err)
	}
	return nil
}

// Cancel forgets all messages of this socket to exactly that address and port
// that are not acknowledged, sent or not, and returns their number. Their bytes
// leave the send buffer at once. What was sent may still be delivered.
func (s *Socket) Cancel(to Addr) (messages int) { return s.s.Cancel(to.addrPort()) }

// CancelAll is Cancel for all destinations.
func (s *Socket) CancelAll() (messages int) { return s.s.CancelAll() }

// Pending returns how many messages to exactly that address and port are not
// acknowledged, and their payload bytes.
func (s *Socket) Pending(to Addr) (messages, bytes int) { return s.s.Pending(to.addrPort()) }

// PendingAll is Pending for all destinations.
func (s *Socket) PendingAll() (messages, bytes int) { return s.s.PendingAll() }

// Flush waits until every message of this socket is acknowledged (or
// cancelled), those included that are sent while it waits. It ends early as
// [Socket.Send] does. With [Socket.SetGiveUp] it returns [ErrPeerGone] while a peer
// is gone, and once for the messages that were cancelled since the last Flush.
func (s *Socket) Flush(ctx context.Context) error {
	if err := s.s.Flush(ctx); err != nil {
		return s.failGone("flush", err)
	}
	return nil
}

// failGone is fail for the destination that err names, if any.
func (s *Socket) failGone(op string, err error) error {
	var to Addr
	if g := (*engine.GoneError)(nil); errors.As(err, &g) {
		to.IP = g.Peer
	}
	return s.fail(op, to, err)
}

// Close closes the socket: what it has not received is dropped, what is not
// acknowledged is cancelled, and calls that wait end with [ErrClosed]. With
// [Socket.SetLinger] it first waits for acknowledgements; it returns
// [ErrTimeout] if some were still missing at the end, and [ErrPeerGone] if some
// were cancelled meanwhile. Closing again returns ErrClosed.
func (s *Socket) Close() error {
	if err := s.s.Close(); err != nil {
		return s.failGone("close", err)
	}
	return nil
}

// SetLinger makes [Socket.Close] wait up to d until everything sent is
// acknowledged. 0, the default, and less mean not to wait: what is not
// acknowledged is cancelled, as the kernel does.
func (s *Socket) SetLinger(d time.Duration) { s.s.SetLinger(d) }

// SetGiveUp sets for how long a peer may make no progress with what is queued for
// it until this socket gives up on it; 0 means for ever, less is [ErrInvalid].
// Connecting anew after a loss may take seconds, so it should be at least ten.
// Progress is an acknowledgement, or more bytes of a message that reached the
// peer's TCP; a port that is congested is no lack of it, as long as the peer
// answers at all.
//
// When the time is over (and up to a quarter of it later) the socket's messages to
// that peer are cancelled, those waiting to be sent as well as those sent and not
// acknowledged: whether the latter arrived is not known. From then on, sending to
// the peer fails at once with [ErrPeerGone], and so does [Socket.Flush]. Meanwhile
// the node goes on trying to reach the peer; its first acknowledgement ends
// that, and the socket sends as before.
func (s *Socket) SetGiveUp(d time.Duration) error {
	if err := s.s.SetGiveUp(d); err != nil {
		return s.fail("set give-up", Addr{}, err)
	}
	return nil
}

// SetCongMonitor says whether the socket is told when a port that refused it is
// congested no more. [Socket.RecvMsg], [Socket.TryRecvMsg] and [Socket.RecvBatch]
// return that as a [Message] with CongUpdate, before messages that wait; the other
// ways of receiving leave it there. Only [Socket.TrySend] is refused. Off, the
// default, forgets what was not told yet.
//
// The bits are those of the kernel's RDS_CONG_MONITOR (RDS spec section 5). Unlike
// there, they are set for exactly the ports that refused this socket and that
// their peer has cleared, not for any map from anybody.
func (s *Socket) SetCongMonitor(on bool) { s.s.SetCongMonitor(on) }

// SetTimestamps says whether [Message.Time] is to be filled in on receiving,
// for messages that arrive from now on. It is off by default, because asking
// for the time costs as much as delivering a small message.
func (s *Socket) SetTimestamps(on bool) { s.s.SetTimestamps(on) }

// SendBuffer returns S in bytes: how much may be unacknowledged.
func (s *Socket) SendBuffer() int { return s.s.SendBuffer() }

// RecvBuffer returns R in bytes: how much may be unread before the port is
// congested.
func (s *Socket) RecvBuffer() int { return s.s.RecvBuffer() }

// SetSendBuffer sets S. Less than 2304 means 2304; less than 0 and more than
// 1 GiB is [ErrInvalid].
func (s *Socket) SetSendBuffer(bytes int) error {
	if err := s.s.SetSendBuffer(bytes); err != nil {
		return s.fail("set send buffer", Addr{}, err)
	}
	return nil
}

// SetRecvBuffer sets R. Less than 1152 means 1152; less than 0 and more than
// 1 GiB is [ErrInvalid]. Whether the port is congested is not looked at before
// the next message comes or goes.
func (s *Socket) SetRecvBuffer(bytes int) error {
	if err := s.s.SetRecvBuffer(bytes); err != nil {
		return s.fail("set receive buffer", Addr{}, err)
	}
	return nil
}

// Addr returns the socket's address.
func (s *Socket) Addr() Addr { return addrOf(s.s.Addr()) }

// Peer returns what the socket is connected to, and whether it is.
func (s *Socket) Peer() (Addr, bool) {
	p := s.s.Peer()
	return addrOf(p), p.IsValid()
}

// LocalAddr returns the socket's address as an [Addr].
func (s *Socket) LocalAddr() net.Addr { return s.Addr() }

// RemoteAddr returns the [Addr] that the socket is connected to, nil if none.
func (s *Socket) RemoteAddr() net.Addr {
	if p, ok := s.Peer(); ok {
		return p
	}
	return nil
}

// Write sends p as one message to the connected address, waiting as
// [Socket.Send] does, until the write deadline.
func (s *Socket) Write(p []byte) (int, error) {
	if err := s.s.Send(context.Background(), netip.AddrPort{}, p); err != nil {
		return 0, s.failTo("write", Addr{}, err)
	}
	return len(p), nil
}

// Read receives one message, from anybody, waiting until the read deadline.
// 0 bytes without an error are an empty message, so a Socket is no stream for
// [io.Copy] and the like.
func (s *Socket) Read(p []byte) (int, error) {
	var d engine.Delivery
	n, err := s.s.Recv(context.Background(), p, &d)
	if err != nil {
		return 0, s.fail("read", Addr{}, err)
	}
	return n, nil
}

// WriteTo sends p as one message to addr, which must be an [Addr] or an *Addr.
func (s *Socket) WriteTo(p []byte, addr net.Addr) (int, error) {
	var to Addr
	switch a := addr.(type) {
	case Addr:
		to = a
	case *Addr:
		if a != nil {
			to = *a
		}
	default:
		return 0, s.fail("write", Addr{}, fmt.Errorf("%w: WriteTo wants an rds.Addr, not %T", ErrInvalid, addr))
	}
	if err := s.s.Send(context.Background(), to.addrPort(), p); err != nil {
		return 0, s.failTo("write", to, err)
	}
	return len(p), nil
}

// ReadFrom receives one message, waiting until the read deadline. The address
// is an [Addr].
func (s *Socket) ReadFrom(p []byte) (int, net.Addr, error) {
	var d engine.Delivery
	n, err := s.s.Recv(context.Background(), p, &d)
	if err != nil {
		return 0, nil, s.fail("read", Addr{}, err)
	}
	from := addrOf(d.From)
	last := s.lastFrom.Load()
	if last == nil || last.addr != from {
		last = &netAddr{from, from}
		s.lastFrom.Store(last)
	}
	return n, last.net, nil
}

// SetDeadline sets both deadlines. A deadline applies to calls that wait now and
// to later ones, besides their context; the zero time means none. One that has
// passed makes calls fail at once with [ErrTimeout].
func (s *Socket) SetDeadline(t time.Time) error {
	if err := s.s.SetReadDeadline(t); err != nil {
		return s.fail("set deadline", Addr{}, err)
	}
	return s.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of receiving.
func (s *Socket) SetReadDeadline(t time.Time) error {
	if err := s.s.SetReadDeadline(t); err != nil {
		return s.fail("set deadline", Addr{}, err)
	}
	return nil
}

// SetWriteDeadline sets the deadline of sending and of [Socket.Flush].
func (s *Socket) SetWriteDeadline(t time.Time) error {
	if err := s.s.SetWriteDeadline(t); err != nil {
		return s.fail("set deadline", Addr{}, err)
	}
	return nil
}
