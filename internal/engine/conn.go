package engine

import (
	"io"
	"net/netip"
	"sync/atomic"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// conn is the engine's side of one link: the connection of a local and a remote
// address. It implements [transport.Handler]. The paths of a link call it at the
// same time.
type conn struct {
	e      *Engine
	link   transport.Link
	local  *local
	peer   *peer
	remote netip.Addr // peer.addr

	// usable is set when a transport has returned the link. Between that and
	// NewLink, which makes the conn, the link may not be able to send yet.
	usable atomic.Bool

	noSock, deadSock atomic.Uint64 // messages dropped: no socket on the port, or just closed

	// Guarded by peer.mu.
	up      uint64  // set of paths that are up
	mapped  bool    // the peer's map has come since a path last came up
	limiter limiter // of events

	watch watch
}

// Deliver implements [transport.Handler].
func (c *conn) Deliver(m transport.Inbound) (more bool) {
	s := c.local.ports.lookup(m.DPort)
	if s == nil {
		// Nobody is told, as in the kernel (defect D16), but it is counted.
		c.noSock.Add(1)
		c.drop(&m)
	} else if !s.deliver(c, &m) {
		c.deadSock.Add(1)
		c.drop(&m)
	}
	return !c.peer.full()
}

func (c *conn) drop(m *transport.Inbound) {
	if m.Buf != nil {
		m.Buf.Release()
	}
	if m.Reserved {
		c.peer.release(len(m.Payload))
	}
}

// Reserve implements [transport.Reserver]. Like everything a peer sends, what it has
// only begun to send may pass its limit by one message, and no more.
func (c *conn) Reserve(n int) bool {
	if c.peer.full() {
		return false
	}
	c.peer.hold(n)
	return true
}

// Unreserve implements [transport.Reserver].
func (c *conn) Unreserve(n int) { c.peer.release(n) }

// RemoteMap implements [transport.Handler].
func (c *conn) RemoteMap(m *wire.CongMap) {
	c.e.count.mapsReceived.Add(1)
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.mapped = true
	c.peer.replaceMap(m)
}

// LocalMap implements [transport.Handler].
func (c *conn) LocalMap(m *wire.CongMap) { c.local.cong.copyTo(m) }

// Event implements [transport.Handler].
func (c *conn) Event(e transport.Event) {
	ev := Event{
		At: e.At, Local: c.local.addr, Remote: c.remote, Path: e.Path, Err: e.Err, Count: e.Count,
		Own: e.Own, Harmless: e.Harmless,
	}
	if e.Err == io.EOF {
		ev.Err = nil // the peer closed in good order
	}
	path := uint64(1) << (e.Path & 63)
	p, n := c.peer, &c.e.count
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case transport.EventUp:
		c.mapped = false
		first := c.up == 0
		if c.up&path == 0 {
			c.up |= path
			p.pathsChanged(+1)
		}
		c.tell(ev, PathUp)
		if first {
			c.tell(ev, PeerUp)
		}
	case transport.EventDown:
		n.connReset.Add(1)
		if c.up&path != 0 {
			c.up &^= path
			p.pathsChanged(-1)
		}
		c.tell(ev, PathDown)
		if c.up == 0 {
			c.tell(ev, PeerDown)
		}
	case transport.EventPeerRestarted:
		n.peerRestarts.Add(1)
		// What the old process said about its ports is void. If a map has come
		// on the new connection, it is the new process's already: the map
		// precedes the handshake from which a restart is seen.
		if !c.mapped {
			p.replaceMap(nil)
		}
		c.tell(ev, PeerRestarted)
	case transport.EventPeerKnown:
		c.tell(ev, PeerKnown)
	case transport.EventProtocol:
		n.protocolErrors.Add(1)
		c.tell(ev, ProtocolError)
	case transport.EventRefused:
		n.refused.Add(1)
		c.tell(ev, Refused)
	case transport.EventDialFailed:
		n.dialsFailed.Add(1)
		c.tell(ev, DialFailed)
	case transport.EventPingLimit:
		n.pingsUnanswered.Add(1)
		c.tell(ev, PingLimit)
	}
}

// tell emits an event unless there were too many of its kind; peer.mu is held.
func (c *conn) tell(ev Event, kind EventKind) {
	ev.Kind = kind
	if c.limiter.admit(&ev) {
		c.e.events.emit(ev)
	}
}
