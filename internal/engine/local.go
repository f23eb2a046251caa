package engine

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// local is one address of the node: its ports, their congestion, and its
// connections. There is one for each of Config.Addrs.
type local struct {
	e     *Engine
	addr  netip.Addr
	ports portTable
	cong  congMap

	// conns is what every change of cong is announced to. It is only ever
	// appended to.
	conns atomic.Pointer[[]*conn]

	mu sync.RWMutex // guards to and changes of conns
	to map[netip.Addr]*conn
}

// usable returns the connection to remote, nil if there is none that may be sent
// on.
func (l *local) usable(remote netip.Addr) *conn {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if c := l.to[remote]; c != nil && c.usable.Load() {
		return c
	}
	return nil
}

// linked makes the connection to remote usable: its transport has returned the
// link.
func (l *local) linked(remote netip.Addr) *conn {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.to[remote]
	c.usable.Store(true)
	return c
}

// add enters a new connection.
func (l *local) add(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to[c.remote] = c
	conns := append(l.connections(), c)
	l.conns.Store(&conns)
}

// announce tells all connections that the congestion map has changed. No lock
// may be held.
func (l *local) announce() {
	conns := l.connections()
	l.e.count.mapsQueued.Add(uint64(len(conns)))
	for _, c := range conns {
		c.link.MapChanged()
	}
}

// connections returns all connections.
func (l *local) connections() []*conn {
	if p := l.conns.Load(); p != nil {
		return *p
	}
	return nil
}
