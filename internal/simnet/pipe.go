package simnet

import (
	"math/rand/v2"
	"time"
)

// Link describes one direction of the way between two hosts.
type Link struct {
	// Delay of every packet. 0 = 100 µs; negative = none.
	Delay time.Duration
	// Jitter is the most by which a packet may take longer, drawn evenly. Packets of
	// one stream never overtake each other. 0 = none.
	Jitter time.Duration
	// Bandwidth of every single stream, in bytes a second. 0 = unlimited.
	Bandwidth int64
	// Loss is the probability that a packet is lost and has to be sent again after
	// a retransmission timeout. 0 = none; must be below 1.
	Loss float64
}

const defaultDelay = 100 * time.Microsecond

func (l Link) check() {
	if l.Jitter < 0 || l.Bandwidth < 0 || l.Loss < 0 || l.Loss >= 1 {
		panic("simnet: Link with a negative Jitter or Bandwidth, or Loss outside [0, 1)")
	}
}

type flags uint8

const (
	flagSYN flags = 1 << iota
	flagACK
	flagRST
	flagFIN
	// flagProbe asks for an acknowledgement: keepalive and zero window probes.
	flagProbe
	// flagStale on an ACK: the four-tuple of the SYN belongs to an older connection (a
	// challenge ACK, RFC 5961). On an RST: meant for that older connection.
	flagStale
)

// packet is what travels. Its bytes stay in the flow, which knows them by offset.
type packet struct {
	at    time.Duration // arrival, unless it is held up by an earlier one
	seq   int64         // offset of the first byte, or of the FIN
	n     int64         // number of bytes
	ack   int64         // next offset expected; one more than the last byte's when the FIN is acknowledged
	edge  int64         // right edge of the window
	flags flags
}

// overhead is what a packet weighs on a link of limited bandwidth besides its bytes.
const overhead = 66

// pipe carries the packets of one direction of a connection, in order.
type pipe struct {
	conn   *Conn
	from   Side
	queue  []packet
	next   alarm         // arrival of queue[0]
	free   time.Duration // when the newest packet has left, with limited bandwidth
	frozen time.Duration // the receiving stack takes nothing before
	silent bool          // swallows everything
	rng    rand.PCG
}

// chance draws true with probability p.
func (p *pipe) chance(prob float64) bool {
	return prob > 0 && float64(p.rng.Uint64()>>11)/(1<<53) < prob
}

// draw returns an even random number in [0, n).
func (p *pipe) draw(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return int64(p.rng.Uint64() % uint64(n))
}

func (p *pipe) send(pk packet) {
	c := p.conn
	n := c.net
	from, to := c.machines[p.from], c.machines[p.from.Other()]
	link := n.link(from, to)
	if p.silent || from.off || n.isCut(from, to) || p.chance(link.Loss) {
		c.lost(p.from, pk)
		return
	}
	now := n.clock.now()
	at := now
	if link.Bandwidth > 0 {
		p.free = max(p.free, now) + time.Duration(float64(pk.n+overhead)/float64(link.Bandwidth)*float64(time.Second))
		at = p.free
	}
	delay := link.Delay
	if delay == 0 {
		delay = defaultDelay
	}
	at += max(delay, 0) + time.Duration(p.draw(int64(link.Jitter))) + n.opts.Chaos.delay(p)
	pk.at = at
	if k := len(p.queue); k > 0 {
		// A newer bare acknowledgement that arrives together with an older one says it all.
		if tail := &p.queue[k-1]; tail.at == at && tail.flags == flagACK && pk.flags == flagACK && tail.n == 0 && pk.n == 0 {
			*tail = pk
			return
		}
	}
	p.queue = append(p.queue, pk)
	if len(p.queue) == 1 {
		n.clock.set(&p.next, at)
	}
}

// arrive hands the packets that are due to the other side.
func (p *pipe) arrive() {
	c := p.conn
	n := c.net
	side := p.from.Other()
	now := n.clock.now()
	if hold := max(p.frozen, c.machines[side].frozen); hold > now {
		n.clock.set(&p.next, hold)
		return
	}
	for len(p.queue) > 0 && p.queue[0].at <= now {
		pk := p.queue[0]
		p.queue = p.queue[1:]
		if p.silent || n.isCut(c.machines[p.from], c.machines[side]) || c.machines[side].off {
			c.lost(p.from, pk)
			continue
		}
		c.machines[side].receive(c, side, pk)
	}
	if len(p.queue) == 0 {
		p.queue = nil
		n.clock.stop(&p.next)
	} else if !p.next.isSet() {
		n.clock.set(&p.next, p.queue[0].at)
	}
}

// purge loses everything on the way.
func (p *pipe) purge() {
	p.queue = nil
	p.conn.net.clock.stop(&p.next)
}
