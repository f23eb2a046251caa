//go:build linux

package integrationtests

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/simnet"
)

// TestQueueLimit: a peer whose messages nobody receives is not read any more at the limit. Nothing is dropped, memory
// is bounded, another peer is served as before, and everything arrives once the queue is drained.
func TestQueueLimit(t *testing.T) {
	for _, limit := range []int64{2 << 20, 64 << 20} {
		t.Run(fmt.Sprint(limit>>20, " MiB"), func(t *testing.T) {
			if testing.Short() && limit > 10<<20 {
				t.Skip("moves 100 MiB")
			}
			var r recorder
			net, node, good := echoNode(t, rds.Config{PeerQueueLimit: limit, Events: r.events()})
			good.goesOn(100)
			full := bind(t, node, 4010, rds.WithRecvBuffer(1<<30)) // never congested
			from := bind(t, net.node(t, 40, rds.Config{}), 4010, rds.WithSendBuffer(1<<30))
			const size = 50_000
			total := int(limit/size) * 3 / 2
			before := heap()
			sent := make(chan error, 1)
			go func() {
				buf := make([]byte, size)
				for i := range total {
					binary.BigEndian.PutUint64(buf, uint64(i))
					if err := from.Send(context.Background(), full.Addr(), buf); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			var peer rds.ConnectionInfo
			until(t, "the peer is stopped", func() bool {
				for _, c := range node.Connections() {
					if c.Remote == from.Addr().IP {
						peer = c
					}
				}
				return peer.Stopped
			})
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			good.goesOn(100)
			var pending int
			until(t, "all stands still", func() bool {
				was := pending
				pending, _ = from.PendingAll()
				time.Sleep(50 * time.Millisecond)
				return pending == was
			})
			info := func() (i rds.SocketInfo) {
				for _, s := range node.Sockets() {
					if s.Local == full.Addr() {
						i = s
					}
				}
				return i
			}
			held := info()
			t.Logf("FIGURE limit %d KiB: %d messages of %d bytes sent, %d KiB in the queue of their socket, %d messages unacknowledged; heap of both ends %+d MiB",
				limit>>10, total, size, held.RecvBytes>>10, pending, (heap()-before)>>20)
			if n := int64(held.RecvBytes); n > limit+64<<10+size || n < limit-size-int64(128*held.RecvMessages) {
				t.Errorf("%d bytes are in the queue, the limit is %d", n, limit)
			}
			if held.RecvMessages+pending < total || r.count("limit") != 1 || node.Stat("recv_queue_limit") == 0 {
				t.Errorf("%d messages in the queue and %d unacknowledged of %d; %d events", held.RecvMessages, pending, total, r.count("limit"))
			}
			buf := make([]byte, size)
			for i := range total {
				n, _, err := full.Recv(limited(t), buf)
				if err != nil || n != size || binary.BigEndian.Uint64(buf) != uint64(i) {
					t.Fatalf("message %d: %d bytes with number %d, %v", i, n, binary.BigEndian.Uint64(buf), err)
				}
			}
			if err := from.Flush(limited(t)); err != nil {
				t.Error(err)
			}
			good.end()
			until(t, "event", func() bool { return r.count("resumed") > 0 })
		})
	}
}

// simNodes makes nodes 10.0.0.1, 10.0.0.2, … in virtual time. mod changes the Config of each.
func simNodes(t *testing.T, net *simnet.Net, count int, mod func(i int, c *rds.Config)) []*rds.Node {
	t.Helper()
	nodes := make([]*rds.Node, count)
	for i := range nodes {
		nodes[i] = simNode(t, net, i+1, func(c *rds.Config) { mod(i+1, c) })
	}
	return nodes
}

func simNode(t *testing.T, net *simnet.Net, i int, mod func(c *rds.Config)) *rds.Node {
	t.Helper()
	var c rds.Config
	c.Addrs = append(c.Addrs, simAddr(i))
	mod(&c)
	n, err := seam.New[*rds.Node](c, net.Host(simAddr(i)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestQueueLimitForLong: the peer is not read for so long that its TCP gives up again and again (Config.UserTimeout). It
// is counted as stalled, and nothing is lost or doubled.
func TestQueueLimitForLong(t *testing.T) {
	for _, receiver := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var r recorder
			net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}, SendBuffer: 20_000, RecvBuffer: 20_000})
			t.Cleanup(net.Close)
			nodes := simNodes(t, net, 2, func(_ int, c *rds.Config) {
				c.PeerQueueLimit = 100_000
				c.Events = r.events()
			})
			to := bind(t, nodes[receiver-1], 4000, rds.WithRecvBuffer(1<<30))
			from := bind(t, nodes[2-receiver], 4000, rds.WithSendBuffer(1<<30))
			const total = 1000
			buf := make([]byte, 1000)
			for i := range total {
				binary.BigEndian.PutUint64(buf, uint64(i))
				if err := from.Send(t.Context(), to.Addr(), buf); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
			sender := nodes[2-receiver]
			resets, stalls := sender.Stat("conn_reset"), sender.Stat("peer_stalls")
			if resets == 0 || stalls == 0 || r.count("stalled") == 0 {
				t.Errorf("%d connections lost, %d stalls, %d events in ten minutes", resets, stalls, r.count("stalled"))
			}
			for i := range total {
				n, _, err := to.Recv(t.Context(), buf)
				if err != nil || n != 1000 || binary.BigEndian.Uint64(buf) != uint64(i) {
					t.Fatalf("message %d: %d bytes with number %d, %v", i, n, binary.BigEndian.Uint64(buf), err)
				}
			}
			if err := from.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if n, _, err := to.TryRecv(buf); err == nil {
				t.Errorf("one message too many, of %d bytes", n)
			}
			if r.count("recovered") == 0 {
				t.Error("no event of recovery")
			}
			t.Logf("FIGURE receiver %d: ten minutes unread, %d connections lost, %d stalls, retransmissions %d", receiver, resets, stalls, sender.Stat("send_retransmitted"))
		})
	}
}

// TestNodeLimit: peers that send as much as they can to a socket that nobody reads stay below the limit
// together, and another one is served all the same.
func TestNodeLimit(t *testing.T) {
	net, node, good := echoNode(t, rds.Config{NodeQueueLimit: 16 << 20})
	full := bind(t, node, 4010, rds.WithRecvBuffer(1<<30))
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for i := range 4 {
		s := bind(t, net.node(t, 10+i, rds.Config{}), 4010, rds.WithSendBuffer(8<<20))
		wg.Go(func() {
			defer s.Close()
			for s.Send(ctx, full.Addr(), make([]byte, 10_000)) == nil {
			}
		})
	}
	until(t, "all four are stopped", func() bool {
		n := 0
		for _, c := range node.Connections() {
			if c.Stopped {
				n++
			}
		}
		return n == 4
	})
	good.goesOn(100)
	var shares []int64
	sum := int64(0)
	for _, c := range node.Connections() {
		if c.Stopped {
			shares = append(shares, c.UnreadBytes>>10)
			sum += c.UnreadBytes
		}
	}
	t.Logf("FIGURE shares of four peers in KiB: %v, of a node's limit of %d", shares, 16<<10)
	if sum > 17<<20 || sum < 10<<20 {
		t.Errorf("together they hold %d bytes", sum)
	}
	stop()
	wg.Wait()
	good.end()
}
