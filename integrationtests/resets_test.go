// Package integrationtests joins whole nodes over real TCP on loopback addresses.
package integrationtests

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// faultyNode is a node on a random address of 127/8 whose streams can be broken.
func faultyNode(t *testing.T, last byte) (*rds.Node, *fault.Network) {
	t.Helper()
	for range 20 {
		a := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(250)), byte(rand.IntN(250)), last})
		net := fault.Wrap(&tcp.OSNetwork{}, fault.Options{Seed: rand.Uint64()})
		n, err := seam.New[*rds.Node](rds.Config{Addrs: []netip.Addr{a}}, net)
		if err == nil {
			t.Cleanup(func() { n.Close() })
			return n, net
		}
	}
	t.Fatal("no free address in 127.0.0.0/8")
	return nil, nil
}

// TestThousandResets is the reset proof between own nodes: messages of 1 KiB in both directions, paced so that a thousand
// resets happen meanwhile, by the smaller side, by the larger side, and in mid-frame. None is lost, doubled or reordered.
func TestThousandResets(t *testing.T) {
	want := uint64(1000)
	if testing.Short() {
		want = 100
	}
	x, xnet := faultyNode(t, 1)
	y, ynet := faultyNode(t, 2)
	type side struct {
		name string
		node *rds.Node
		net  *fault.Network
		sock *rds.Socket
		sent atomic.Uint64
		last uint64
		bad  []string
	}
	smaller, larger := &side{name: "smaller", node: x, net: xnet}, &side{name: "larger", node: y, net: ynet}
	if y.Addrs()[0].Less(x.Addrs()[0]) {
		smaller.node, smaller.net, larger.node, larger.net = y, ynet, x, xnet
	}
	sides := []*side{smaller, larger}
	for _, s := range sides {
		var err error
		if s.sock, err = s.node.Bind(rds.AddrFrom(s.node.Addrs()[0], 4000)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	sending, stop := context.WithCancel(ctx)
	receiving, deafen := context.WithCancel(ctx)
	var senders, receivers sync.WaitGroup
	for i, s := range sides {
		other := sides[1-i]
		senders.Go(func() {
			buf := make([]byte, 1024)
			for n := uint64(1); sending.Err() == nil; n++ {
				binary.BigEndian.PutUint64(buf, n)
				for j := range buf[8:] {
					buf[8+j] = byte(n) + byte(j)
				}
				if err := s.sock.Send(ctx, other.sock.Addr(), buf); err != nil {
					t.Errorf("%s: message %d: %v", s.name, n, err)
					return
				}
				s.sent.Store(n)
				if n%20 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
		receivers.Go(func() {
			buf := make([]byte, 2048)
			for {
				m, from, err := s.sock.Recv(receiving, buf)
				if err != nil {
					return
				}
				n := binary.BigEndian.Uint64(buf)
				ok := m == 1024 && from == other.sock.Addr()
				for j := range buf[8:m] {
					ok = ok && buf[8+j] == byte(n)+byte(j)
				}
				if !ok || n != s.last+1 {
					s.bad = append(s.bad, fmt.Sprintf("got number %d after %d, %d bytes, intact %v", n, s.last, m, ok))
				}
				s.last = n
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	kills := [3]int{}
	resets := func() (resets, again, dropped uint64) {
		for _, s := range sides {
			for _, c := range s.node.Connections() {
				if c.Transport == "tcp" {
					resets = max(resets, c.Paths[0].Resets)
					again += c.Paths[0].Retransmissions
					dropped += c.Paths[0].DroppedDuplicates
				}
			}
		}
		return resets, again, dropped
	}
	for i := 0; ctx.Err() == nil; i++ {
		if n, _, _ := resets(); n >= want {
			break
		}
		switch i % 3 {
		case 0:
			if smaller.net.ResetOne(rng) != nil {
				kills[0]++
			}
		case 1:
			if larger.net.ResetOne(rng) != nil {
				kills[1]++
			}
		case 2:
			// In mid-frame: somewhere in the next messages, not at their boundary.
			kills[2] += sides[i/3%2].net.Cut(nil, 1+rng.IntN(1071)+1072*rng.IntN(5))
		}
		time.Sleep(time.Duration(1+rng.IntN(6)) * time.Millisecond)
	}
	stop()
	senders.Wait()
	for _, s := range sides {
		if err := s.sock.Flush(ctx); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	// Acknowledged is delivered, but not yet received by this program.
	for i, s := range sides {
		for ctx.Err() == nil {
			if m, _ := sides[1-i].sock.PendingAll(); m == 0 && s.node.Stat("recv_delivered") >= sides[1-i].sent.Load() {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	deafen()
	receivers.Wait()
	n, again, dropped := resets()
	t.Logf("FIGURE resets %d (by the smaller side %d, by the larger %d, in mid-frame %d), retransmissions %d, filtered duplicates %d",
		n, kills[0], kills[1], kills[2], again, dropped)
	for i, s := range sides {
		sent := sides[1-i].sent.Load()
		t.Logf("FIGURE %s side received %d of %d, out of sequence %d", s.name, s.last, sent, len(s.bad))
		if s.last != sent || len(s.bad) > 0 {
			t.Errorf("%s side: last number %d of %d; %v", s.name, s.last, sent, s.bad)
		}
	}
	if n < want || again == 0 {
		t.Errorf("%d resets and %d retransmissions, want at least %d and 1", n, again, want)
	}
}
