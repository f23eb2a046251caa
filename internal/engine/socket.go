package engine

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
)

// Limits of socket buffers in bytes (RDS spec section 4).
const (
	// DefaultBuffer is S and R of a new socket.
	DefaultBuffer = 106496
	minSendBuffer = 2304
	minRecvBuffer = 1152
	maxBuffer     = 1 << 30
)

// Socket is one bound socket. It is a [transport.Owner]. The two halves have a
// lock each and know nothing of each other.
type Socket struct {
	e     *Engine
	local *local
	addr  netip.AddrPort // of local, with the port; set before anybody can find the socket

	connected atomic.Pointer[netip.AddrPort] // nil: not connected
	linger    atomic.Int64                   // time.Duration
	giveUp    atomic.Int64                   // time.Duration; 0: never. Changes under snd.mu
	gone      atomic.Int32                   // number of flows that are gone

	closed    atomic.Bool   // set before the halves are closed
	done      chan struct{} // closed after closed is set: ends waits
	cancelled atomic.Bool   // set before the last cancelling of messages
	readBy    deadline
	sendBy    deadline

	_   [64]byte
	snd sendHalf
	_   [64]byte // the halves are changed by different processors
	rcv recvHalf
}

func newSocket(e *Engine, l *local) *Socket {
	s := &Socket{e: e, local: l, done: make(chan struct{})}
	s.snd.limit = e.cfg.SendBuffer
	s.rcv.limit = e.cfg.RecvBuffer
	s.giveUp.Store(int64(e.cfg.GiveUp))
	return s
}

// Addr returns the bound address.
func (s *Socket) Addr() netip.AddrPort { return s.addr }

// Peer returns the connected address, the zero value if there is none.
func (s *Socket) Peer() netip.AddrPort {
	if p := s.connected.Load(); p != nil {
		return *p
	}
	return netip.AddrPort{}
}

// Connect sets the default destination.
func (s *Socket) Connect(to netip.AddrPort) error {
	if s.closed.Load() {
		return ErrClosed
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if err := checkConnect(to.Addr()); err != nil {
		return err
	}
	s.connected.Store(&to)
	return nil
}

// SetLinger sets how long Close waits for acknowledgements.
func (s *Socket) SetLinger(d time.Duration) { s.linger.Store(int64(d)) }

// SetReadDeadline sets the deadline of receiving.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.readBy, t) }

// SetWriteDeadline sets the deadline of sending and flushing.
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.sendBy, t) }

func (s *Socket) setDeadline(d *deadline, t time.Time) error {
	if s.closed.Load() {
		return ErrClosed
	}
	d.to(t)
	return nil
}

// check says whether a call may begin to wait: neither its context nor its
// deadline has ended.
func (s *Socket) check(ctx context.Context, by *deadline) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if by.passed.Load() {
		return ErrTimeout
	}
	return nil
}

// await waits until w is woken or something ends the wait. got says whether w's
// token was taken.
func (s *Socket) await(ctx context.Context, by *deadline, w *waiter) (got bool, err error) {
	select {
	case <-w.ch:
		return true, nil
	case <-ctx.Done():
		return false, ended(ctx)
	case <-by.wait():
		return false, ErrTimeout
	case <-s.done:
		return false, ErrClosed
	}
}

// SendBuffer returns S.
func (s *Socket) SendBuffer() int {
	s.snd.mu.Lock()
	defer s.snd.mu.Unlock()
	return s.snd.limit
}

// RecvBuffer returns R.
func (s *Socket) RecvBuffer() int {
	s.rcv.mu.Lock()
	defer s.rcv.mu.Unlock()
	return s.rcv.limit
}

// SetSendBuffer sets S and wakes senders that now fit.
func (s *Socket) SetSendBuffer(n int) error {
	n, err := bufferSize("send", n, minSendBuffer)
	if err != nil {
		return err
	}
	s.snd.mu.Lock()
	defer s.snd.mu.Unlock()
	s.snd.limit = n
	s.snd.passOn()
	return nil
}

// SetRecvBuffer sets R. As in the kernel that alone does not change whether the
// port is congested.
func (s *Socket) SetRecvBuffer(n int) error {
	n, err := bufferSize("receive", n, minRecvBuffer)
	if err != nil {
		return err
	}
	s.rcv.mu.Lock()
	defer s.rcv.mu.Unlock()
	s.rcv.limit = n
	return nil
}

// bufferSize checks the size of a socket buffer and raises it to the floor.
func bufferSize(what string, n, floor int) (int, error) {
	if n < 0 || n > maxBuffer {
		return 0, fmt.Errorf("%w: %s buffer of %d bytes, want 0 to %d", ErrInvalid, what, n, maxBuffer)
	}
	return max(n, floor), nil
}

// Close closes the socket: calls that wait end, unread messages are dropped, and
// unacknowledged ones cancelled, after the linger time if one is set.
func (s *Socket) Close() error {
	if !s.shut() {
		return ErrClosed
	}
	var err error
	if d := time.Duration(s.linger.Load()); d > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		if s.drain(ctx) != nil {
			msgs, bytes := s.PendingAll()
			err = &detail{ErrTimeout, "%d messages of %d bytes were not acknowledged within the linger time", msgs, bytes}
		}
		cancel()
		if err == nil {
			err = s.tellLost(false)
		}
	}
	s.finish()
	return err
}

// finish is the end of closing.
func (s *Socket) finish() {
	s.cancelled.Store(true)
	s.CancelAll()
	s.snd.mu.Lock()
	flows := s.flows()
	s.snd.mu.Unlock()
	for _, f := range flows {
		f.c.enlist(f) // that is, out
		f.c.peer.cong.unmonitor(s)
	}
	s.e.retire(s)
}

// shut is the part of closing that does not wait: afterwards nothing comes in or
// out, the port is free, and what is unacknowledged still is. It returns false if
// the socket was shut before.
func (s *Socket) shut() bool {
	if !s.closed.CompareAndSwap(false, true) {
		return false
	}
	close(s.done)
	s.readBy.to(time.Time{})
	s.sendBy.to(time.Time{})
	s.closeSend()
	s.closeRecv()
	s.local.ports.unbind(s, s.addr.Port())
	return true
}

// SocketInfo is a snapshot of a socket.
type SocketInfo struct {
	Local, Peer             netip.AddrPort
	SendBuffer, RecvBuffer  int
	SendBytes, SendMessages int
	RecvBytes, RecvMessages int
	Congested               bool
}

func (s *Socket) info() SocketInfo {
	i := SocketInfo{Local: s.addr, Peer: s.Peer()}
	s.snd.mu.Lock()
	i.SendBuffer, i.SendBytes, i.SendMessages = s.snd.limit, s.snd.bytes, s.snd.msgs
	s.snd.mu.Unlock()
	s.rcv.mu.Lock()
	i.RecvBuffer, i.RecvBytes, i.RecvMessages, i.Congested = s.rcv.limit, s.rcv.bytes, s.rcv.queue.n, s.rcv.congested
	s.rcv.mu.Unlock()
	return i
}
