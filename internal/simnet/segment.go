package simnet

import (
	"syscall"
	"time"
)

// maxSegment is the largest packet, in bytes of the stream.
const maxSegment = 64 << 10

// finTimeout is how long an orphan waits for the peer's FIN (tcp_fin_timeout).
const finTimeout = 60 * time.Second

// The way of bytes through the stack: TryWrite (stream.go) → output → pipe →
// segment of the other end → Read (stream.go) → openWindow → acknowledged.

// connect sends the first packet of a dial.
func (e *Stream) connect() {
	e.lock()
	defer e.unlock()
	if e.state == synSent {
		e.progress = e.conn.net.clock.now()
		e.sendSYN()
		e.armGiveUp()
	}
}

func (e *Stream) pipe() *pipe { return &e.conn.pipes[e.side] }

// sendSYN sends the SYN of a dialling end or the SYN-ACK of an accepting one.
func (e *Stream) sendSYN() {
	pk := packet{flags: flagSYN, edge: e.in.advertised}
	kind := EventSYN
	if e.side == Acceptor {
		pk.flags |= flagACK
		kind = EventSYNACK
	}
	e.conn.net.trace(Event{Kind: kind, Conn: e.conn, From: e.side})
	e.pipe().send(pk)
}

// send sends a packet with the acknowledgement and the window of the moment.
func (e *Stream) send(pk packet) {
	pk.flags |= flagACK
	pk.ack = e.in.ackNumber()
	pk.edge = e.in.advertise(int64(e.conn.net.opts.RecvBuffer))
	e.pipe().send(pk)
}

// output sends what the window allows, and the FIN behind the last byte.
func (e *Stream) output() {
	if e.state != established {
		return
	}
	f := e.out
	for f.next < f.written || f.finQueued && !f.finSent {
		n := min(f.written-f.next, maxSegment, f.edge-f.next)
		last := f.next+n == f.written
		if n <= 0 && !(last && f.finQueued) {
			break // the window is closed
		}
		pk := packet{seq: f.next, n: n}
		f.next += n
		if last && f.finQueued {
			pk.flags |= flagFIN
			f.finSent = true
			e.activeFIN = e.activeFIN || !e.in.finReceived
		}
		e.send(pk)
	}
	if f.outstanding() {
		e.armResend()
		e.armGiveUp()
	}
}

// finish queues the FIN.
func (e *Stream) finish() {
	if e.out.finQueued {
		return
	}
	if !e.out.outstanding() {
		e.progress = e.conn.net.clock.now()
	}
	e.out.finQueued = true
	e.output()
}

// openWindow tells the sender about room that the application has made by reading, when it is
// much or when the window was closed: half and a quarter of the buffer (RFC 9293, 3.8.6.2.2).
func (e *Stream) openWindow() {
	if e.state != established || e.in.finReceived {
		return
	}
	f, buffer := e.in, int64(e.conn.net.opts.RecvBuffer)
	gain := f.read + buffer - f.advertised
	if gain > 0 && (gain >= buffer/2 || f.advertised == f.received && (gain >= buffer/4 || f.read == f.received)) {
		e.send(packet{})
	}
}

// segment takes a packet of the connection.
func (e *Stream) segment(pk packet) {
	n := e.conn.net
	e.heard, e.unanswered = n.clock.now(), 0
	if pk.flags&flagRST != 0 {
		n.trace(Event{Kind: EventRST, Conn: e.conn, From: e.side.Other()})
		if e.state == synSent {
			n.stats.Refused++
			e.die(syscall.ECONNREFUSED)
		} else {
			n.stats.RSTs++
			e.die(syscall.ECONNRESET)
		}
		return
	}
	switch e.state {
	case synSent:
		switch {
		case pk.flags&flagStale != 0:
			e.pipe().send(packet{flags: flagRST | flagStale})
			e.sendSYN()
			return
		case pk.flags&flagSYN == 0:
			return
		}
		n.stats.Connected++
		e.established()
		e.out.edge = pk.edge
		e.send(packet{})
		close(e.ready)
		return
	case synReceived:
		if pk.flags&flagSYN != 0 {
			e.sendSYN()
			return
		}
		e.established()
		e.listener.established(e)
	case established:
		if pk.flags&flagSYN != 0 { // a repeated SYN-ACK: our acknowledgement was lost
			e.send(packet{})
			return
		}
	}
	e.acknowledged(pk)
	if pk.n > 0 || pk.flags&(flagFIN|flagProbe) != 0 {
		e.accept(pk)
	}
	if e.state == established {
		e.output()
		e.checkDone()
	}
}

func (e *Stream) established() {
	e.state, e.connected, e.backoff = established, true, 0
	e.conn.net.clock.stop(&e.resend)
	e.conn.net.clock.stop(&e.giveUp)
	e.conn.net.trace(Event{Kind: EventEstablished, Conn: e.conn, From: e.side})
}

// acknowledged takes what a packet says about our own direction.
func (e *Stream) acknowledged(pk packet) {
	f := e.out
	if pk.ack > f.written { // the FIN, even when it is just about to be sent again
		pk.ack = f.written
		if !f.finAcked {
			f.finAcked = true
			e.advanced()
		}
	}
	if pk.ack > f.una {
		f.una = pk.ack
		f.next = max(f.next, f.una)
		e.advanced()
		if e.canWrite() {
			e.writable.Signal()
		}
	}
	if pk.edge > f.edge {
		f.edge = pk.edge
		e.advanced()
	}
}

// advanced notes that the peer let us go on.
func (e *Stream) advanced() {
	e.progress = e.conn.net.clock.now()
	e.backoff = 0
	e.conn.net.clock.stop(&e.resend)
}

// accept takes the bytes and the FIN of a packet into the receive buffer.
func (e *Stream) accept(pk packet) {
	c, f := e.conn, e.in
	end := pk.seq + pk.n
	if e.orphan && end > f.received {
		// Data for an application that is gone: RFC 1122, 4.2.2.13.
		e.abandon(true)
		return
	}
	if pk.seq <= f.received && end > f.received {
		cut := f.cutAt >= 0 && end >= f.cutAt
		if cut {
			end = f.cutAt
		}
		if tap := c.net.opts.Tap; tap != nil {
			for at := f.received; at < end; {
				p := f.data.at(at, end)
				tap(c, e.side.Other(), p)
				at += int64(len(p))
			}
		}
		c.net.stats.Segments++
		c.net.stats.Bytes += uint64(end - f.received)
		c.net.trace(Event{Kind: EventData, Conn: c, From: e.side.Other(), Seq: f.received, N: int(end - f.received)})
		f.received = end
		e.readable.Signal()
		if cut {
			c.cut(e.side.Other())
			return
		}
	}
	if pk.flags&flagFIN != 0 && end == f.received && !f.finReceived {
		f.finReceived = true
		c.net.stats.FINs++
		c.net.trace(Event{Kind: EventFIN, Conn: c, From: e.side.Other(), Seq: end})
		e.readable.Signal()
	}
	e.send(packet{})
}

// abandon is the end of the application's use: its Close, or the end of its process. With rst, or with
// unread bytes, it makes an RST; otherwise the stack goes on as an orphan until both
// directions have ended.
func (e *Stream) abandon(rst bool) {
	if e.orphan {
		if rst && e.state != dead {
			e.reset()
		}
		return
	}
	e.orphan = true
	unread := e.in.received > e.in.read
	e.in.noReader = true
	e.in.trim()
	if e.state == dead {
		return
	}
	if rst || unread || e.state != established {
		e.reset()
		return
	}
	e.finish()
	e.checkDone()
}

// reset sends an RST and forgets the stream.
func (e *Stream) reset() {
	if e.state != synSent {
		e.pipe().send(packet{flags: flagRST})
	}
	e.die(errAborted)
}

// checkDone lets go of an orphan that has nothing to do any more.
func (e *Stream) checkDone() {
	if !e.orphan || !e.out.finAcked {
		return
	}
	switch n := e.conn.net; {
	case e.in.finReceived:
		if e.activeFIN {
			e.m.remember(e)
		}
		n.trace(Event{Kind: EventClosed, Conn: e.conn, From: e.side})
		e.die(errAborted)
	default:
		n.clock.set(&e.giveUp, e.progress+finTimeout)
	}
}

// vanish makes the stack forget the stream without a word.
func (e *Stream) vanish() {
	if e.state != dead {
		e.die(errAborted)
		e.conn.trouble()
	}
}

// die takes the stream out of its stack. err is what its calls say from now on, unless
// there is a reason already.
func (e *Stream) die(err error) {
	if e.state == dead {
		return
	}
	was := e.state
	e.state = dead
	if e.err == nil {
		e.err = err
	}
	clock := &e.conn.net.clock
	clock.stop(&e.resend)
	clock.stop(&e.giveUp)
	clock.stop(&e.keep)
	delete(e.m.streams, tuple{e.local, e.remote})
	switch was {
	case synSent:
		close(e.ready)
	case synReceived:
		e.listener.pending--
	}
	e.wake()
	e.conn.detach()
}
