package simnet

import (
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// machine is the TCP stack of one or several addresses. Processes on it come and
// go (Host); the machine can be off.
type machine struct {
	net       *Net
	addrs     []netip.Addr
	off       bool // answers nothing; also true before the first Host of its address
	ghost     bool // no Host was ever made: somebody only spoke of the address
	frozen    time.Duration
	streams   map[tuple]*Stream // every end that the stack knows, orphans included
	listeners map[netip.AddrPort]*Listener
	waiting   map[tuple]timeWait
	waitOrder []tuple // in order of expiry; entries that are no longer in waiting are skipped
	hosts     []*Host // processes alive
	dials     uint64
}

// tuple names a stream as its machine sees it.
type tuple struct{ local, remote netip.AddrPort }

// timeWait is what is left of a stream whose side closed first: enough to
// acknowledge a repeated FIN.
type timeWait struct {
	conn    *Conn
	side    Side
	ack     int64
	expires time.Duration
}

// maxTimeWait bounds the memory for connections gone (tcp_max_tw_buckets); the oldest goes first.
const maxTimeWait = 4096

// machine returns the machine that has the address a. An address that no Host has is a
// machine that is switched off.
func (n *Net) machine(a netip.Addr) *machine {
	a = a.Unmap()
	m := n.machines[a]
	if m == nil {
		m = &machine{net: n, addrs: []netip.Addr{a}, off: true, ghost: true}
		n.machines[a] = m
	}
	return m
}

// boot returns the machine for exactly these addresses, switched on.
func (n *Net) boot(addrs []netip.Addr) *machine {
	m := n.machines[addrs[0]]
	if m != nil && !m.ghost {
		for _, a := range addrs {
			if n.machines[a] != m || len(addrs) != len(m.addrs) {
				panic("simnet: Host: the addresses overlap with those of another host")
			}
		}
		m.off = false
		return m
	}
	m = &machine{
		net: n, addrs: slices.Clone(addrs),
		streams:   make(map[tuple]*Stream),
		listeners: make(map[netip.AddrPort]*Listener),
		waiting:   make(map[tuple]timeWait),
	}
	for _, a := range addrs {
		if old := n.machines[a]; old != nil {
			if !old.ghost {
				panic("simnet: Host: the addresses overlap with those of another host")
			}
			n.replace(old, m)
		}
		n.machines[a] = m
	}
	return m
}

// replace puts m where the ghost old was spoken of.
func (n *Net) replace(old, m *machine) {
	swap := func(p *machine) *machine {
		if p == old {
			return m
		}
		return p
	}
	for _, c := range n.conns {
		c.machines[Acceptor] = swap(c.machines[Acceptor])
	}
	for w, l := range n.links {
		if w.from == old || w.to == old {
			delete(n.links, w)
			n.links[way{swap(w.from), swap(w.to)}] = l
		}
	}
	for w := range n.cuts {
		if w.from == old || w.to == old {
			delete(n.cuts, w)
			n.cuts[way{swap(w.from), swap(w.to)}] = true
		}
	}
}

// receive takes a packet of c that arrived for the given side of it.
func (m *machine) receive(c *Conn, side Side, pk packet) {
	key := tuple{c.addrs[side], c.addrs[side.Other()]}
	e := m.streams[key]
	if e != nil && e.conn == c {
		e.segment(pk)
		return
	}
	switch reply := &c.pipes[side]; {
	case pk.flags&flagRST != 0:
		if e != nil && pk.flags&flagStale != 0 {
			m.net.stats.RSTs++
			e.die(syscall.ECONNRESET)
		}
	case pk.flags&(flagSYN|flagACK) == flagSYN:
		if e != nil {
			m.net.stats.Challenges++
			reply.send(packet{flags: flagACK | flagStale})
			return
		}
		if l := m.listeners[key.local]; l == nil {
			m.net.trace(Event{Kind: EventRefused, Conn: c, From: side})
			reply.send(packet{flags: flagRST | flagACK})
		} else {
			l.syn(c, pk)
		}
	case e != nil:
		// The four-tuple was used again from here. An established successor ignores what is
		// outside its window; one that is still dialling rejects it.
		if e.state == synSent {
			reply.send(packet{flags: flagRST})
		}
	default:
		if w, ok := m.timeWait(key); ok && w.conn == c {
			if pk.n > 0 || pk.flags&(flagFIN|flagProbe) != 0 {
				reply.send(packet{flags: flagACK, ack: w.ack})
			}
			return
		}
		m.net.trace(Event{Kind: EventRST, Conn: c, From: side})
		reply.send(packet{flags: flagRST})
	}
}

// remember keeps e in TIME_WAIT.
func (m *machine) remember(e *Stream) {
	d := m.net.opts.TimeWait
	if d == 0 {
		return
	}
	key := tuple{e.local, e.remote}
	now := m.net.clock.now()
	m.waiting[key] = timeWait{e.conn, e.side, e.in.ackNumber(), now + d}
	m.waitOrder = append(m.waitOrder, key)
	for len(m.waitOrder) > 0 {
		oldest := m.waitOrder[0]
		if w, ok := m.waiting[oldest]; ok && w.expires > now && len(m.waitOrder) <= maxTimeWait {
			break
		}
		delete(m.waiting, oldest)
		m.waitOrder = m.waitOrder[1:]
	}
}

func (m *machine) timeWait(key tuple) (timeWait, bool) {
	w, ok := m.waiting[key]
	if ok && w.expires <= m.net.clock.now() {
		delete(m.waiting, key)
		return timeWait{}, false
	}
	return w, ok
}

// Source ports come in groups of eight from the start of Linux's ephemeral range
// rounded up to eight, one port of a group for each path (RDS spec section 9).
const (
	portBase   = 32768 + 8
	portGroups = (60999 - portBase + 1) / 8
)

// port picks the source port of a dial: the first group from attempt on whose port
// is in use neither by a stream to the same remote address, dead ones that the
// stack still knows included, nor by a listener. 0 = none.
func (m *machine) port(local netip.Addr, remote netip.AddrPort, path, attempt int) uint16 {
	for i := range portGroups {
		port := uint16(portBase + (attempt+i)%portGroups*8 + path)
		key := tuple{netip.AddrPortFrom(local, port), remote}
		if m.streams[key] != nil || m.listeners[key.local] != nil {
			continue
		}
		if _, ok := m.timeWait(key); !ok {
			return port
		}
	}
	return 0
}

// sortedStreams lists the ends on m in the order of their connections.
func (m *machine) sortedStreams() []*Stream {
	list := make([]*Stream, 0, len(m.streams))
	for _, e := range m.streams {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Stream) int {
		if a.conn != b.conn {
			return int(int64(a.conn.id - b.conn.id))
		}
		return int(a.side) - int(b.side)
	})
	return list
}

// stopProcesses closes the listeners of m and does end to every stream which has
// not yet been closed.
func (m *machine) stopProcesses(end func(*Stream)) {
	for _, h := range m.hosts {
		h.dead = true
	}
	m.hosts = nil
	for _, l := range m.listeners {
		l.shut()
	}
	for _, e := range m.sortedStreams() {
		if !e.orphan {
			end(e)
		}
	}
}
