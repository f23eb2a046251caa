package loop

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// lendMax is up to which size a payload is lent to the receiving handler, which
// copies it. A larger one is copied here, into a buffer that the handler keeps.
const lendMax = 2 << 10

// link is one direction of a connection: Send on it delivers to the handler of
// peer. Each sending goroutine counts as a path of its own: two senders may call
// the handler at the same time, and the messages of one sender stay in order.
type link struct {
	t             *Transport
	local, remote netip.Addr
	peer          *link             // the other end; the link itself when both addresses are the same
	handler       transport.Handler // of this end

	// known is set when both ends have their handlers: the host may announce a
	// map as soon as it knows of the link, which is before that.
	known atomic.Bool
	ready chan struct{} // closed when the link can be used

	received atomic.Uint64 // number of the last message to this end

	mapMu sync.Mutex // one map is brought to this end at a time, so that the last is the newest

	// stopped says that messages to this end wait, because its handler wants no
	// more or the link is closed. It changes under mu; a sender that misses the
	// change delivers one message more.
	stopped atomic.Bool
	// resumes counts the calls of Resume. A handler's "no more" is void when
	// Resume was called since before the handler was: the two may cross.
	resumes atomic.Uint32

	mu       sync.Mutex // guards the fields below; not held while a handler is called
	waiting  []message  // to this end, while stopped; the first waits longest
	draining bool       // somebody delivers what waits
	closed   bool
}

// message is one that waits.
type message struct {
	sport, dport uint16
	buf          *buffer.Buffer
	n            int
	owner        transport.Owner
}

func newLink(t *Transport, local, remote netip.Addr) *link {
	return &link{t: t, local: local, remote: remote, ready: make(chan struct{})}
}

// start introduces both ends to the host and to each other.
func (l *link) start() {
	ends := []*link{l, l.peer}
	if l.peer == l {
		ends = ends[:1]
	}
	for _, x := range ends {
		x.handler = x.t.host.NewLink(x, x.local, x.remote)
	}
	for _, x := range ends {
		x.known.Store(true)
	}
	for _, x := range ends {
		x.MapChanged() // as a connection that comes up begins with the map
		close(x.ready)
	}
}

// Send implements [transport.Link].
func (l *link) Send(m transport.Message) error {
	if m.DPort == wire.PingPort {
		l.pong(m.SPort)
		if m.Owner != nil {
			m.Owner.Released(1, len(m.Payload))
		}
		return nil
	}
	return l.peer.take(m)
}

// take brings a message to this end, or lets it wait.
func (l *link) take(m transport.Message) error {
	if l.stopped.Load() {
		if waits, err := l.enqueue(m); waits || err != nil {
			return err
		}
	}
	n := len(m.Payload)
	in := transport.Inbound{SPort: m.SPort, DPort: m.DPort, Payload: m.Payload}
	if n > lendMax {
		in.Buf = buffer.Get(n)
		in.Payload = in.Buf.B[:n]
		copy(in.Payload, m.Payload)
	}
	l.deliver(in, m.Owner, n)
	return nil
}

// deliver hands one message to this end's handler and acknowledges it. When the
// handler wants no more, messages wait from now on.
func (l *link) deliver(in transport.Inbound, owner transport.Owner, n int) {
	in.Seq = l.received.Add(1)
	resumes := l.resumes.Load()
	more := l.handler.Deliver(in)
	if owner != nil {
		owner.Released(1, n)
	}
	if more {
		return
	}
	l.mu.Lock()
	if l.resumes.Load() == resumes {
		l.stopped.Store(true)
	}
	l.mu.Unlock()
}

// enqueue lets m wait if this end is still stopped.
func (l *link) enqueue(m transport.Message) (waits bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, net.ErrClosed
	}
	if !l.stopped.Load() {
		return false, nil
	}
	n := len(m.Payload)
	b := buffer.Get(n)
	copy(b.B, m.Payload)
	l.waiting = append(l.waiting, message{m.SPort, m.DPort, b, n, m.Owner})
	return true, nil
}

// Resume implements [transport.Link]: what waits is delivered from here, in
// order, before anything new.
func (l *link) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumes.Add(1)
	if l.draining || !l.stopped.Load() || l.closed {
		return
	}
	l.draining = true
	defer func() { l.draining = false }()
	for len(l.waiting) > 0 {
		m := l.waiting[0]
		l.waiting[0] = message{}
		l.waiting = l.waiting[1:]
		resumes := l.resumes.Load()
		l.mu.Unlock()
		in := transport.Inbound{SPort: m.sport, DPort: m.dport, Payload: m.buf.B[:m.n], Buf: m.buf, Seq: l.received.Add(1)}
		more := l.handler.Deliver(in)
		if m.owner != nil {
			m.owner.Released(1, m.n)
		}
		l.mu.Lock()
		if !more && l.resumes.Load() == resumes {
			return
		}
	}
	l.waiting = nil
	l.stopped.Store(l.closed)
}

// pong answers a ping that was sent on this link, in the name of the other end:
// an empty message from port 0 (RDS spec section 14). A ping without a port to
// answer to is ignored. While this end wants no messages, pings are lost.
func (l *link) pong(port uint16) {
	if port == 0 || l.t.cfg.DisablePing {
		return
	}
	l.t.recvPing.Add(1)
	if l.stopped.Load() {
		return
	}
	l.t.sendPong.Add(1)
	l.deliver(transport.Inbound{SPort: wire.PingPort, DPort: port}, nil, 0)
}

// Cancel implements [transport.Link].
func (l *link) Cancel(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	p := l.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.waiting[:0]
	for _, m := range p.waiting {
		if m.owner != owner || !all && m.dport != dport {
			kept = append(kept, m)
			continue
		}
		msgs++
		bytes += m.n
		m.buf.Release()
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
	return msgs, bytes
}

// Pending implements [transport.Link].
func (l *link) Pending(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	p := l.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.waiting {
		if m.owner == owner && (all || m.dport == dport) {
			msgs++
			bytes += m.n
		}
	}
	return msgs, bytes
}

// Urge implements [transport.Link]: acknowledgements cannot come sooner.
func (l *link) Urge() {}

// MapChanged implements [transport.Link]: the other end has the map on return.
func (l *link) MapChanged() {
	if !l.known.Load() {
		return // start will see to it
	}
	p := l.peer
	p.mapMu.Lock()
	defer p.mapMu.Unlock()
	m := maps.Get().(*wire.CongMap)
	l.handler.LocalMap(m)
	p.handler.RemoteMap(m)
	maps.Put(m)
}

// maps lends the memory for a map on its way. Links keep none: most never have a
// congested port.
var maps = sync.Pool{New: func() any { return new(wire.CongMap) }}

// Info implements [transport.Link].
func (l *link) Info() transport.LinkInfo {
	queued, bytes := 0, 0
	l.peer.mu.Lock()
	for _, m := range l.peer.waiting {
		queued++
		bytes += m.n
	}
	l.peer.mu.Unlock()
	return transport.LinkInfo{
		Local: l.local, Remote: l.remote, Transport: "loopback", Own: true, Known: true,
		Paths: []transport.PathInfo{{
			State: "UP", Acked: l.peer.received.Load(), NextTx: l.peer.received.Load() + 1, NextRx: l.received.Load() + 1, Queued: queued, QueuedBytes: bytes,
		}},
	}
}

// close forgets what waits and lets nothing in any more.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.stopped.Store(true)
	for _, m := range l.waiting {
		m.buf.Release()
	}
	l.waiting = nil
}
