package simnet

import (
	"syscall"
	"time"
)

// Timers of an end. None of them runs on a healthy connection, except that the
// user timeout looks once in a while whether something is outstanding.

const (
	minRTO     = 200 * time.Millisecond // Linux: TCP_RTO_MIN
	initialRTO = time.Second            // for SYN and SYN-ACK: RFC 6298
	maxRTO     = 120 * time.Second      // Linux: TCP_RTO_MAX

	maxRetries       = 15 // tcp_retries2
	maxOrphanRetries = 8  // tcp_orphan_retries
	maxSYNRetries    = 6  // tcp_syn_retries
	maxSYNACKRetries = 5  // tcp_synack_retries
)

// armResend starts the retransmission timer, when packets may have been lost and
// something is waiting for an answer.
func (e *Stream) armResend() {
	if !e.suspect || e.resend.isSet() || e.state == dead || e.state == established && !e.out.outstanding() {
		return
	}
	rto := minRTO
	if e.state != established {
		rto = initialRTO
	}
	n := e.conn.net
	n.clock.set(&e.resend, n.clock.now()+min(rto<<e.backoff, maxRTO))
}

func (e *Stream) onResend() {
	if e.state == established && !e.out.outstanding() {
		return
	}
	limit := maxRetries
	switch {
	case e.state == synSent:
		limit = maxSYNRetries
	case e.state == synReceived:
		limit = maxSYNACKRetries
	case e.orphan:
		limit = maxOrphanRetries
	}
	if e.unanswered >= limit && (e.state != established || e.orphan || e.conn.net.opts.UserTimeout == 0) {
		e.timeout()
		return
	}
	e.backoff = min(e.backoff+1, 16) // beyond maxRTO
	e.unanswered++
	e.conn.net.stats.Retransmits++
	f := e.out
	switch {
	case e.state != established:
		e.sendSYN()
	case f.una < f.next || f.finSent:
		f.next, f.finSent = f.una, false
		e.output()
	default: // nothing in flight: the window is closed
		e.send(packet{seq: f.next, flags: flagProbe})
	}
	e.armResend()
}

// armGiveUp starts the user timeout.
func (e *Stream) armGiveUp() {
	n := e.conn.net
	if d := n.opts.UserTimeout; d > 0 && !e.giveUp.isSet() && e.state != dead {
		n.clock.set(&e.giveUp, e.progress+d)
	}
}

func (e *Stream) onGiveUp() {
	n := e.conn.net
	if e.state == established && !e.out.outstanding() {
		if e.orphan {
			if end := e.progress + finTimeout; n.clock.now() < end {
				n.clock.set(&e.giveUp, end)
			} else {
				e.vanish() // the peer did not close
			}
		}
		return
	}
	if end := e.progress + n.opts.UserTimeout; n.opts.UserTimeout > 0 && n.clock.now() < end {
		n.clock.set(&e.giveUp, end)
		return
	}
	e.timeout()
}

// armKeep starts keepalive.
func (e *Stream) armKeep() {
	n := e.conn.net
	if n.opts.KeepAlive == 0 || e.probing || e.state != established {
		return
	}
	e.probing = true
	// Up to now probes would have been answered.
	interval := max(n.opts.KeepAlive/6, 1)
	now := n.clock.now()
	e.heard = max(e.heard, now-(now-e.heard)%interval)
	n.clock.set(&e.keep, max(e.heard+interval, now))
}

func (e *Stream) onKeep() {
	n := e.conn.net
	now := n.clock.now()
	// While something is outstanding, its own timers decide.
	if !e.out.outstanding() {
		if now-e.heard >= n.opts.KeepAlive {
			e.pipe().send(packet{flags: flagRST})
			e.timeout()
			return
		}
		e.send(packet{seq: e.out.next, flags: flagProbe})
	}
	if e.answers() {
		e.probing = false
	} else {
		n.clock.set(&e.keep, now+max(n.opts.KeepAlive/6, 1))
	}
}

// answers tells whether probes of e would be answered by a living peer: then none need
// be sent.
func (e *Stream) answers() bool {
	c, other := e.conn, e.side.Other()
	n, peer := c.net, c.ends[other]
	now := n.clock.now()
	return peer != nil && peer.state != dead &&
		!c.machines[other].off && c.machines[other].frozen <= now && c.pipes[e.side].frozen <= now &&
		!c.pipes[Dialer].silent && !c.pipes[Acceptor].silent &&
		!n.isCut(e.m, c.machines[other]) && !n.isCut(c.machines[other], e.m)
}

func (e *Stream) timeout() {
	n := e.conn.net
	n.stats.Timeouts++
	n.trace(Event{Kind: EventTimeout, Conn: e.conn, From: e.side})
	e.die(syscall.ETIMEDOUT)
	e.conn.trouble() // the other side is not told
}
