package engine

import (
	"context"
	"net/netip"
	"sync"

	"github.com/rds-go/rds/internal/transport"
)

// The way of a message out:
//
//  1. Send or TrySend finds the connection: the one of the last message, or
//     resolve looks it up, checks the address, and makes it at first use.
//  2. admit checks size, congestion and send buffer, in this order (RDS spec
//     section 3, steps 5, 9, 10), and enters the message in the account.
//  3. hand gives it to the link, which copies it. No lock is held.
//  4. Released takes it off the account when it is acknowledged, or cancelled
//     when Cancel is called, and wakes who waits for room.

// sendHalf is a socket's account of what it has sent and is not acknowledged.
type sendHalf struct {
	mu     sync.Mutex
	closed bool
	limit  int // S
	// bytes and msgs are what is queued or unacknowledged. A message is accepted
	// while both are less than S, so bytes may overshoot by one message. The
	// bound of msgs is met by empty messages only: they occupy no space, but
	// must not be free without end.
	bytes, msgs int

	// unaskedBytes and unaskedMsgs were accepted since a message last asked for
	// an early acknowledgement.
	unaskedBytes, unaskedMsgs int

	// last is the flow of the last message, and lastTo what its address was
	// called by the caller (IPv4 in IPv6 form, perhaps).
	last   *flow
	lastTo netip.Addr
	// used are the connections on which the socket has sent.
	used map[*conn]*flow
	// lost is the sum of the flows' lost.
	lost int

	room waitList // calls that wait for the account to be below the limit
	idle waitList // calls that wait for it to be empty

	sent, copied              uint64 // messages accepted and their bytes
	full, congested, congWait uint64 // refused or blocked by a full buffer; refused by congestion; blocked by it
}

// hasRoom is the test of RDS spec section 4: the old values are compared.
func (h *sendHalf) hasRoom() bool { return h.bytes < h.limit && h.msgs < h.limit }

// wantsAck says whether a message of n bytes, just accepted, is to ask for an
// early acknowledgement: while more than half of the buffer is unacknowledged, one
// message in each eighth of it does. mu is held.
func (h *sendHalf) wantsAck(n int) bool {
	h.unaskedBytes += n
	h.unaskedMsgs++
	if 2*h.bytes <= h.limit && 2*h.msgs <= h.limit || 8*h.unaskedBytes < h.limit && 8*h.unaskedMsgs < h.limit {
		return false
	}
	h.unaskedBytes, h.unaskedMsgs = 0, 0
	return true
}

// passOn wakes one more call if there is room for it; mu is held.
func (h *sendHalf) passOn() {
	if len(h.room.q) > 0 && h.hasRoom() {
		h.room.wake()
	}
}

// take takes what was acknowledged or cancelled off the account; mu is held.
func (h *sendHalf) take(msgs, bytes int) {
	h.msgs -= msgs
	h.bytes -= bytes
	h.passOn()
	if h.msgs == 0 {
		h.idle.wakeAll()
	}
}

// TrySend queues a message or fails at once.
func (s *Socket) TrySend(to netip.AddrPort, p []byte) error {
	f, port, soon, err := s.admit(to, len(p))
	if err == nil {
		return s.hand(f, port, p, soon)
	}
	if err == ErrCongested {
		s.monitor(f.c.peer, port)
	}
	s.snd.mu.Lock()
	defer s.snd.mu.Unlock()
	switch err {
	case ErrAgain:
		s.snd.full++
		return &detail{ErrAgain, "send buffer is full: %d bytes are not acknowledged, the limit is %d", s.snd.bytes, s.snd.limit}
	case ErrCongested:
		s.snd.congested++
	}
	return err
}

// Send queues a message, waiting while the destination port is congested or the
// send buffer full.
func (s *Socket) Send(ctx context.Context, to netip.AddrPort, p []byte) error {
	if err := s.check(ctx, &s.sendBy); err != nil {
		return err
	}
	congested, full := false, false // for counting a call once
	for {
		f, port, soon, err := s.admit(to, len(p))
		if full && err != nil && err != ErrAgain {
			s.passOn() // woken for room that is not used
		}
		switch err {
		case nil:
			return s.hand(f, port, p, soon)
		case ErrCongested:
			err = s.awaitPort(ctx, f, port, !congested)
			congested = true
		case ErrAgain:
			err = s.awaitRoom(ctx, f, full)
			full = true
		}
		if err != nil {
			return err
		}
	}
}

// admit checks a message of n bytes and enters it in the account. ErrAgain and
// ErrCongested come with the flow. The zero value of to means the connected
// address.
func (s *Socket) admit(to netip.AddrPort, n int) (f *flow, port uint16, soon bool, err error) {
	if !to.IsValid() {
		p := s.connected.Load()
		if p == nil {
			if s.closed.Load() {
				return nil, 0, false, ErrClosed
			}
			return nil, 0, false, ErrNotConnected
		}
		to = *p
	}
	port = to.Port()
	h := &s.snd
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, 0, false, ErrClosed
	}
	if h.last == nil || h.lastTo != to.Addr() {
		if err := s.resolve(to.Addr(), n); err != nil {
			return nil, 0, false, err
		}
	}
	f = h.last
	switch {
	case n > s.e.cfg.MaxMessage || n > h.limit:
		return nil, 0, false, s.sizeError(n)
	case f.gone.Load():
		return nil, 0, false, f.refusal()
	case f.c.peer.cong.has(port):
		return f, port, false, ErrCongested
	case !h.hasRoom():
		return f, port, false, ErrAgain
	}
	h.bytes += n
	h.msgs++
	h.sent++
	h.copied += uint64(n)
	h.passOn()
	return f, port, h.wantsAck(n), nil
}

// sizeError says which limit n passes, if any; snd.mu is held.
func (s *Socket) sizeError(n int) error {
	if limit := s.e.cfg.MaxMessage; n > limit {
		return errSize(n, limit, "Config.MaxMessage")
	}
	if limit := s.snd.limit; n > limit {
		return errSize(n, limit, "the socket's send buffer")
	}
	return nil
}

// resolve makes the flow to addr the socket's last one; snd.mu is held,
// but not while the link is made. The order of checks is that of RDS spec
// section 3: address, family, size of the message, and then the connection.
//
// A connected address of the wrong family is refused like a given one. The
// kernel takes such messages and loses them (RDS spec section 3, connect).
func (s *Socket) resolve(addr netip.Addr, n int) error {
	h := &s.snd
	to := addr.Unmap()
	if err := checkEndpoint(to); err != nil {
		return err
	}
	if to.Is4() != s.local.addr.Is4() {
		return ErrNotSupported
	}
	if err := s.sizeError(n); err != nil {
		return err
	}
	c := s.local.usable(to)
	if c == nil {
		h.mu.Unlock()
		var err error
		c, err = s.e.open(s.local, to)
		h.mu.Lock()
		if err != nil {
			return err
		}
		if h.closed {
			return ErrClosed
		}
	}
	f := h.used[c]
	if f == nil {
		f = &flow{s: s, c: c}
		if h.used == nil {
			h.used = make(map[*conn]*flow)
		}
		h.used[c] = f
		if s.patience() > 0 {
			c.enlist(f)
		}
	}
	h.last, h.lastTo = f, addr
	return nil
}

// hand gives an admitted message to the link. No lock may be held: the link may
// call Released before it returns.
func (s *Socket) hand(f *flow, port uint16, p []byte, soon bool) error {
	c := f.c
	err := c.link.Send(transport.Message{SPort: s.addr.Port(), DPort: port, Payload: p, Owner: s, AckSoon: soon})
	if err != nil {
		s.Released(1, len(p)) // it was never queued
		return ErrClosed
	}
	if s.cancelled.Load() {
		// Close may have cancelled the socket's messages before this one was
		// queued.
		s.account(c.link.Cancel(s, 0, true))
		return ErrClosed
	}
	if f.gone.Load() {
		// As with Close: giving up may have cancelled before it. Or it is about to,
		// and this call is first.
		if msgs := f.cancelLost(1); msgs > 0 {
			s.e.count.lost.Add(uint64(msgs))
		}
		return f.refusal()
	}
	if !c.watch.on.Load() {
		c.attend()
	}
	return nil
}

// Released implements [transport.Owner].
func (s *Socket) Released(msgs, bytes int) { s.account(msgs, bytes) }

func (s *Socket) passOn() {
	s.snd.mu.Lock()
	s.snd.passOn()
	s.snd.mu.Unlock()
}

func (s *Socket) account(msgs, bytes int) {
	s.snd.mu.Lock()
	s.snd.take(msgs, bytes)
	s.snd.mu.Unlock()
}

// awaitRoom waits until the send buffer may have room. first says that the call
// has waited before: it is first in the queue then.
func (s *Socket) awaitRoom(ctx context.Context, f *flow, first bool) error {
	h := &s.snd
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return ErrClosed
	}
	if !first {
		h.full++
	}
	if h.hasRoom() || f.gone.Load() {
		h.mu.Unlock()
		return nil
	}
	w := h.room.add(first)
	h.mu.Unlock()
	f.c.link.Urge()
	got, err := s.await(ctx, &s.sendBy, w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.room.done(w, got) && err != nil {
		h.passOn()
	}
	return err
}

// awaitPort waits until the port is not congested or the peer gone.
func (s *Socket) awaitPort(ctx context.Context, f *flow, port uint16, count bool) error {
	c := f.c
	h := &s.snd
	h.mu.Lock()
	if count {
		h.congWait++
	}
	w := h.room.spare()
	h.mu.Unlock()
	var err error
	if c.peer.cong.wait(port, w, s) {
		if s.patience() > 0 {
			c.await(+1)
			defer c.await(-1)
		}
		var got bool
		if !f.gone.Load() { // else nobody may wake this call any more
			got, err = s.await(ctx, &s.sendBy, w)
		}
		c.peer.cong.done(w, got)
	}
	h.mu.Lock()
	h.room.giveBack(w)
	h.mu.Unlock()
	return err
}

// Flush waits until the account is empty. If that is so because the socket has given
// up on a peer, it says that.
func (s *Socket) Flush(ctx context.Context) error {
	if err := s.check(ctx, &s.sendBy); err != nil {
		return err
	}
	if err := s.untilIdle(func(w *waiter) (bool, error) { return s.await(ctx, &s.sendBy, w) }); err != nil {
		return err
	}
	return s.tellLost(true)
}

// drain is Flush for a socket that is shut.
func (s *Socket) drain(ctx context.Context) error {
	return s.untilIdle(func(w *waiter) (bool, error) {
		select {
		case <-w.ch:
			return true, nil
		case <-ctx.Done():
			return false, ended(ctx)
		}
	})
}

func (s *Socket) untilIdle(await func(*waiter) (got bool, err error)) error {
	h := &s.snd
	h.mu.Lock()
	if h.msgs == 0 {
		h.mu.Unlock()
		return nil
	}
	w := h.idle.add(false)
	h.mu.Unlock()
	for _, c := range s.connsUsed() {
		c.link.Urge()
	}
	got, err := await(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle.done(w, got)
	return err
}

func (s *Socket) connsUsed() []*conn {
	s.snd.mu.Lock()
	defer s.snd.mu.Unlock()
	cs := make([]*conn, 0, len(s.snd.used))
	for c := range s.snd.used {
		cs = append(cs, c)
	}
	return cs
}

// Cancel forgets the unacknowledged messages to exactly one address and port.
func (s *Socket) Cancel(to netip.AddrPort) (msgs int) {
	c := s.local.usable(to.Addr().Unmap())
	if c == nil {
		return 0
	}
	msgs, bytes := c.link.Cancel(s, to.Port(), false)
	s.account(msgs, bytes)
	return msgs
}

// CancelAll forgets all unacknowledged messages.
func (s *Socket) CancelAll() (msgs int) {
	for _, c := range s.connsUsed() {
		m, bytes := c.link.Cancel(s, 0, true)
		s.account(m, bytes)
		msgs += m
	}
	return msgs
}

// closeSend lets no new messages in.
func (s *Socket) closeSend() {
	s.snd.mu.Lock()
	s.snd.closed = true
	s.snd.mu.Unlock()
}

// Pending counts the unacknowledged messages to exactly one address and port.
func (s *Socket) Pending(to netip.AddrPort) (msgs, bytes int) {
	c := s.local.usable(to.Addr().Unmap())
	if c == nil {
		return 0, 0
	}
	return c.link.Pending(s, to.Port(), false)
}

// PendingAll counts all unacknowledged messages.
func (s *Socket) PendingAll() (msgs, bytes int) {
	s.snd.mu.Lock()
	defer s.snd.mu.Unlock()
	return s.snd.msgs, s.snd.bytes
}
