package simnet

import (
	"net"
	"net/netip"
	"sync"

	"github.com/rds-go/rds/internal/transport"
)

// Listener implements transport.Listener.
type Listener struct {
	m       *machine
	addr    netip.AddrPort
	backlog int

	// Guarded by the lock of the Net.
	wake    sync.Cond
	closed  bool
	pending int // streams that wait for the third packet of their handshake
	queue   []*Stream
	faults  []error // what the next calls of Accept return
}

var _ transport.Listener = (*Listener)(nil)

// Accept implements transport.Listener.
func (l *Listener) Accept() (transport.Stream, error) {
	n := l.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case l.closed:
			return nil, opError("accept", netip.AddrPort{}, l.addr, net.ErrClosed)
		case len(l.faults) > 0:
			err := l.faults[0]
			l.faults = l.faults[1:]
			return nil, opError("accept", netip.AddrPort{}, l.addr, err)
		case len(l.queue) > 0:
			e := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			n.stats.Accepts++
			return e, nil
		}
		l.wake.Wait()
	}
}

// Addr implements transport.Listener.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Close implements transport.Listener. Streams that were not accepted are reset.
func (l *Listener) Close() error {
	n := l.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return opError("close", netip.AddrPort{}, l.addr, net.ErrClosed)
	}
	l.shut()
	return nil
}

// FailAccept makes the next times calls of Accept, a waiting one first, fail with err
// (EMFILE, ECONNABORTED, …). Connections stay in the queue.
func (l *Listener) FailAccept(err error, times int) {
	n := l.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for range times {
		l.faults = append(l.faults, err)
	}
	l.wake.Broadcast()
}

// Backlogged returns how many connections wait for Accept.
func (l *Listener) Backlogged() int {
	n := l.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(l.queue)
}

func (l *Listener) shut() {
	l.closed = true
	delete(l.m.listeners, l.addr)
	for _, e := range l.queue {
		e.abandon(true)
	}
	l.queue = nil
	if l.pending > 0 {
		for _, e := range l.m.sortedStreams() {
			if e.listener == l && e.state == synReceived {
				e.abandon(true)
			}
		}
	}
	l.wake.Broadcast()
}

// syn takes the first packet of a connection.
func (l *Listener) syn(c *Conn, pk packet) {
	if l.pending+len(l.queue) >= l.backlog {
		c.lost(Dialer, pk)
		return
	}
	l.pending++
	e := c.attach(Acceptor, synReceived)
	e.listener = l
	e.out.edge = pk.edge
	e.sendSYN()
}

// established takes a stream whose handshake is complete.
func (l *Listener) established(e *Stream) {
	l.pending--
	l.queue = append(l.queue, e)
	l.wake.Signal()
}
