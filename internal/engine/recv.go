package engine

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
)

// The way of a message in:
//
//  1. conn.Deliver, called by the link, finds the socket of the port.
//  2. deliver puts the message in the socket's queue, copying a small payload to
//     its arena and keeping a large one's buffer, marks the port congested if
//     the queue has passed R, and wakes one call that waits.
//  3. conn.Deliver says whether the peer may go on (limits.go).
//  4. Recv or TryRecv takes the message out and copies it to the caller, or
//     Next lends it; below R/2 the port's mark is cleared.
//  5. peer.release takes it off the peer's account, and resumes links.

// recvHalf is a socket's queue of unread messages.
type recvHalf struct {
	mu        sync.Mutex
	closed    bool
	congested bool // the port's bit in the local map
	stamps    bool // note the time of arrival
	limit     int  // R
	bytes     int  // payload bytes unread
	queue     queue
	arena     arena
	wait      waitList // calls that wait for a message

	monitor    bool   // SetCongMonitor
	congUpdate uint64 // what is to be told: bit port%64 of each port cleared

	queued, delivered         uint64 // messages in and out
	bytesIn, bytesOut, copied uint64 // payload bytes in, out, and copied to callers
}

// deliver queues a message, or returns false if the socket is closed: then the
// caller still owns it.
func (s *Socket) deliver(c *conn, m *transport.Inbound) bool {
	n := len(m.Payload)
	if m.Buf == nil && n > smallMax {
		m.Buf = buffer.Get(n)
		m.Payload = m.Buf.B[:copy(m.Buf.B, m.Payload)]
	}
	h := &s.rcv
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	e := h.queue.push()
	switch {
	case m.Buf != nil:
		e.payload, e.buf = m.Payload, m.Buf
	case n > 0:
		e.payload, e.chunk = h.arena.put(m.Payload)
	}
	e.conn, e.sport, e.again = c, m.SPort, m.Retransmitted
	if h.stamps {
		e.at = time.Now().UnixNano()
	}
	if m.Reserved {
		c.peer.hold(overhead)
	} else {
		c.peer.hold(n + overhead)
	}
	h.queued++
	h.bytesIn += uint64(n)
	h.bytes += n
	mark := s.congest(n)
	if len(h.wait.q) > 0 {
		h.wait.wake()
	}
	h.mu.Unlock()
	if mark {
		s.local.announce()
	}
	return true
}

// congest marks the port congested if the n bytes just queued have passed R, and
// says whether it did; rcv.mu is held.
func (s *Socket) congest(n int) (mark bool) {
	h := &s.rcv
	if n == 0 || h.congested || h.bytes <= h.limit {
		return false
	}
	h.congested = true
	s.local.cong.set(s.addr.Port())
	return true
}

// Delivery describes a received message.
type Delivery struct {
	// Notices says, before the call, that it may return a notification instead
	// of a message: then CongUpdate is not 0 and From not valid.
	Notices    bool
	CongUpdate uint64

	From          netip.AddrPort
	Len           int       // of the whole message
	Time          time.Time // of arrival, if SetTimestamps is on
	Retransmitted bool
}

func (d *Delivery) set(e *entry) {
	d.From = netip.AddrPortFrom(e.conn.remote, e.sport)
	d.Len = len(e.payload)
	d.Retransmitted = e.again
	d.Time = time.Time{}
	d.CongUpdate = 0
	if e.at != 0 {
		d.Time = time.Unix(0, e.at)
	}
}

// TryRecv copies the first message to p, or fails with ErrAgain.
func (s *Socket) TryRecv(p []byte, d *Delivery) (int, error) {
	h := &s.rcv
	h.mu.Lock()
	if h.congUpdate != 0 && d.Notices {
		*d = Delivery{Notices: true, CongUpdate: h.congUpdate}
		h.congUpdate = 0
		h.mu.Unlock()
		return 0, nil
	}
	if h.queue.n == 0 {
		closed := h.closed
		h.mu.Unlock()
		if closed {
			return 0, ErrClosed
		}
		return 0, ErrAgain
	}
	e := *h.queue.front()
	h.queue.pop()
	d.set(&e)
	n := min(len(p), len(e.payload))
	h.copied += uint64(n)
	if e.chunk != nil {
		// Chunks are small and guarded by the lock: copy under it.
		copy(p, e.payload)
		h.arena.free(e.chunk)
	}
	clear := s.taken(len(e.payload))
	h.mu.Unlock()
	if clear {
		s.local.announce()
	}
	if e.buf != nil {
		copy(p, e.payload)
		e.buf.Release()
	}
	e.conn.peer.release(len(e.payload) + overhead)
	return n, nil
}

// taken takes n bytes off the queue's account, and says whether that ended the
// port's congestion; rcv.mu is held.
func (s *Socket) taken(n int) (clear bool) {
	h := &s.rcv
	h.delivered++
	h.bytesOut += uint64(n)
	h.bytes -= n
	if n > 0 && h.congested && h.bytes < h.limit/2 {
		h.congested = false
		s.local.cong.clear(s.addr.Port())
		return true
	}
	return false
}

// Recv copies the first message to p, waiting for it.
func (s *Socket) Recv(ctx context.Context, p []byte, d *Delivery) (int, error) {
	if err := s.check(ctx, &s.readBy); err != nil {
		return 0, err
	}
	for waited := false; ; waited = true {
		n, err := s.TryRecv(p, d)
		if err != ErrAgain {
			return n, err
		}
		if err := s.awaitMessage(ctx, d.Notices, waited); err != nil {
			return 0, err
		}
	}
}

// awaitMessage waits until there may be a message, or a notification with notices.
// first says that the call has waited before.
func (s *Socket) awaitMessage(ctx context.Context, notices, first bool) error {
	h := &s.rcv
	h.mu.Lock()
	if h.closed || h.queue.n > 0 || notices && h.congUpdate != 0 {
		h.mu.Unlock()
		return nil
	}
	w := h.wait.add(first)
	h.mu.Unlock()
	got, err := s.await(ctx, &s.readBy, w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wait.done(w, got) && err != nil && h.queue.n > 0 {
		h.wait.wake()
	}
	return err
}

// Held is a message that was taken out of the queue without being copied.
type Held struct {
	s *Socket
	e entry
}

// Payload returns the message; it is valid until Release.
func (h *Held) Payload() []byte { return h.e.payload }

// Release gives the message's memory back. It must be called once.
func (h *Held) Release() {
	if h.e.chunk != nil {
		h.s.rcv.mu.Lock()
		h.s.rcv.arena.free(h.e.chunk)
		h.s.rcv.mu.Unlock()
	}
	if h.e.buf != nil {
		h.e.buf.Release()
	}
	h.e.conn.peer.release(len(h.e.payload) + overhead)
	*h = Held{}
}

// Next takes the first message out of the queue, waiting for it.
func (s *Socket) Next(ctx context.Context, held *Held, d *Delivery) error {
	if err := s.check(ctx, &s.readBy); err != nil {
		return err
	}
	for waited := false; ; waited = true {
		err := s.tryNext(held, d)
		if err != ErrAgain {
			return err
		}
		if err := s.awaitMessage(ctx, false, waited); err != nil {
			return err
		}
	}
}

func (s *Socket) tryNext(held *Held, d *Delivery) error {
	h := &s.rcv
	h.mu.Lock()
	if h.queue.n == 0 {
		defer h.mu.Unlock()
		if h.closed {
			return ErrClosed
		}
		return ErrAgain
	}
	held.s, held.e = s, *h.queue.front()
	h.queue.pop()
	d.set(&held.e)
	clear := s.taken(len(held.e.payload))
	h.mu.Unlock()
	if clear {
		s.local.announce()
	}
	return nil
}

// SetTimestamps says whether the time of arrival is noted from now on.
func (s *Socket) SetTimestamps(on bool) {
	s.rcv.mu.Lock()
	defer s.rcv.mu.Unlock()
	s.rcv.stamps = on
}

// closeRecv drops what is unread and ends the port's congestion.
func (s *Socket) closeRecv() {
	h := &s.rcv
	h.mu.Lock()
	h.closed = true
	h.congUpdate = 0
	dropped := make([]entry, 0, h.queue.n)
	for h.queue.n > 0 {
		e := *h.queue.front()
		h.queue.pop()
		if e.chunk != nil {
			h.arena.free(e.chunk)
		}
		h.bytesOut += uint64(len(e.payload))
		dropped = append(dropped, e)
	}
	h.arena.close()
	h.queue = queue{}
	h.bytes = 0
	clear := h.congested
	if clear {
		h.congested = false
		s.local.cong.clear(s.addr.Port())
	}
	h.mu.Unlock()
	if clear {
		s.local.announce()
	}
	for _, e := range dropped {
		if e.buf != nil {
			e.buf.Release()
		}
		e.conn.peer.release(len(e.payload) + overhead)
	}
}
