package engine

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTransport joins engines in memory. Its links deliver and acknowledge at once,
// unless they are told to hold.
type fakeTransport struct {
	host transport.Host

	mu     sync.Mutex
	others map[netip.Addr]*fakeTransport // by the addresses of other engines
	links  map[[2]netip.Addr]*fakeLink
	grace  time.Duration // given to Close
	closed bool
}

type fakeLink struct {
	t             *fakeTransport
	local, remote netip.Addr
	handler       transport.Handler

	mu      sync.Mutex
	hold    bool       // keep messages: neither deliver nor acknowledge
	unacked []fakeSent // held ones
	maps    int        // calls of MapChanged
	resumes int
	urges   int
	nextSeq uint64
	acked   uint64
	tcp     uint64 // bytes that the peer's TCP acknowledged
	closed  bool
}

type fakeSent struct {
	transport.Message
	payload []byte
}

// fakeEngine is an engine on a fakeTransport.
type fakeEngine struct {
	*Engine
	t *fakeTransport
}

// newFake makes an engine for the addresses, closed at the end of the test.
func newFake(t testing.TB, cfg Config, addrs ...string) *fakeEngine {
	t.Helper()
	for _, a := range addrs {
		cfg.Addrs = append(cfg.Addrs, netip.MustParseAddr(a))
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeTransport{host: e, others: map[netip.Addr]*fakeTransport{}, links: map[[2]netip.Addr]*fakeLink{}}
	e.Start(f)
	t.Cleanup(func() {
		for _, s := range e.openSockets() {
			s.Close() // what is held would keep Close waiting
		}
		e.Close()
	})
	return &fakeEngine{e, f}
}

// join lets two engines reach each other.
func join(a, b *fakeEngine) {
	for _, x := range a.Addrs() {
		b.t.others[x] = a.t
	}
	for _, x := range b.Addrs() {
		a.t.others[x] = b.t
	}
}

func (t *fakeTransport) Link(local, remote netip.Addr) (transport.Link, error) {
	return t.link(local, remote)
}

func (t *fakeTransport) link(local, remote netip.Addr) (*fakeLink, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, net.ErrClosed
	}
	k := [2]netip.Addr{local, remote}
	l := t.links[k]
	if l == nil {
		l = &fakeLink{t: t, local: local, remote: remote, nextSeq: 1}
		l.handler = t.host.NewLink(l, local, remote)
		t.links[k] = l
	}
	return l, nil
}

// to returns the link between two addresses.
func (e *fakeEngine) to(local, remote string) *fakeLink {
	l, err := e.t.link(netip.MustParseAddr(local), netip.MustParseAddr(remote))
	if err != nil {
		panic(err)
	}
	return l
}

// holding makes the link keep what is sent.
func (l *fakeLink) holding() *fakeLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = true
	return l
}

func (t *fakeTransport) Links(f func(transport.Link)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.links {
		f(l)
	}
}

func (t *fakeTransport) Close(grace time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.grace = true, grace
	for _, l := range t.links {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
	}
	return nil
}

// peer is the link at the other end, nil if there is no such engine.
func (l *fakeLink) peer() *fakeLink {
	t := l.t.others[l.remote]
	if t == nil {
		return nil
	}
	p, err := t.link(l.remote, l.local)
	if err != nil {
		return nil
	}
	return p
}

func (l *fakeLink) Send(m transport.Message) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	seq := l.nextSeq
	l.nextSeq++
	if l.hold {
		l.unacked = append(l.unacked, fakeSent{m, append([]byte(nil), m.Payload...)})
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	if m.DPort == wire.PingPort {
		l.handler.Deliver(transport.Inbound{DPort: m.SPort})
	} else if p := l.peer(); p != nil {
		p.handler.Deliver(transport.Inbound{SPort: m.SPort, DPort: m.DPort, Payload: m.Payload, Seq: seq})
	}
	if m.Owner != nil {
		m.Owner.Released(1, len(m.Payload))
	}
	return nil
}

// ack acknowledges the n longest held messages.
func (l *fakeLink) ack(n int) {
	for range n {
		l.mu.Lock()
		m := l.unacked[0]
		l.unacked = l.unacked[1:]
		l.acked++
		l.mu.Unlock()
		m.Owner.Released(1, len(m.payload))
	}
}

func (l *fakeLink) sent() []fakeSent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unacked
}

func (l *fakeLink) Cancel(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var kept []fakeSent
	for _, m := range l.unacked {
		if m.Owner == owner && (all || m.DPort == dport) {
			msgs++
			bytes += len(m.payload)
		} else {
			kept = append(kept, m)
		}
	}
	l.unacked = kept
	return msgs, bytes
}

func (l *fakeLink) Pending(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.unacked {
		if m.Owner == owner && (all || m.DPort == dport) {
			msgs++
			bytes += len(m.payload)
		}
	}
	return msgs, bytes
}

func (l *fakeLink) Urge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.urges++
}

func (l *fakeLink) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resumes++
}

func (l *fakeLink) resumed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resumes
}

func (l *fakeLink) MapChanged() {
	l.mu.Lock()
	l.maps++
	l.mu.Unlock()
	if p := l.peer(); p != nil {
		var m wire.CongMap
		l.handler.LocalMap(&m)
		p.handler.RemoteMap(&m)
	}
}

// localMap is what the link would send as its map.
func (l *fakeLink) localMap() *wire.CongMap {
	m := new(wire.CongMap)
	l.handler.LocalMap(m)
	return m
}

func (l *fakeLink) Info() transport.LinkInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return transport.LinkInfo{Local: l.local, Remote: l.remote, Transport: "fake",
		Paths: []transport.PathInfo{{State: "UP", NextTx: l.nextSeq, DroppedDuplicates: 3,
			Unacked: len(l.unacked), Acked: l.acked, StreamAcked: l.tcp}}}
}

// congest is a map with these ports congested.
func congest(ports ...uint16) *wire.CongMap {
	m := new(wire.CongMap)
	for _, p := range ports {
		m.Set(p)
	}
	return m
}

func bind(t testing.TB, e *Engine, addr string) *Socket {
	t.Helper()
	s, err := e.Bind(netip.MustParseAddrPort(addr), nil)
	if err != nil {
		t.Fatalf("bind %s: %v", addr, err)
	}
	return s
}

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// wantErr checks err against a sentinel; nil wants success.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func inbound(port uint16, n int) transport.Inbound {
	return transport.Inbound{SPort: 1, DPort: port, Payload: make([]byte, n)}
}
