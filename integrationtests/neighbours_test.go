//go:build linux

package integrationtests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds"
)

// TestBadNeighbours: one sender, ten destinations, a socket for each. Then one of them is congested, one does not exist,
// and one is a stopped process. The others keep their rate; who waits costs no processor time.
func TestBadNeighbours(t *testing.T) {
	net := newSubnet()
	sender := net.node(t, 100, rds.Config{})
	stopped := startServer(t, net.addr(9), 0)
	congested := bind(t, net.node(t, 8, rds.Config{}), sinkPort)
	dead := net.addr(120)
	var received atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var receivers sync.WaitGroup
	var good []rds.Addr
	for i := range 7 {
		s := bind(t, net.node(t, 1+i, rds.Config{}), sinkPort)
		good = append(good, s.Addr())
		receivers.Go(func() {
			buf := make([]byte, 20000)
			for {
				n, _, err := s.Recv(ctx, buf)
				if err != nil {
					return
				}
				received.Add(int64(n))
			}
		})
	}
	const size = 10_000
	const pace = 2 * time.Millisecond // between messages: a load that leaves room, even here
	// stream sends to one destination until ctx ends.
	stream := func(ctx context.Context, port uint16, to rds.Addr, pace time.Duration) {
		s := bind(t, sender, port)
		defer s.Close()
		for begun, n := time.Now(), 0; ; n++ {
			time.Sleep(time.Until(begun.Add(time.Duration(n) * pace)))
			if err := s.Send(ctx, to, make([]byte, size)); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("to %v: %v", to, err)
				}
				return
			}
		}
	}
	// rate streams to all the good ones for a while.
	rate := func(pace time.Duration) float64 {
		ctx, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i, to := range good {
			wg.Go(func() { stream(ctx, uint16(4000+i), to, pace) })
		}
		time.Sleep(300 * time.Millisecond) // connections are made
		begun, bytes := time.Now(), received.Load()
		time.Sleep(1500 * time.Millisecond)
		r := float64(received.Load()-bytes) / time.Since(begun).Seconds()
		stop()
		wg.Wait()
		return r
	}
	alone, aloneFull := rate(pace), rate(0)

	var blocked sync.WaitGroup
	bctx, unblock := context.WithCancel(ctx)
	// The connection to the process exists before it is stopped.
	hello := bind(t, sender, 5000)
	if err := hello.Send(limited(t), stopped.sink(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := hello.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	stopped.signal(unix.SIGSTOP)
	for i, to := range []rds.Addr{congested.Addr(), rds.AddrFrom(dead, sinkPort), stopped.sink()} {
		blocked.Go(func() { stream(bctx, uint16(5001+i), to, 0) })
	}
	var was [3]rds.SocketInfo
	until(t, "all three are blocked", func() bool {
		var now [3]rds.SocketInfo
		for _, s := range sender.Sockets() {
			if p := s.Local.Port; p > 5000 && p <= 5003 {
				now[p-5001] = s
			}
		}
		still := now == was
		was = now
		time.Sleep(100 * time.Millisecond)
		return still && sender.Stat("cong_send_blocked") > 0 && now[1].SendBytes >= now[1].SendBuffer && now[2].SendBytes >= now[2].SendBuffer
	})
	before := cpu(t)
	time.Sleep(time.Second)
	idle := cpu(t) - before
	together, togetherFull := rate(pace), rate(0)
	t.Logf("FIGURE seven good destinations, one message each %v: %.1f MB/s alone, %.1f MB/s beside a congested, a dead and a stopped one (%+.0f %%)",
		pace, alone/1e6, together/1e6, 100*(together/alone-1))
	t.Logf("FIGURE as fast as they can: %.0f and %.0f MB/s (%+.0f %%)", aloneFull/1e6, togetherFull/1e6, 100*(togetherFull/aloneFull-1))
	t.Logf("FIGURE processor time of three blocked senders in one second: %v", idle)
	if together < alone/2 {
		t.Error("the others do not keep their rate")
	}
	if idle > 300*time.Millisecond {
		t.Errorf("blocked senders used %v of processor time in a second", idle)
	}
	// The congested one goes on when its queue is read, the stopped one when it goes on.
	drained := make(chan int)
	go func() {
		n, buf := 0, make([]byte, size)
		for ; ; n++ {
			if _, _, err := congested.Recv(ctx, buf); err != nil {
				drained <- n
				return
			}
		}
	}()
	stopped.signal(unix.SIGCONT)
	until(t, "the process that was stopped takes its messages", func() bool {
		for _, s := range sender.Sockets() {
			if s.Local.Port == 5003 {
				return sender.Stat("send_queued") > 0 && s.SendBytes < s.SendBuffer
			}
		}
		return false
	})
	time.Sleep(50 * time.Millisecond)
	unblock()
	blocked.Wait()
	cancel()
	receivers.Wait()
	if n := <-drained; n <= was[0].SendBuffer/size {
		t.Errorf("the congested destination got %d messages, no more than before", n)
	}
}

// cpu is the processor time that this process has used.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestStoppedProcessIsGone: with a time to give up, a process that stands still is given up on, and found again.
func TestStoppedProcessIsGone(t *testing.T) {
	for _, role := range []int{20, 120} {
		t.Run(map[int]string{20: "smaller", 120: "larger"}[role], func(t *testing.T) {
			var r recorder
			net := newSubnet()
			srv := startServer(t, net.addr(100), 0)
			node := net.node(t, role, rds.Config{GiveUp: time.Second, StallTimeout: 500 * time.Millisecond, Events: r.events()})
			s := bind(t, node, 4000)
			send := func() error { return s.Send(limited(t), srv.sink(), make([]byte, 50_000)) }
			if err := errors.Join(send(), s.Flush(limited(t))); err != nil {
				t.Fatal(err)
			}
			srv.signal(unix.SIGSTOP)
			var err error
			sent := 0
			for err == nil { // the buffers of TCP take some
				err = send()
				sent++
			}
			ferr := s.Flush(limited(t))
			for _, err := range []error{err, ferr} {
				var oe *rds.OpError
				if !errors.Is(err, rds.ErrPeerGone) || !errors.Is(err, unix.EHOSTUNREACH) || !errors.As(err, &oe) || oe.Remote.IP != srv.ip {
					t.Errorf("error %v", err)
				}
			}
			until(t, "events", func() bool { return r.count("stalled") == 1 && r.count("gone") == 1 })
			if n := node.Stat("peers_given_up"); n != 1 {
				t.Errorf("peers_given_up = %d", n)
			}
			t.Logf("FIGURE given up after %d messages: %v; %v", sent, err, ferr)
			srv.signal(unix.SIGCONT)
			until(t, "it is back", func() bool { return send() == nil })
			if err := s.Flush(limited(t)); err != nil && !errors.Is(err, rds.ErrPeerGone) {
				t.Error(err)
			}
			if err := errors.Join(send(), s.Flush(limited(t))); err != nil {
				t.Error(err)
			}
			until(t, "event", func() bool { return r.count("recovered") > 0 })
		})
	}
}

// TestUnreachableIsGone: nobody is at the address, later somebody is.
func TestUnreachableIsGone(t *testing.T) {
	for _, role := range []int{20, 120} {
		t.Run(map[int]string{20: "smaller", 120: "larger"}[role], func(t *testing.T) {
			net := newSubnet()
			node := net.node(t, role, rds.Config{})
			patient := bind(t, node, 4000)
			s := bind(t, node, 4001, rds.WithGiveUp(300*time.Millisecond))
			to := rds.AddrFrom(net.addr(100), sinkPort)
			for _, x := range []*rds.Socket{patient, s} {
				if err := x.Send(limited(t), to, []byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(limited(t)); !errors.Is(err, rds.ErrPeerGone) {
				t.Fatalf("Flush: %v", err)
			}
			if err := s.TrySend(to, nil); !errors.Is(err, rds.ErrPeerGone) {
				t.Fatalf("TrySend: %v", err)
			}
			sink := bind(t, net.node(t, 100, rds.Config{}), sinkPort)
			until(t, "it is found", func() bool { return s.TrySend(to, []byte("again")) == nil })
			got := map[string]int{}
			for range 2 {
				buf := make([]byte, 10)
				n, from, err := sink.Recv(limited(t), buf)
				if err != nil {
					t.Fatal(err)
				}
				got[fmt.Sprintf("%s from %d", buf[:n], from.Port)]++
			}
			if got["hello from 4000"] != 1 || got["again from 4001"] != 1 {
				t.Errorf("arrived: %v", got)
			}
			if err := s.Flush(limited(t)); err != nil {
				t.Errorf("Flush: %v", err)
			}
		})
	}
}
