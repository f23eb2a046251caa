package tcp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/simnet"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

var (
	simA = netip.MustParseAddr("10.0.0.1")
	simB = netip.MustParseAddr("10.0.0.2")
)

// node is a Transport on a simulated host.
type node struct {
	*Transport
	host *testHost
	sim  *simnet.Host
}

func simNode(t testing.TB, net *simnet.Net, a netip.Addr, mod func(*Config)) *node {
	t.Helper()
	n := &node{host: newTestHost(t), sim: net.Host(a)}
	cfg := Config{Addrs: []netip.Addr{a}, Network: n.sim}
	if mod != nil {
		mod(&cfg)
	}
	var err error
	if n.Transport, err = New(cfg, n.host); err != nil {
		t.Fatal(err)
	}
	return n
}

// stream sends numbered messages first to last, at most window of them unacknowledged.
func stream(l transport.Link, o *testOwner, sport uint16, first, last uint64, window int, size func() int) {
	var buf [1 << 17]byte
	for i := first; i <= last; i++ {
		if !o.take(window) {
			return
		}
		if err := l.Send(transport.Message{SPort: sport, DPort: 9, Payload: payload(buf[:], i, size()), Owner: o, AckSoon: o.unacked() > window/2}); err != nil {
			return
		}
	}
}

// TestDuel: two nodes whose first sends start at the same instant, under all kinds of delays: one
// connection survives, every message arrives once.
func TestDuel(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	for r := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(r), 1))
			net := simnet.New(simnet.Options{Seed: uint64(r), Link: simnet.Link{Delay: time.Duration(rng.IntN(200)) * time.Millisecond, Jitter: time.Duration(rng.IntN(50)) * time.Millisecond}})
			defer net.Close()
			a, b := simNode(t, net, simA, nil), simNode(t, net, simB, nil)
			defer a.Close(time.Second)
			defer b.Close(time.Second)
			la, lb := mustLink(t, a.Transport, b.Transport), mustLink(t, b.Transport, a.Transport)
			oa, ob := newTestOwner(), newTestOwner()
			go stream(la, oa, 1, 1, 3, 10, func() int { return 100 })
			go stream(lb, ob, 2, 1, 3, 10, func() int { return 100 })
			time.Sleep(20 * time.Second)
			pa, pb := a.host.peer(simB), b.host.peer(simA)
			pa.check(t, "a")
			pb.check(t, "b")
			if n, m := pb.number(1, 9), pa.number(2, 9); n != 3 || m != 3 {
				t.Fatalf("round %d: %d and %d messages arrived, want 3 and 3", r, n, m)
			}
			if oa.unacked() != 0 || ob.unacked() != 0 {
				t.Fatalf("round %d: %d and %d messages unacknowledged", r, oa.unacked(), ob.unacked())
			}
			alive := 0
			for _, c := range net.ConnsBetween(simA, simB) {
				if c.Established() {
					alive++
					if c.Addr(simnet.Dialer).Addr() != simA {
						t.Errorf("round %d: the surviving connection was dialled by the larger side", r)
					}
				}
			}
			if alive != 1 {
				t.Fatalf("round %d: %d connections survive, want 1", r, alive)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestPeerStartsLater: messages sent to a peer that starts five seconds later arrive, in order, without
// another call of the sender; in both roles.
func TestPeerStartsLater(t *testing.T) {
	for _, from := range []netip.Addr{simA, simB} {
		to := simB
		if from == simB {
			to = simA
		}
		synctest.Test(t, func(t *testing.T) {
			net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})
			defer net.Close()
			a := simNode(t, net, from, nil)
			defer a.Close(time.Second)
			l, _ := a.Link(from, to)
			o := newTestOwner()
			stream(l, o, 1, 1, 50, 100, func() int { return 2000 })
			time.Sleep(5 * time.Second)
			b := simNode(t, net, to, nil)
			defer b.Close(time.Second)
			time.Sleep(3 * time.Second)
			if n := b.host.peer(from).number(1, 9); n != 50 {
				t.Errorf("from %v: %d messages arrived within 3 s, want 50", from, n)
			}
			b.host.peer(from).check(t, "receiver")
			if o.unacked() != 0 {
				t.Errorf("%d messages unacknowledged", o.unacked())
			}
		})
	}
}

// TestChaos: numbered messages in both directions over connections that are cut at any byte, reset,
// stalled and written in pieces: none lost, doubled or reordered.
func TestChaos(t *testing.T) { testChaos(t, nil) }

// TestChaosKernelRules is the same between two nodes that take each other for kernels: TCP
// acknowledges, and the filter looks at flagged numbers only.
func TestChaosKernelRules(t *testing.T) {
	testChaos(t, func(c *Config) { c.Handshake = wire.Handshake{NPaths: 1, SportIdx: true} })
}

func testChaos(t *testing.T, mod func(*Config)) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	var resets, again uint64
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 2))
			net := simnet.New(simnet.Options{
				Seed:       uint64(seed),
				Link:       simnet.Link{Delay: time.Duration(rng.IntN(3000)) * time.Microsecond, Jitter: time.Millisecond},
				SendBuffer: 1000 + rng.IntN(100_000), RecvBuffer: 1000 + rng.IntN(100_000),
				Chaos: simnet.Chaos{ShortWrite: 0.2, Cut: 0.8, CutBytes: int64(1000 + rng.IntN(100_000)), Silent: seed%4 == 0},
			})
			defer net.Close()
			a, b := simNode(t, net, simA, mod), simNode(t, net, simB, mod)
			defer a.Close(time.Second)
			defer b.Close(time.Second)
			la, lb := mustLink(t, a.Transport, b.Transport), mustLink(t, b.Transport, a.Transport)
			oa, ob := newTestOwner(), newTestOwner()
			count := uint64(300)
			size := func() int {
				if rand.IntN(20) == 0 {
					return 8 + rand.IntN(60000)
				}
				return 8 + rand.IntN(2000)
			}
			done := make(chan struct{}, 2)
			go func() { stream(la, oa, 1, 1, count, 40, size); oa.wait(0); done <- struct{}{} }()
			go func() { stream(lb, ob, 2, 1, count, 40, size); ob.wait(0); done <- struct{}{} }()
			for range 2 {
				select {
				case <-done:
				case <-time.After(2 * time.Hour):
					t.Fatalf("seed %d: stuck\n%+v\n%+v", seed, la.Info(), lb.Info())
				}
			}
			pa, pb := a.host.peer(simB), b.host.peer(simA)
			pa.check(t, fmt.Sprintf("seed %d a", seed))
			pb.check(t, fmt.Sprintf("seed %d b", seed))
			if n, m := pb.number(1, 9), pa.number(2, 9); n != count || m != count {
				t.Errorf("seed %d: %d and %d messages arrived, want %d", seed, n, m, count)
			}
			for _, l := range []transport.Link{la, lb} {
				p := l.Info().Paths[0]
				resets, again = resets+p.Resets, again+p.Retransmissions
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d seeds, %d streams lost, %d retransmissions", seeds, resets, again)
	if resets == 0 || again == 0 {
		t.Error("the faults did not happen")
	}
}

// TestRestart: a process dies in mid-stream, in three ways, and another one takes its place, even with a
// clock that went back. The peer's messages reach the new process from the first that the old one had not acknowledged;
// the event says how many go again; what the new process sends arrives although its numbers are lower.
func TestRestart(t *testing.T) {
	for _, how := range []simnet.How{simnet.Exit, simnet.Abort, simnet.PowerOff} {
		for _, victim := range []netip.Addr{simA, simB} {
			for _, step := range []time.Duration{0, -time.Hour} {
				t.Run(fmt.Sprintf("%v/%v/%v", how, victim, step), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testRestart(t, how, victim, step) })
				})
			}
		}
	}
}

func testRestart(t *testing.T, how simnet.How, victim netip.Addr, step time.Duration) {
	other := simA
	if victim == simA {
		other = simB
	}
	net := simnet.New(simnet.Options{Link: simnet.Link{Delay: 2 * time.Millisecond}})
	defer net.Close()
	v, o := simNode(t, net, victim, nil), simNode(t, net, other, nil)
	defer o.Close(time.Second)
	lo, lv := mustLink(t, o.Transport, v.Transport), mustLink(t, v.Transport, o.Transport)
	owner, vowner := newTestOwner(), newTestOwner()
	go stream(lo, owner, 1, 1, 2000, 50, func() int { return 500 })
	go stream(lv, vowner, 2, 1, 1_000_000, 50, func() int { return 500 })
	time.Sleep(30 * time.Millisecond)
	v.sim.Kill(how)
	vowner.giveUp()
	v.Close(0)
	old := v.host.peer(other)
	time.Sleep(2 * time.Second)
	before := old.number(1, 9)
	w := simNode(t, net, victim, func(c *Config) { c.FirstSeq = uint64(time.Now().Add(step).UnixMicro()) })
	defer w.Close(time.Second)
	// The new process sends at once, from 1.
	lw := mustLink(t, w.Transport, o.Transport)
	wowner := newTestOwner()
	po := o.host.peer(victim)
	po.mu.Lock()
	last := po.seen[[2]uint16{2, 9}]
	delete(po.seen, [2]uint16{2, 9})
	po.mu.Unlock()
	go stream(lw, wowner, 2, 1, 500, 50, func() int { return 500 })
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		if owner.unacked() == 0 && wowner.unacked() == 0 && po.number(2, 9) == 500 && w.host.peer(other).number(1, 9) == 2000 {
			break
		}
	}
	if last == 0 || before == 0 {
		t.Fatalf("nothing flowed before the restart: %d, %d", last, before)
	}
	po.check(t, "other")
	if n := po.number(2, 9); n != 500 {
		t.Errorf("other got %d messages of the new process, want 500", n)
	}
	nw := w.host.peer(other)
	if n := nw.number(1, 9); n != 2000 {
		t.Errorf("new process got messages up to %d, want 2000", n)
	}
	// Its first message may be any up to the one after the last that the old process took.
	nw.mu.Lock()
	bad := nw.bad
	nw.mu.Unlock()
	if len(bad) > 1 {
		t.Errorf("new process: %v", bad)
	}
	if len(bad) == 1 {
		var sp, dp uint16
		var got, want uint64
		fmt.Sscanf(bad[0], "%d->%d: got number %d, want %d", &sp, &dp, &got, &want)
		if want != 1 || got > before+1 {
			t.Errorf("new process began with number %d, old one ended with %d", got, before)
		}
	}
	if n := po.count(transport.EventPeerRestarted); n != 1 {
		t.Errorf("%d events of a restart, want 1", n)
	}
	if po.again != po.wantAgain || po.again > 50 {
		t.Errorf("the event says %d messages again, want %d", po.again, po.wantAgain)
	}
	t.Logf("old process took %d, the event says %d again, streams lost %d", before, po.again, po.count(transport.EventDown))
}

// TestMixedVersion: a peer whose private item has an unknown version and unknown feature bits.
func TestMixedVersion(t *testing.T) {
	for _, h := range []wire.Handshake{
		{NPaths: 1, SportIdx: true, Own: true, Version: 200, Features: 0xfffe, MaxAckDelay: 250, OwnGeneration: 77},
		{NPaths: 8, SportIdx: true, Own: true, Version: 9, Features: 0xffff, OwnGeneration: 78},
		{NPaths: 2, Generation: 79, SportIdx: true, Own: true, Version: 255},
	} {
		synctest.Test(t, func(t *testing.T) {
			net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})
			defer net.Close()
			a := simNode(t, net, simA, func(c *Config) { c.Handshake = h })
			b := simNode(t, net, simB, nil)
			defer a.Close(time.Second)
			defer b.Close(time.Second)
			la, lb := mustLink(t, a.Transport, b.Transport), mustLink(t, b.Transport, a.Transport)
			oa, ob := newTestOwner(), newTestOwner()
			stream(la, oa, 1, 1, 100, 1000, func() int { return 300 })
			stream(lb, ob, 2, 1, 100, 1000, func() int { return 300 })
			time.Sleep(200 * time.Millisecond)
			for _, c := range net.ConnsBetween(simA, simB) {
				c.RST(simnet.Dialer)
			}
			stream(la, oa, 1, 101, 200, 1000, func() int { return 300 })
			time.Sleep(5 * time.Second)
			pa, pb := a.host.peer(simB), b.host.peer(simA)
			pa.check(t, "a")
			pb.check(t, "b")
			if pb.number(1, 9) != 200 || pa.number(2, 9) != 100 || oa.unacked() != 0 || ob.unacked() != 0 {
				t.Errorf("%v: arrived %d and %d, unacknowledged %d and %d", h, pb.number(1, 9), pa.number(2, 9), oa.unacked(), ob.unacked())
			}
			if !lb.Info().Own {
				t.Errorf("%v was not recognized as one of ours", h)
			}
		})
	}
}
