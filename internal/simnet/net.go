package simnet

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Options configures a Net. The zero value is a fast, faultless network with the
// timeouts of the product.
type Options struct {
	// Seed of everything random: jitter, loss, Chaos. Each connection draws from
	// a generator of its own, made from Seed, its addresses and the count of dials of
	// its host, so that goroutines cannot disturb each other's luck.
	Seed uint64
	// Link is the way between any two hosts, unless SetLink says otherwise.
	Link Link
	// SendBuffer and RecvBuffer of every stream in bytes. 0 = 256 KiB.
	SendBuffer, RecvBuffer int
	// Backlog is how many connections of a listener may wait for Accept; further SYNs are
	// dropped, as Linux does. 0 = 4096.
	Backlog int
	// UserTimeout ends a stream whose peer has neither acknowledged nor opened its
	// window for so long although there was something to send. 0 = 30 s; negative = none: lost
	// packets are sent again 15 times (15 minutes and more), and a zero window may last.
	UserTimeout time.Duration
	// KeepAlive ends an idle stream whose peer has not answered for so long; probes
	// go out every sixth of it. 0 = 30 s; negative = none.
	KeepAlive time.Duration
	// TimeWait is how long the side that closed first remembers a connection; its port is
	// not used to the same remote address meanwhile. 0 = 60 s; negative = none.
	TimeWait time.Duration
	// Chaos adds random faults to connections.
	Chaos Chaos
	// OnDial, when not nil, is called by the dialling goroutine before the first
	// packet of a connection is sent: the place to script its faults.
	OnDial func(c *Conn)
	// Trace, when not nil, is told what happens, in order. It is called with the lock of the
	// Net held: it must return soon and must not call anything of this package but the
	// methods of Event and Conn.ID, Conn.Addr and Conn.String.
	Trace func(e Event)
	// Tap, when not nil, sees the bytes of every direction once and in order, when they
	// get into the receive buffer of the other side. p is lent. Called as Trace is.
	Tap func(c *Conn, from Side, p []byte)
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		} else if *d < 0 {
			*d = 0
		}
	}
	set(&o.UserTimeout, 30*time.Second)
	set(&o.KeepAlive, 30*time.Second)
	set(&o.TimeWait, 60*time.Second)
	if o.SendBuffer < 0 || o.RecvBuffer < 0 || o.Backlog < 0 {
		panic("simnet: Options with a negative SendBuffer, RecvBuffer or Backlog")
	}
	if o.SendBuffer == 0 {
		o.SendBuffer = 256 << 10
	}
	if o.RecvBuffer == 0 {
		o.RecvBuffer = 256 << 10
	}
	if o.Backlog == 0 {
		o.Backlog = 4096
	}
	o.Link.check()
	o.Chaos.check()
	return o
}

// Net is a network.
type Net struct {
	opts Options

	mu       sync.Mutex // guards everything below and every object of the Net
	clock    clock
	machines map[netip.Addr]*machine
	conns    map[uint64]*Conn // with at least one end in its stack
	lastID   uint64
	links    map[way]Link
	cuts     map[way]bool
	stats    Stats
	closed   bool
}

// way is one direction between two machines.
type way struct{ from, to *machine }

// New makes an empty network. It panics on invalid Options.
func New(o Options) *Net {
	n := &Net{
		opts:     o.withDefaults(),
		machines: make(map[netip.Addr]*machine),
		conns:    make(map[uint64]*Conn),
		links:    make(map[way]Link),
		cuts:     make(map[way]bool),
	}
	n.clock.init(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.clock.run()
	})
	return n
}

// Close ends the network: all streams fail, all listeners close, nothing happens any more.
func (n *Net) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, c := range n.sortedConns() {
		c.purge()
		for _, e := range c.ends {
			if e != nil {
				e.die(errAborted)
			}
		}
	}
	for _, m := range n.machines {
		m.stopProcesses(func(*Stream) {})
	}
	n.clock.close()
}

// Now is the time since the Net was made, as in Event.At.
func (n *Net) Now() time.Duration { return n.clock.now() }

// SetLink sets both directions between the machines of two addresses.
func (n *Net) SetLink(a, b netip.Addr, l Link) {
	n.SetLinkFrom(a, b, l)
	n.SetLinkFrom(b, a, l)
}

// SetLinkFrom sets one direction between the machines of two addresses.
func (n *Net) SetLinkFrom(from, to netip.Addr, l Link) {
	l.check()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[way{n.machine(from), n.machine(to)}] = l
}

func (n *Net) link(from, to *machine) Link {
	if l, ok := n.links[way{from, to}]; ok {
		return l
	}
	return n.opts.Link
}

// Partition swallows everything between the machines of two addresses, what is on
// its way included.
func (n *Net) Partition(a, b netip.Addr) {
	n.PartitionFrom(a, b)
	n.PartitionFrom(b, a)
}

// PartitionFrom swallows everything from one machine to another.
func (n *Net) PartitionFrom(from, to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := way{n.machine(from), n.machine(to)}
	n.cuts[w] = true
	for _, c := range n.sortedConns() {
		if c.machines == [2]*machine{w.from, w.to} || c.machines == [2]*machine{w.to, w.from} {
			c.trouble()
		}
	}
}

// Heal ends the partition between the machines of two addresses in both directions.
// Streams notice when they send the next time: the retransmission timeout doubles with
// every failure.
func (n *Net) Heal(a, b netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ma, mb := n.machine(a), n.machine(b)
	delete(n.cuts, way{ma, mb})
	delete(n.cuts, way{mb, ma})
}

// HealAll ends all partitions.
func (n *Net) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

func (n *Net) isCut(from, to *machine) bool {
	return len(n.cuts) > 0 && n.cuts[way{from, to}]
}

// Conns lists the connections that have at least one end alive, oldest first.
func (n *Net) Conns() []*Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sortedConns()
}

// ConnsBetween lists the connections between two addresses, whoever dialled.
func (n *Net) ConnsBetween(a, b netip.Addr) []*Conn {
	return slices.DeleteFunc(n.Conns(), func(c *Conn) bool {
		d, r := c.addrs[Dialer].Addr(), c.addrs[Acceptor].Addr()
		return !(d == a && r == b || d == b && r == a)
	})
}

func (n *Net) sortedConns() []*Conn {
	list := make([]*Conn, 0, len(n.conns))
	for _, c := range n.conns {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *Conn) int { return int(int64(a.id - b.id)) })
	return list
}

// Stats counts what happened in a Net.
type Stats struct {
	Dials       uint64 // calls of Dial that sent a SYN
	Connected   uint64 // of these, those that succeeded
	Refused     uint64 // of these, those that were refused
	Accepts     uint64 // streams returned by Accept
	Segments    uint64 // packets with data that arrived in order
	Bytes       uint64 // bytes that got into receive buffers
	RSTs        uint64 // streams ended by an RST that arrived
	FINs        uint64 // FINs that arrived
	Timeouts    uint64 // streams ended by a timeout
	Drops       uint64 // packets lost
	Retransmits uint64 // retransmission timeouts
	Challenges  uint64 // SYNs that met an older connection of the same four-tuple
}

// Stats returns a copy of the counters.
func (n *Net) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}
