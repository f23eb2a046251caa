package tcp

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// recorder wraps a Network and remembers the live streams.
type recorder struct {
	transport.Network
	mu     sync.Mutex
	live   map[transport.Stream]bool
	dialed int
}

func (r *recorder) dials() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialed
}

type recordedListener struct {
	transport.Listener
	r *recorder
}

type recordedStream struct {
	transport.Stream
	r *recorder
}

func record(n transport.Network) *recorder {
	return &recorder{Network: n, live: map[transport.Stream]bool{}}
}

func (r *recorder) add(s transport.Stream, err error) (transport.Stream, error) {
	if err != nil {
		return nil, err
	}
	rs := &recordedStream{s, r}
	r.mu.Lock()
	r.live[rs] = true
	r.mu.Unlock()
	return rs, nil
}

func (s *recordedStream) Close() error {
	s.r.mu.Lock()
	delete(s.r.live, s)
	s.r.mu.Unlock()
	return s.Stream.Close()
}

func (r *recorder) Listen(a netip.AddrPort) (transport.Listener, error) {
	l, err := r.Network.Listen(a)
	if err != nil {
		return nil, err
	}
	return recordedListener{l, r}, nil
}

func (l recordedListener) Accept() (transport.Stream, error) { return l.r.add(l.Listener.Accept()) }

func (r *recorder) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (transport.Stream, error) {
	r.mu.Lock()
	r.dialed++
	r.mu.Unlock()
	return r.add(r.Network.Dial(ctx, local, remote, path, attempt))
}

// reset aborts one live stream and says whether there was one.
func (r *recorder) reset() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.live {
		s.Reset()
		return true
	}
	return false
}

func newPair(t testing.TB, cfg Config) (a, b *Transport, ha, hb *testHost, ra, rb *recorder) {
	t.Helper()
	la, lb := loopback()
	ra, rb = record(&OSNetwork{}), record(&OSNetwork{})
	ha, hb = newTestHost(t), newTestHost(t)
	cfg.Addrs, cfg.Network = []netip.Addr{la}, ra
	var err error
	if a, err = New(cfg, ha); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(time.Second) })
	cfg.Addrs, cfg.Network = []netip.Addr{lb}, rb
	if b, err = New(cfg, hb); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(time.Second) })
	return a, b, ha, hb, ra, rb
}

func (t *Transport) addr() netip.Addr { return t.cfg.Addrs[0] }

func mustLink(t testing.TB, from, to *Transport) transport.Link {
	t.Helper()
	l, err := from.Link(from.addr(), to.addr())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestFirstMessageBothRoles(t *testing.T) {
	for _, larger := range []bool{false, true} {
		a, b, ha, hb, _, _ := newPair(t, Config{})
		hto := hb
		if larger {
			a, b, hto = b, a, ha
		}
		o := newTestOwner()
		l := mustLink(t, a, b)
		var buf [1 << 20]byte
		sizes := []int{8, 9, 100, 4096, 16383, 16384, 65536, 1 << 20, 8}
		for i, n := range sizes {
			o.take(1000)
			if err := l.Send(transport.Message{SPort: 5001, DPort: 5002, Payload: payload(buf[:], uint64(i+1), n), Owner: o}); err != nil {
				t.Fatal(err)
			}
		}
		o.wait(0)
		p := hto.peer(a.addr())
		if got := p.number(5001, 5002); got != uint64(len(sizes)) {
			t.Errorf("larger %v: %d messages arrived, want %d", larger, got, len(sizes))
		}
		p.check(t, "receiver")
	}
}

// TestResets: numbered messages in both directions while connections are reset at random on either
// side: none lost, doubled or reordered.
func TestResets(t *testing.T) {
	a, b, ha, hb, ra, rb := newPair(t, Config{})
	const count, window = 30000, 400
	var wg sync.WaitGroup
	stop := make(chan struct{})
	send := func(from, to *Transport, sport uint16) {
		o := newTestOwner()
		l := mustLink(t, from, to)
		var buf [40000]byte
		for i := uint64(1); i <= count; i++ {
			o.take(window)
			size := 8 + rand.IntN(1024)
			if i%100 == 0 {
				size = 30000
			}
			if err := l.Send(transport.Message{SPort: sport, DPort: 9, Payload: payload(buf[:], i, size), Owner: o, AckSoon: o.unacked() > window/2}); err != nil {
				t.Error(err)
				return
			}
		}
		o.wait(0)
	}
	wg.Go(func() { send(a, b, 1000) })
	wg.Go(func() { send(a, b, 1001) })
	wg.Go(func() { send(b, a, 2000) })
	resets := 0
	var kw sync.WaitGroup
	kw.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
			}
			r := ra
			if i%2 == 1 {
				r = rb
			}
			if r.reset() {
				resets++
			}
		}
	})
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Errorf("stuck: a %+v\nb %+v", mustLink(t, a, b).Info(), mustLink(t, b, a).Info())
	}
	close(stop)
	kw.Wait()
	pa, pb := ha.peer(b.addr()), hb.peer(a.addr())
	pa.check(t, "a")
	pb.check(t, "b")
	for _, n := range []uint64{pb.number(1000, 9), pb.number(1001, 9), pa.number(2000, 9)} {
		if n != count {
			t.Errorf("last number %d, want %d", n, count)
		}
	}
	info := mustLink(t, a, b).Info()
	t.Logf("resets %d, streams lost %d, retransmissions %d, duplicates dropped by b %d", resets, info.Paths[0].Resets,
		info.Paths[0].Retransmissions, mustLink(t, b, a).Info().Paths[0].DroppedDuplicates)
	if resets == 0 {
		t.Error("no resets")
	}
}

// TestDuelReal is TestDuel over the system's TCP.
func TestDuelReal(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	crossed := 0
	for r := range rounds {
		a, b, ha, hb, ra, rb := newPair(t, Config{})
		la, lb := mustLink(t, a, b), mustLink(t, b, a)
		oa, ob := newTestOwner(), newTestOwner()
		start := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { <-start; stream(la, oa, 1, 1, 3, 10, func() int { return 100 }); oa.wait(0) })
		wg.Go(func() { <-start; stream(lb, ob, 2, 1, 3, 10, func() int { return 100 }); ob.wait(0) })
		close(start)
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("round %d: stuck\n%+v\n%+v", r, la.Info(), lb.Info())
		}
		pa, pb := ha.peer(b.addr()), hb.peer(a.addr())
		pa.check(t, "a")
		pb.check(t, "b")
		if n, m := pb.number(1, 9), pa.number(2, 9); n != 3 || m != 3 {
			t.Fatalf("round %d: %d and %d messages arrived, want 3 and 3", r, n, m)
		}
		if pa.count(transport.EventUp) != 1 || pb.count(transport.EventUp) != 1 || pa.count(transport.EventDown)+pb.count(transport.EventDown) != 0 {
			t.Fatalf("round %d: more than one connection carried data: %v %v", r, pa.events, pb.events)
		}
		if rb.dials() > 0 {
			crossed++
		}
		_ = ra
		a.Close(time.Second)
		b.Close(time.Second)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rounds, the larger side dialled in %d of them", rounds, crossed)
}
