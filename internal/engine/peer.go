package engine

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rds-go/rds/internal/wire"
)

// peer is one remote address (or a local one, as a destination): what it says
// about its ports and what it has unread here. It lives as long as the node.
type peer struct {
	e    *Engine
	addr netip.Addr

	// cong is the peer's congestion map. All its connections bring the same
	// one.
	cong congMap
	_    [64]byte // what receiving changes is kept apart from what sending reads

	holding holding

	mu     sync.Mutex // guards the fields below; taken alone
	conns  []*conn
	paths  int         // number of paths that are up, of all connections
	forget *time.Timer // runs while no path is up, to clear cong
	ended  bool        // the engine is closed: no timer is started any more

	limited   flap // told of holding.stopped
	congested flap // told of cong
}

func newPeer(e *Engine, addr netip.Addr) *peer {
	return &peer{
		e: e, addr: addr,
		limited: flap{on: QueueLimit, off: QueueResumed, state: func(p *peer) (bool, int) {
			return p.holding.stopped.Load(), int(p.holding.bytes.Load())
		}},
		congested: flap{on: PeerCongested, off: PeerClear, state: func(p *peer) (bool, int) {
			n := int(p.cong.ones.Load())
			return n > 0, n
		}},
	}
}

// connections returns the peer's connections.
func (p *peer) connections() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[:len(p.conns):len(p.conns)] // only ever appended to
}

// replaceMap takes what the peer says about its ports; nil: nothing, any more. p.mu
// is held.
func (p *peer) replaceMap(m *wire.CongMap) {
	if p.cong.replace(m) {
		p.changed(&p.congested)
	}
}

// pathsChanged keeps the number of paths that are up. While there is none for
// Config.MapTimeout, the peer's map is forgotten, so that senders are not blocked
// for ever by a peer that is gone (defect D12); p.mu is held.
func (p *peer) pathsChanged(by int) {
	p.paths += by
	if p.paths > 0 {
		if p.forget != nil {
			p.forget.Stop()
			p.forget = nil
		}
		return
	}
	if p.forget == nil && !p.ended {
		p.forget = time.AfterFunc(p.e.cfg.MapTimeout, p.forgetMap)
	}
}

func (p *peer) forgetMap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paths == 0 {
		p.replaceMap(nil)
	}
}

// stopTimers ends the timers of the peer and its connections for good.
func (p *peer) stopTimers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.forget != nil {
		p.forget.Stop()
	}
	p.limited.stop(p)
	p.congested.stop(p)
	for _, c := range p.conns {
		c.watch.ended = true
		c.disarm()
	}
}
