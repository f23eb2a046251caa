package tcp

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testHost is an engine that checks numbered messages: from each peer the payloads must count
// 1, 2, 3, … for each pair of ports.
type testHost struct {
	t     testing.TB
	allow func(netip.Addr) bool

	mu      sync.Mutex
	peers   map[netip.Addr]*testPeer // guarded by mu
	refused []error                  // guarded by mu
}

type testPeer struct {
	h    *testHost
	link transport.Link

	mu        sync.Mutex
	seen      map[[2]uint16]uint64 // guarded by mu; last number
	bad       []string             // guarded by mu
	events    map[transport.EventKind]int
	errs      []error
	again     int // messages that a restart made to be sent again
	cut       int // messages that the last loss of a stream made to be sent again
	wantAgain int // cut when the restart was seen
	pongs     int
	maps      int
	remote    wire.CongMap
	local     wire.CongMap
	block     atomic.Bool // Deliver says that the node is full
	got       chan struct{}
}

func newTestHost(t testing.TB) *testHost {
	return &testHost{t: t, peers: map[netip.Addr]*testPeer{}}
}

func (h *testHost) NewLink(l transport.Link, local, remote netip.Addr) transport.Handler {
	p := &testPeer{h: h, link: l, seen: map[[2]uint16]uint64{}, events: map[transport.EventKind]int{}, got: make(chan struct{}, 1)}
	h.mu.Lock()
	h.peers[remote] = p
	h.mu.Unlock()
	return p
}

func (h *testHost) MayPeer(a netip.Addr) bool { return h.allow == nil || h.allow(a) }

func (h *testHost) Refused(local, remote netip.AddrPort, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, err)
}

func (h *testHost) peer(a netip.Addr) *testPeer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peers[a]
}

func (p *testPeer) Deliver(m transport.Inbound) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.SPort == 0 {
		p.pongs++
	} else if len(m.Payload) >= 8 {
		k := [2]uint16{m.SPort, m.DPort}
		n := binary.BigEndian.Uint64(m.Payload)
		if want := p.seen[k] + 1; n != want {
			p.bad = append(p.bad, fmt.Sprintf("%d->%d: got number %d, want %d (seq %d, retransmitted %v)", k[0], k[1], n, want, m.Seq, m.Retransmitted))
		}
		p.seen[k] = n
		for i, c := range m.Payload[8:] {
			if c != byte(n)+byte(i) {
				p.bad = append(p.bad, fmt.Sprintf("%d->%d: number %d is damaged at byte %d", k[0], k[1], n, i))
				break
			}
		}
	}
	if m.Buf != nil {
		m.Buf.Release()
	}
	select {
	case p.got <- struct{}{}:
	default:
	}
	return !p.block.Load()
}

func (p *testPeer) RemoteMap(m *wire.CongMap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.maps++
	p.remote = *m
}

func (p *testPeer) LocalMap(m *wire.CongMap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*m = p.local
}

func (p *testPeer) Event(e transport.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[e.Kind]++
	switch e.Kind {
	case transport.EventPeerRestarted:
		p.again += e.Count
		p.wantAgain = p.cut
	case transport.EventDown:
		p.cut = e.Count
	}
	if e.Err != nil {
		p.errs = append(p.errs, e.Err)
	}
}

func (p *testPeer) number(sport, dport uint16) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[[2]uint16{sport, dport}]
}

func (p *testPeer) count(k transport.EventKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[k]
}

func (p *testPeer) check(t testing.TB, who string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.bad {
		if i == 10 {
			t.Errorf("%s: and %d more", who, len(p.bad)-10)
			break
		}
		t.Errorf("%s: %s", who, b)
	}
}

// testOwner is a socket's send account.
type testOwner struct {
	mu   sync.Mutex
	cond sync.Cond
	msgs int // unacknowledged
	quit bool
}

func newTestOwner() *testOwner {
	o := &testOwner{}
	o.cond.L = &o.mu
	return o
}

func (o *testOwner) Released(msgs, bytes int) {
	o.mu.Lock()
	o.msgs -= msgs
	o.cond.Broadcast()
	o.mu.Unlock()
}

// take waits until fewer than limit messages are unacknowledged and counts one more. It is false when the owner gave up.
func (o *testOwner) take(limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.msgs >= limit && !o.quit {
		o.cond.Wait()
	}
	o.msgs++
	return !o.quit
}

// giveUp ends take.
func (o *testOwner) giveUp() {
	o.mu.Lock()
	o.quit = true
	o.cond.Broadcast()
	o.mu.Unlock()
}

func (o *testOwner) wait(msgs int) {
	o.mu.Lock()
	for o.msgs > msgs {
		o.cond.Wait()
	}
	o.mu.Unlock()
}

func (o *testOwner) unacked() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.msgs
}

// payload makes a numbered message.
func payload(buf []byte, n uint64, size int) []byte {
	buf = buf[:max(size, 8)]
	binary.BigEndian.PutUint64(buf, n)
	for i := range buf[8:] {
		buf[8+i] = byte(n) + byte(i)
	}
	return buf
}

// loopback returns two random addresses of 127/8, the smaller first.
func loopback() (netip.Addr, netip.Addr) {
	a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), byte(1 + rand.IntN(100))})
	b := a.As4()
	b[3] += 100
	return a, netip.AddrFrom4(b)
}
