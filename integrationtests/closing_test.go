//go:build linux

package integrationtests

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// TestCloseInTheStorm closes a node while 64 of its connections are reset at once, 100 first messages to
// other nodes (which exist or do not) are sent, and 100 connections come in.
func TestCloseInTheStorm(t *testing.T) {
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	const resets, sends, comers = 64, 100, 100
	net := newSubnet()
	beside := newSubnet() // of attackers and of addresses where nobody is
	var peers []*rds.Node
	for i := range resets {
		peers = append(peers, net.node(t, 1+i+i/50*50, rds.Config{})) // below 100 and above
	}
	for round := range rounds {
		fds, goroutines := descriptors(t), runtime.NumGoroutine()
		wrapped := fault.Wrap(&tcp.OSNetwork{}, fault.Options{})
		node, err := seam.New[*rds.Node](rds.Config{Addrs: []netip.Addr{net.addr(100)}}, wrapped)
		if err != nil {
			t.Fatal(err)
		}
		s := bind(t, node, 4000, rds.WithSendBuffer(1<<20))
		for _, p := range peers {
			if err := s.Send(limited(t), rds.AddrFrom(p.Addrs()[0], 1), make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(limited(t)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		at := func(f func()) {
			wg.Go(func() {
				<-start
				f()
			})
		}
		for _, stream := range wrapped.Streams() {
			at(func() { stream.Break() })
		}
		var sent, refused atomic.Int64
		for i := range sends {
			to := rds.AddrFrom(beside.addr(1+i), 7)
			if i%2 == 0 {
				to = rds.AddrFrom(peers[i%resets].Addrs()[0], uint16(7+i))
			}
			at(func() {
				err := s.Send(context.Background(), to, make([]byte, 1000))
				switch {
				case err == nil:
					sent.Add(1)
				case errors.Is(err, rds.ErrClosed):
					refused.Add(1)
				default:
					t.Errorf("Send: %v", err)
				}
			})
		}
		var attackers [comers]*attacker
		for i := range comers {
			at(func() {
				if attackers[i] = attack(t, beside.addr(1+i*2), node.Addrs()[0]); attackers[i] != nil {
					attackers[i].Write(probe)
				}
			})
		}
		var took time.Duration
		at(func() {
			time.Sleep(time.Duration(round) * time.Millisecond)
			begun := time.Now()
			if err := node.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			took = time.Since(begun)
		})
		close(start)
		wg.Wait()
		in := 0
		for _, a := range attackers {
			if a != nil {
				in++
				a.Close()
			}
		}
		t.Logf("FIGURE round %d: closed in %v; %d of %d first messages accepted, %d refused; %d of %d connections came in", round,
			took.Round(time.Millisecond), sent.Load(), sends, refused.Load(), in, comers)
		if took > 10*time.Second {
			t.Errorf("Close took %v", took)
		}
		// The peers' side of it ends a little later.
		until(t, "descriptors and goroutines are as before", func() bool {
			return descriptors(t) <= fds && runtime.NumGoroutine() <= goroutines
		})
	}
}
