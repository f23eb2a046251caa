package engine

import (
	"net/netip"
	"sync"
	"time"
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

	mu      sync.Mutex // guards the fields below; taken alone
	conns   []*conn
	paths   int         // number of paths that are up, of all connections
	forget  *time.Timer // runs while no path is up, to clear cong
	limiter limiter     // of QueueLimit events
}

// connections returns the peer's connections.
func (p *peer) connections() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[:len(p.conns):len(p.conns)] // only ever appended to
}

// event tells listeners something about the peer as a whole.
func (p *peer) event(ev Event) {
	ev.Remote = p.addr
	p.mu.Lock()
	send := p.limiter.admit(&ev)
	p.mu.Unlock()
	if send {
		p.e.events.emit(ev)
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
	if p.forget == nil && !p.e.isClosed() {
		p.forget = time.AfterFunc(p.e.cfg.MapTimeout, p.forgetMap)
	}
}

func (p *peer) forgetMap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paths == 0 {
		p.cong.replace(nil)
	}
}

// stopTimer ends the peer's timer for good.
func (p *peer) stopTimer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget != nil {
		p.forget.Stop()
	}
}
