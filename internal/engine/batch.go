package engine

import (
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
)

// DeliverAll implements [transport.BatchHandler]: messages in a row for the same
// socket take its lock, and the peer's account, once.
func (c *conn) DeliverAll(ms []transport.Inbound) (more bool) {
	for len(ms) > 0 {
		n := 1
		for n < len(ms) && ms[n].DPort == ms[0].DPort {
			n++
		}
		run := ms[:n]
		ms = ms[n:]
		if s := c.local.ports.lookup(run[0].DPort); s == nil {
			c.noSock.Add(uint64(n))
		} else if !s.deliverAll(c, run) {
			c.deadSock.Add(uint64(n))
		}
	}
	return !c.peer.full()
}

// deliverAll is deliver for messages whose payloads are lent.
func (s *Socket) deliverAll(c *conn, ms []transport.Inbound) bool {
	for i := range ms {
		if m := &ms[i]; len(m.Payload) > smallMax {
			m.Buf = buffer.Get(len(m.Payload))
			m.Payload = m.Buf.B[:copy(m.Buf.B, m.Payload)]
		}
	}
	h := &s.rcv
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		for i := range ms {
			if ms[i].Buf != nil {
				ms[i].Buf.Release()
			}
		}
		return false
	}
	var at int64
	if h.stamps {
		at = time.Now().UnixNano()
	}
	bytes := 0
	for i := range ms {
		m := &ms[i]
		e := h.queue.push()
		if m.Buf != nil {
			e.payload, e.buf = m.Payload, m.Buf
		} else if len(m.Payload) > 0 {
			e.payload, e.chunk = h.arena.put(m.Payload)
		}
		e.conn, e.sport, e.again, e.at = c, m.SPort, m.Retransmitted, at
		bytes += len(m.Payload)
	}
	c.peer.hold(bytes + len(ms)*overhead)
	h.queued += uint64(len(ms))
	h.bytesIn += uint64(bytes)
	h.bytes += bytes
	mark := s.congest(bytes)
	for n := min(len(ms), len(h.wait.q)); n > 0; n-- {
		h.wait.wake()
	}
	h.mu.Unlock()
	if mark {
		s.local.announce()
	}
	return true
}
