package engine

import (
	"sync"
	"sync/atomic"
)

// overhead is what a queued message counts besides its payload, in bytes: its
// entry in the queue and its share of unused memory. Without it a flood of empty
// messages would be free.
const overhead = 128

// limits bounds what the node holds unread for all peers together, and what
// each may hold.
//
// A peer may hold at most peerMax, and at most roomFactor times what is still
// free of nodeMax. The second makes room for newcomers by itself: n peers that
// would take everything end up with equal shares of 8n/(8n+1) of it together
// (dynamic thresholds as in shared-memory switches: Choudhury and Hahne, 1998).
// A peer that holds nothing may always deliver, so that nobody depends on other
// applications' reading.
type limits struct {
	peerMax, nodeMax int64
	// quantum is by how much a peer's account may differ from what held has of
	// it, so that not every message touches the counter that all peers share.
	// All differences together are at most a quarter of nodeMax.
	quantum int64

	held    atomic.Int64 // bytes held for all peers, in quanta
	stopped atomic.Int32 // length of list

	stops atomic.Uint64 // counter

	mu   sync.Mutex
	list map[*peer]struct{} // peers that are not read
}

const roomFactor = 8

func newLimits(peerMax, nodeMax int64, maxPeers int) *limits {
	return &limits{
		peerMax: peerMax, nodeMax: nodeMax, quantum: nodeMax / 4 / int64(maxPeers),
		list: make(map[*peer]struct{}),
	}
}

// peerMaxNow returns what one peer may hold at this moment.
func (l *limits) peerMaxNow() int64 {
	free := max(l.nodeMax-l.held.Load(), 0)
	if free > l.peerMax/roomFactor {
		return l.peerMax
	}
	return free * roomFactor
}

// holding is a peer's account of what it has unread, in bytes with overhead.
type holding struct {
	bytes    atomic.Int64
	reported atomic.Int64 // what of it is in limits.held
	stopped  atomic.Bool  // changes under limits.mu
}

// report brings the shared account up to date if that is due, and says whether
// it did. It looks again after each change, so that the last of several calls at
// the same time leaves it right.
func (l *limits) report(h *holding) (changed bool) {
	for {
		old, bytes := h.reported.Load(), h.bytes.Load()
		if d := bytes - old; d <= l.quantum && d >= -l.quantum {
			return changed
		}
		if h.reported.CompareAndSwap(old, bytes) {
			l.held.Add(bytes - old)
			changed = true
		}
	}
}

// hold enters n bytes. It may be called with a socket's lock held.
func (p *peer) hold(n int) {
	p.holding.bytes.Add(int64(n))
	p.e.limits.report(&p.holding)
}

// full says whether the peer holds as much as it may, and stops it then: its
// links have to be told "no more", and will be resumed.
func (p *peer) full() bool {
	h := &p.holding
	if h.stopped.Load() {
		return true
	}
	l := p.e.limits
	bytes := h.bytes.Load()
	if bytes <= l.peerMaxNow() {
		return false
	}
	l.mu.Lock()
	stops := !h.stopped.Load()
	if stops {
		h.stopped.Store(true)
		l.list[p] = struct{}{}
		l.stopped.Add(1)
	}
	l.mu.Unlock()
	if stops {
		l.stops.Add(1)
		p.tellLimited()
		// The queue may have been read empty since bytes was looked at, with
		// nobody left to resume the peer.
		p.resumeIfRoom()
	}
	return h.stopped.Load()
}

// release takes n bytes off the account. Links may be resumed from here: no lock
// may be held.
func (p *peer) release(n int) {
	l := p.e.limits
	p.holding.bytes.Add(-int64(n))
	reported := l.report(&p.holding)
	if l.stopped.Load() == 0 {
		return
	}
	p.resumeIfRoom()
	if reported {
		// The free room has grown, perhaps for others.
		for _, q := range l.peers() {
			q.resumeIfRoom()
		}
	}
}

// peers returns the stopped peers.
func (l *limits) peers() []*peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	ps := make([]*peer, 0, len(l.list))
	for p := range l.list {
		ps = append(ps, p)
	}
	return ps
}

// resumeIfRoom lets the peer be read again once it holds no more than half of
// what it may, so that it does not stop and go with every message.
func (p *peer) resumeIfRoom() {
	h, l := &p.holding, p.e.limits
	if !h.stopped.Load() {
		return
	}
	if h.bytes.Load() > l.peerMaxNow()/2 {
		return
	}
	l.mu.Lock()
	resumes := h.stopped.Load()
	if resumes {
		h.stopped.Store(false)
		delete(l.list, p)
		l.stopped.Add(-1)
	}
	l.mu.Unlock()
	if !resumes {
		return
	}
	p.tellLimited()
	for _, c := range p.connections() {
		c.link.Resume()
	}
}

// tellLimited tells listeners whether the peer is read.
func (p *peer) tellLimited() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed(&p.limited)
}
