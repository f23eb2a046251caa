package simnet

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"
)

// Side names one end of a connection, or the direction that starts there.
type Side uint8

const (
	Dialer Side = iota
	Acceptor
)

// Other returns the opposite side.
func (s Side) Other() Side { return 1 - s }

func (s Side) String() string {
	if s == Dialer {
		return "dialer"
	}
	return "acceptor"
}

// Conn is one connection, seen from above: the test's handle to watch and to break it.
// It stays usable when the connection has ended.
type Conn struct {
	net   *Net
	id    uint64
	addrs [2]netip.AddrPort

	// Guarded by the lock of the Net. Indexed by Side; flows and pipes by the side
	// where they start.
	machines [2]*machine
	ends     [2]*Stream // nil until the SYN has arrived there
	flows    [2]flow
	pipes    [2]pipe
}

// newConn makes a connection without ends. nth tells the dials of the dialling machine apart.
func newConn(n *Net, local, remote netip.AddrPort, from, to *machine, nth uint64) *Conn {
	n.lastID++
	c := &Conn{
		net: n, id: n.lastID,
		addrs:    [2]netip.AddrPort{local, remote},
		machines: [2]*machine{from, to},
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, local, remote, nth)
	for side := Dialer; side <= Acceptor; side++ {
		p := &c.pipes[side]
		p.conn, p.from, p.next.ring = c, side, p.arrive
		p.rng = *rand.NewPCG(n.opts.Seed, hash.Sum64()+uint64(side))
		c.flows[side].cutAt = -1
	}
	n.opts.Chaos.plan(c)
	n.conns[c.id] = c
	return c
}

// attach makes the end of one side and puts it into its machine's stack.
func (c *Conn) attach(side Side, s state) *Stream {
	e := &Stream{
		conn: c, side: side, m: c.machines[side],
		local: c.addrs[side], remote: c.addrs[side.Other()],
		out: &c.flows[side], in: &c.flows[side.Other()],
		state: s,
	}
	if side == Dialer {
		e.ready = make(chan struct{})
	}
	e.readable.L, e.writable.L = &c.net.mu, &c.net.mu
	e.resend.ring, e.giveUp.ring, e.keep.ring = e.onResend, e.onGiveUp, e.onKeep
	e.heard = c.net.clock.now()
	e.in.advertise(int64(c.net.opts.RecvBuffer))
	c.ends[side] = e
	c.net.conns[c.id] = c // again, when the dialler gave up before its SYN arrived
	e.m.streams[tuple{e.local, e.remote}] = e
	return e
}

// detach forgets the connection when neither side's stack knows it any more.
func (c *Conn) detach() {
	for _, e := range c.ends {
		if e != nil && e.state != dead {
			return
		}
	}
	delete(c.net.conns, c.id)
}

// lost accounts for a packet that was dropped: from now on both ends have to expect the
// worst and use their timers.
func (c *Conn) lost(from Side, pk packet) {
	c.net.stats.Drops++
	c.net.trace(Event{Kind: EventDrop, Conn: c, From: from, Seq: pk.seq, N: int(pk.n)})
	c.trouble()
}

// trouble makes both ends arm the timers which a healthy connection does without.
func (c *Conn) trouble() {
	for _, e := range c.ends {
		if e != nil && e.state != dead {
			e.suspect = true
			e.armResend()
			e.armKeep()
		}
	}
}

// purge loses what is on its way in both directions.
func (c *Conn) purge() {
	c.pipes[Dialer].purge()
	c.pipes[Acceptor].purge()
}

// ID numbers the connections of a Net in the order of their dials, from 1.
func (c *Conn) ID() uint64 { return c.id }

// Addr returns the address of one side.
func (c *Conn) Addr(s Side) netip.AddrPort { return c.addrs[s] }

func (c *Conn) String() string {
	return fmt.Sprintf("#%d %s>%s", c.id, c.addrs[Dialer], c.addrs[Acceptor])
}

// SideOf returns the side that has the IP address a: the dialer's when both have.
func (c *Conn) SideOf(a netip.Addr) Side {
	switch a.Unmap() {
	case c.addrs[Dialer].Addr():
		return Dialer
	case c.addrs[Acceptor].Addr():
		return Acceptor
	}
	panic(fmt.Sprintf("simnet: connection %v has no side %v", c, a))
}

// Stream returns one end: nil for the acceptor until the SYN has arrived.
func (c *Conn) Stream(s Side) *Stream {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.ends[s]
}

// Progress says how far one direction has got, in bytes from the start of the stream.
type Progress struct {
	Written   int64 // taken by TryWrite
	Delivered int64 // in the receive buffer of the other side, or beyond
	Acked     int64 // of these, the sender knows of
	Read      int64 // of those delivered, read
}

// Progress returns how far the direction has got that starts at from.
func (c *Conn) Progress(from Side) Progress {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	f := &c.flows[from]
	return Progress{Written: f.written, Delivered: f.received, Acked: f.una, Read: f.read}
}

// Established tells whether both ends are alive and connected.
func (c *Conn) Established() bool {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for _, e := range c.ends {
		if e == nil || e.state != established || e.orphan {
			return false
		}
	}
	return true
}

// RST destroys the end of one side, as ss -K does: its calls fail with ECONNABORTED and
// the other side's with ECONNRESET, at once. What was unsent or on its way, in either
// direction, acknowledgements included, is lost; what had arrived can be read.
func (c *Conn) RST(s Side) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.purge()
	c.end(s, errAborted)
	c.end(s.Other(), syscall.ECONNRESET)
}

// Break ends both sides with ECONNRESET at once, as a middlebox that forges RSTs does.
// Otherwise it is like RST.
func (c *Conn) Break() {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.breakNow()
}

func (c *Conn) breakNow() {
	c.purge()
	c.end(Dialer, syscall.ECONNRESET)
	c.end(Acceptor, syscall.ECONNRESET)
}

func (c *Conn) end(s Side, err error) {
	if e := c.ends[s]; e != nil && e.state != dead {
		if err == syscall.ECONNRESET {
			c.net.stats.RSTs++
			c.net.trace(Event{Kind: EventRST, Conn: c, From: s.Other()})
		}
		e.die(err)
	}
}

// Vanish makes one side forget the connection: no FIN, no RST; its calls fail with
// ECONNABORTED. As long as its machine is on, it answers with an RST whatever the
// other side sends afterwards.
func (c *Conn) Vanish(s Side) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if e := c.ends[s]; e != nil {
		e.vanish()
	}
}

// Silence swallows everything that the connection sends, in both directions, what is
// on its way included, until Silence(false).
func (c *Conn) Silence(on bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.silence(on)
}

func (c *Conn) silence(on bool) {
	c.pipes[Dialer].silent, c.pipes[Acceptor].silent = on, on
	if on {
		c.purge()
		c.trouble()
	}
}

// Stall freezes the receiving half of one side's stack: for d nothing is taken, and
// so nothing acknowledged.
func (c *Conn) Stall(s Side, d time.Duration) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	p := &c.pipes[s.Other()]
	p.frozen = max(p.frozen, c.net.clock.now()+d)
	c.trouble()
}

// LimitWrites makes every TryWrite of one side take at most max bytes. 0 = no limit.
func (c *Conn) LimitWrites(s Side, max int) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.flows[s].limit = max
}

// CutHow says what happens at the place of a cut.
type CutHow uint8

const (
	// CutReset ends both sides with ECONNRESET at once. The acknowledgement of the last
	// bytes is lost with the connection: the sender does not know that they arrived.
	CutReset CutHow = iota
	// CutResetAcked is CutReset, but the sender still got the acknowledgement.
	CutResetAcked
	// CutFIN ends the receiving side's stream with a FIN there; the sending side's
	// calls fail with ECONNABORTED, as if its process had died in the middle of a message.
	CutFIN
	// CutSilent swallows everything from there on, in both directions.
	CutSilent
	numCutHow = iota
)

func (h CutHow) String() string {
	return [...]string{"reset", "reset-acked", "fin", "silent"}[h]
}

// CutAt lets exactly the first offset bytes of the direction that starts at from
// arrive, and then cuts the connection; at once, if they have arrived already.
func (c *Conn) CutAt(from Side, offset int64, how CutHow) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.cutAt(from, offset, how)
}

// CutAfter is CutAt for n more bytes than have arrived.
func (c *Conn) CutAfter(from Side, n int64, how CutHow) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.cutAt(from, c.flows[from].received+n, how)
}

func (c *Conn) cutAt(from Side, offset int64, how CutHow) {
	f := &c.flows[from]
	f.cutAt, f.cutHow = offset, how
	if e := c.ends[from.Other()]; e != nil && e.state == established && f.received >= offset {
		c.cut(from)
	}
}

// cut carries out the cut of the direction that starts at from.
func (c *Conn) cut(from Side) {
	f := &c.flows[from]
	f.cutAt = -1
	switch f.cutHow {
	case CutResetAcked:
		f.una = f.received
		fallthrough
	case CutReset:
		c.breakNow()
	case CutFIN:
		c.purge()
		c.end(from, errAborted)
		f.finReceived = true
		if e := c.ends[from.Other()]; e != nil {
			e.wake()
		}
		c.trouble() // what the survivor had on its way is lost
	case CutSilent:
		c.silence(true)
	}
}
