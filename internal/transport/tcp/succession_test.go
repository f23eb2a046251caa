package tcp

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/simnet"
	"github.com/rds-go/rds/internal/wire"
)

// TestCloseLeavesTheRest: a node closed in good order in mid-stream has acknowledged just what it delivered; its successor
// begins with the next message.
func TestCloseLeavesTheRest(t *testing.T) {
	for i := range 40 {
		synctest.Test(t, func(t *testing.T) {
			victim, other := simA, simB
			if i%2 == 1 {
				victim, other = simB, simA
			}
			net := simnet.New(simnet.Options{Seed: uint64(i), Link: simnet.Link{Delay: time.Duration(1+i%4) * time.Millisecond}})
			defer net.Close()
			v, o := simNode(t, net, victim, nil), simNode(t, net, other, nil)
			defer o.Close(time.Second)
			owner := newTestOwner()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				stream(mustLink(t, o.Transport, v.Transport), owner, 1, 1, 3000, 50, func() int { return 500 })
			}()
			time.Sleep(time.Duration(20+i) * time.Millisecond)
			v.Quiesce()
			old := v.host.peer(other)
			before := old.number(1, 9)
			time.Sleep(time.Duration(i%3) * 10 * time.Millisecond)
			v.Close(time.Second)
			if n := old.number(1, 9); n != before || before == 0 {
				t.Errorf("delivered %d when quiet, %d when closed", before, n)
			}
			w := simNode(t, net, victim, nil)
			defer w.Close(time.Second)
			<-sent
			owner.wait(0)
			nw := w.host.peer(other)
			if n := nw.number(1, 9); n != 3000 {
				t.Fatalf("the successor got messages up to %d, want 3000", n)
			}
			// Its check wants number 1 first; the one complaint says where it began.
			var sport, dport uint16
			var first, want uint64
			if len(nw.bad) != 1 {
				t.Fatalf("the successor: %v", nw.bad)
			}
			fmt.Sscanf(nw.bad[0], "%d->%d: got number %d, want %d", &sport, &dport, &first, &want)
			if first != before+1 {
				t.Errorf("round %d: the old process took %d, its successor began with %d", i, before, first)
			}
		})
	}
}

// TestHungPeerAcknowledgesNothing: a process that accepts and never reads looks to TCP like one that has everything. What was
// sent to it goes to the one that takes its place.
func TestHungPeerAcknowledgesNothing(t *testing.T) {
	for _, victim := range []netip.Addr{simB, simA} {
		synctest.Test(t, func(t *testing.T) {
			other := simA
			if victim == simA {
				other = simB
			}
			net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})
			defer net.Close()
			o := simNode(t, net, other, nil)
			defer o.Close(time.Second)
			hung := net.Host(victim)
			l, err := hung.Listen(netip.AddrPortFrom(victim, wire.Port))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					if _, err := l.Accept(); err != nil {
						return
					}
				}
			}()
			owner := newTestOwner()
			link, _ := o.Link(other, victim)
			stream(link, owner, 1, 1, 20, 100, func() int { return 300 })
			time.Sleep(2 * time.Minute)
			if owner.unacked() != 20 {
				t.Errorf("%d of 20 messages unacknowledged towards a process that hangs", owner.unacked())
			}
			hung.Kill(simnet.Exit)
			<-done
			w := simNode(t, net, victim, nil)
			defer w.Close(time.Second)
			owner.wait(0)
			p := w.host.peer(other)
			p.check(t, "successor")
			if n := p.number(1, 9); n != 20 {
				t.Errorf("the successor got %d of 20 messages", n)
			}
		})
	}
}

// TestHold: what waits for a node that holds arrives when it is started, not before.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})
		defer net.Close()
		a := simNode(t, net, simA, nil)
		defer a.Close(time.Second)
		link, _ := a.Link(simA, simB)
		owner := newTestOwner()
		stream(link, owner, 1, 1, 10, 100, func() int { return 300 })
		b := simNode(t, net, simB, func(c *Config) { c.Hold = true })
		defer b.Close(time.Second)
		time.Sleep(20 * time.Second)
		if b.host.peer(simA) != nil || owner.unacked() != 10 {
			t.Errorf("%d of 10 messages unacknowledged while the node holds", owner.unacked())
		}
		b.Start()
		owner.wait(0)
		if n := b.host.peer(simA).number(1, 9); n != 10 {
			t.Errorf("%d messages arrived, want 10", n)
		}
		b.host.peer(simA).check(t, "b")
	})
}
