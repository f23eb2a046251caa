//go:build linux

package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/seam"
)

// childMain is a process with a node of ours that can be killed: it sends numbered messages to the
// peer, with the life's name before the number, and writes the number of each message it
// receives to standard output, 8 bytes each.
func childMain() {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	seam.GenNum = os.Getenv("RDS_GUEST_GEN") == "1"
	at, peer := netip.MustParseAddrPort(os.Getenv("RDS_GUEST_AT")), netip.MustParseAddrPort(os.Getenv("RDS_GUEST_PEER"))
	n, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{at.Addr()}})
	if err != nil {
		fail(err)
	}
	s, err := n.Bind(toRDS(at), rds.WithSendBuffer(1<<20), rds.WithRecvBuffer(4<<20))
	if err != nil {
		fail(err)
	}
	life := []byte(fmt.Sprintf("%08s", os.Getenv("RDS_GUEST_LIFE")))[:8]
	go func() {
		for i := uint64(1); ; i++ {
			if err := s.Send(context.Background(), toRDS(peer), append(slices.Clone(life), message(i, 500)...)); err != nil {
				fail(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	buf := make([]byte, 1<<20)
	for {
		m, _, err := s.Recv(context.Background(), buf)
		if err != nil {
			fail(err)
		}
		if m >= 8 {
			os.Stdout.Write(buf[:8])
		}
	}
}

// child is a running childMain.
type child struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	got  []uint64 // guarded by mu
	done chan struct{}
}

func startChild(t *testing.T, p *Pair, s Side, life string, at, peer netip.AddrPort, gen bool) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), "RDS_GUEST_CHILD=1", "RDS_GUEST_AT="+at.String(), "RDS_GUEST_PEER="+peer.String(),
		"RDS_GUEST_LIFE="+life, map[bool]string{true: "RDS_GUEST_GEN=1", false: "RDS_GUEST_GEN=0"}[gen])
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(s, c.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		var b [8]byte
		for {
			if _, err := io.ReadFull(out, b[:]); err != nil {
				return
			}
			c.mu.Lock()
			c.got = append(c.got, binary.BigEndian.Uint64(b[:]))
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.done
	c.cmd.Wait()
}

func (c *child) received() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// TestNodeRestart kills our process with SIGKILL in mid-stream and starts another, with and without GEN_NUM in our probes,
// while the new connection is reset again when the probe has just arrived. What the kernel had not seen
// acknowledged when the process died must reach the new one; what the new one sends must arrive in order from its first message.
// The measurement decides whether GEN_NUM is announced (design decision 3): only the variant that is the default may not lose.
func TestNodeRestart(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		for _, gen := range []bool{false, true} {
			name := map[bool]string{false: "without-GEN_NUM", true: "with-GEN_NUM"}[gen]
			t.Run(name, func(t *testing.T) {
				r := testNodeRestart(t, ours, gen)
				Figure(t, "messages-over-restarts", fmt.Sprintf("%d lost, %d doubled in %d restarts", r.lost, r.doubled, r.restarts))
				if !gen && (r.lost > 0 || r.doubled > 0) {
					t.Errorf("of the messages that the kernel still had when the process died, %d were lost and %d doubled", r.lost, r.doubled)
				}
			})
		}
	})
}

type restartResult struct{ lost, doubled, restarts int }

func testNodeRestart(t *testing.T, ours Side, gen bool) (r restartResult) {
	lives := 5
	if Full() {
		lives = 10
	}
	p := NewPair(t)
	k := p.KernelSocket(t, ours.Other(), path0Port)
	if err := errors.Join(k.SetSendBuffer(1<<20), k.SetRecvBuffer(4<<20)); err != nil {
		t.Fatal(err)
	}
	p.Free(ours)
	// So that the kernel always has something unacknowledged.
	p.Netem(ours, "delay", "60ms")
	at := netip.AddrPortFrom(p.Addr(ours, false), 4002)

	var mu sync.Mutex // held while the kernel sends: a snapshot sees no half-done send
	var sent uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			mu.Lock()
			err := k.TrySend(message(sent+1, 500), at)
			if err == nil {
				sent++
			}
			mu.Unlock()
		}
	})
	// What arrives at the kernel: for each life 1, 2, 3, …
	var kmu sync.Mutex
	last := map[string]uint64{}
	var bad []string
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			m, err := k.Recv(100 * time.Millisecond)
			if err != nil || len(m.Data) < 16 {
				continue
			}
			life, n := string(m.Data[:8]), binary.BigEndian.Uint64(m.Data[8:])
			kmu.Lock()
			if n != last[life]+1 {
				bad = append(bad, fmt.Sprintf("life %s: got number %d after %d", life, n, last[life]))
			}
			last[life] = n
			kmu.Unlock()
		}
	})
	await := func(what string, f func() bool) {
		t.Helper()
		for deadline := time.Now().Add(2 * Patience); !f(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waiting for %s", what)
			}
		}
	}
	var owed atomic.Uint64 // every number above it must reach the present life
	var c *child
	defer func() {
		if c != nil {
			c.kill()
		}
	}()
	begun := time.Now()
	for life := range lives {
		t.Logf("life %d begins after %v", life, time.Since(begun).Round(time.Millisecond))
		name := fmt.Sprintf("%08d", life)
		c = startChild(t, p, ours, name, at, k.Addr(), gen)
		if life > 0 {
			// Break the connection once or twice around the arrival of the first probe.
			for range 2 {
				conns := func() bool {
					list, err := p.TCPConns(ours.Other())
					return err == nil && slices.ContainsFunc(list, func(c TCPConn) bool { return c.State == "ESTAB" })
				}
				await("a connection", conns)
				time.Sleep(time.Duration(5*(life%8)) * time.Millisecond)
				p.KillTCP(ours.Other())
			}
		}
		await("messages of "+name, func() bool {
			kmu.Lock()
			n := last[name]
			kmu.Unlock()
			return n >= 20 && len(c.received()) >= 20
		})
		if life > 0 {
			// Everything that was sent up to now must have come, in order, from owed+1 on.
			mu.Lock()
			now := sent
			mu.Unlock()
			await(fmt.Sprintf("message %d", now), func() bool { g := c.received(); return g[len(g)-1] >= now })
			g := c.received()
			seen := map[uint64]bool{}
			for _, n := range g {
				if seen[n] {
					r.doubled++
				}
				seen[n] = true
			}
			missing := []uint64{}
			for n := owed.Load() + 1; n <= now; n++ {
				if !seen[n] {
					missing = append(missing, n)
				}
			}
			if len(missing) > 0 {
				t.Logf("life %d: kernel still had the messages above %d; lost %v", life, owed.Load(), missing)
				r.lost += len(missing)
			}
		}
		time.Sleep(time.Duration(life%5) * 3 * time.Millisecond)
		c.kill()
		time.Sleep(200 * time.Millisecond) // its FIN or RST reaches the kernel through the delay
		mu.Lock()
		q, err := queued(k, at)
		owed.Store(sent - uint64(q))
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if life == 0 && q == 0 {
			t.Log("the kernel had nothing unacknowledged at the first death")
		}
	}
	c = nil
	kmu.Lock()
	defer kmu.Unlock()
	for _, b := range bad {
		t.Errorf("ours to kernel: %s", b)
	}
	r.restarts = lives - 1
	return r
}

// queued counts the messages to a destination that the kernel has not seen acknowledged.
func queued(k *Socket, to netip.AddrPort) (int, error) {
	n := 0
	for _, f := range []func() ([]MessageInfo, error){k.SendQueue, k.RetransQueue} {
		list, err := f()
		if err != nil {
			return 0, err
		}
		for _, m := range list {
			if m.Peer == to {
				n++
			}
		}
	}
	return n, nil
}

// TestKernelReboot: the kernel's node goes away with all its connections and comes back with the same address, numbering
// from 1 again. Our messages that it had not acknowledged reach the new one, in order, and the event says how many; its
// messages reach us.
func TestKernelReboot(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		p := NewPair(t)
		theirs := ours.Other()
		const port = path0Port
		to := netip.AddrPortFrom(p.Addr(theirs, false), port)
		at := netip.AddrPortFrom(p.Addr(ours, false), 4002)
		k := p.KernelSocketAt(t, theirs, to)
		var restarts, again atomic.Int64
		n, _ := p.Node(t, ours, func(c *rds.Config) {
			c.Events = &rds.Events{PeerRestarted: func(e rds.PeerEvent) {
				restarts.Add(1)
				again.Add(int64(e.Count))
			}}
		})
		s := NodeSocket(t, n, at)
		ctx, cancel := context.WithTimeout(context.Background(), 3*Patience)
		defer cancel()
		buf := make([]byte, 1<<20)
		// Numbers above 3 on both sides before the reboot.
		for i := uint64(1); i <= 20; i++ {
			if err := errors.Join(s.Send(ctx, toRDS(to), message(i, 100)), k.Send(message(i, 100), at, Patience)); err != nil {
				t.Fatal(err)
			}
			expect(t, k, message(i, 100), at)
			if m, _, err := s.Recv(ctx, buf); err != nil || binary.BigEndian.Uint64(buf[:m]) != i {
				t.Fatalf("message %d of the kernel: %v", i, err)
			}
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		// Nothing gets through any more; ten messages are written and not acknowledged.
		p.Netem(ours, "loss", "100%")
		for i := uint64(21); i <= 30; i++ {
			if err := s.Send(ctx, toRDS(to), message(i, 100)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(200 * time.Millisecond)
		k.Close()
		p.Reboot(theirs)
		k = p.KernelSocketAt(t, theirs, to)
		for i := uint64(1); i <= 20; i++ {
			if err := errors.Join(s.Send(ctx, toRDS(to), message(30+i, 100)), k.Send(message(100+i, 100), at, Patience)); err != nil {
				t.Fatal(err)
			}
		}
		for i := uint64(21); i <= 50; i++ {
			expect(t, k, message(i, 100), at)
		}
		for i := uint64(1); i <= 20; i++ {
			if m, _, err := s.Recv(ctx, buf); err != nil || binary.BigEndian.Uint64(buf[:m]) != 100+i {
				t.Fatalf("message %d of the rebooted kernel: got %d, %v", i, binary.BigEndian.Uint64(buf[:8]), err)
			}
		}
		if m, err := k.Recv(300 * time.Millisecond); err == nil && m.From.IsValid() {
			t.Errorf("the kernel got one message more, number %d", binary.BigEndian.Uint64(m.Data))
		}
		if err := s.Flush(ctx); err != nil {
			t.Error(err)
		}
		Figure(t, "restarts-seen", restarts.Load())
		Figure(t, "messages-sent-again", again.Load())
		// 7.x in the same machine keeps its generation: only its numbers show the reboot.
		if restarts.Load() != 1 || again.Load() < 10 || again.Load() > 30 {
			t.Errorf("%d restarts seen, %d messages again; want 1, and from 10 to 30", restarts.Load(), again.Load())
		}
	})
}
