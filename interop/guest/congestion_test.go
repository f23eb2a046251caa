//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds"
)

// congR is R of the receiving sockets: ten messages of congMsg bytes do not congest, one byte more does, six of
// them read clear it (RDS spec section 19).
const (
	congR    = 10000
	congMsg  = 1000
	congFill = congR / congMsg
	congRead = congFill/2 + 1
)

// congMask is what a notification says of the port.
const congMask = uint64(1) << (path0Port % 64)

// TestCongestion plays episodes of congestion between a kernel's socket and ours: refused without blocking, asleep
// and awake with it, told to a monitor, and nothing lost in a long stream to a slow reader.
func TestCongestion(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		p := NewPair(t)
		k := p.KernelSocket(t, ours.Other(), path0Port)
		n, _ := p.Node(t, ours, nil)
		s, err := n.Bind(rds.AddrFrom(p.Addr(ours, false), path0Port), rds.WithRecvBuffer(congR), rds.WithSendBuffer(4*congR), rds.WithCongMonitor())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(k.SetRecvBuffer(congR), k.SetSendBuffer(4*congR), k.SetCongMonitor(true)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 4*Patience)
		defer cancel()
		at := netip.AddrPortFrom(p.Addr(ours, false), path0Port)
		// The connection is made before anything is counted.
		if err := s.Send(ctx, toRDS(k.Addr()), []byte("hello")); err != nil {
			t.Fatal(err)
		}
		expect(t, k, []byte("hello"), at)
		t.Run("kernel-receives", func(t *testing.T) {
			congestKernel(ctx, t, n, s, k)
			slowKernel(ctx, t, n, s, k)
		})
		t.Run("we-receive", func(t *testing.T) {
			congestUs(ctx, t, s, k)
			slowUs(ctx, t, s, k)
		})
	})
}

// eventually waits for what the other side brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// congestedPorts is what our node knows of the kernel's ports.
func congestedPorts(n *rds.Node, k *Socket) int {
	for _, c := range n.Connections() {
		if c.Remote == k.Addr().Addr() {
			return c.CongestedPorts
		}
	}
	return 0
}

// congestKernel fills the kernel's socket and empties it again.
func congestKernel(ctx context.Context, t *testing.T, n *rds.Node, s *rds.Socket, k *Socket) {
	to, from := toRDS(k.Addr()), netip.AddrPortFrom(s.Addr().IP, s.Addr().Port)
	fill := pattern(congMsg, 1)
	for range congFill {
		if err := s.TrySend(to, fill); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the kernel's queue holds R", func() bool { return unread(t, k) == congFill })
	if err := s.TrySend(to, fill[:1]); err != nil {
		t.Fatalf("with R unread: %v", err)
	}
	eventually(t, "the map has come", func() bool { return congestedPorts(n, k) == 1 })
	for _, m := range [][]byte{fill, nil} {
		if err := s.TrySend(to, m); !errors.Is(err, unix.ENOBUFS) || !errors.Is(err, rds.ErrCongested) {
			t.Errorf("%d bytes to a congested port: %v", len(m), err)
		}
	}
	if err := s.TrySend(rds.AddrFrom(to.IP, to.Port+1), fill); err != nil {
		t.Errorf("another port: %v", err)
	}
	before := n.Stat("cong_send_blocked")
	sent := make(chan error, 1)
	go func() { sent <- s.Send(ctx, to, []byte("woken")) }()
	eventually(t, "the sender sleeps", func() bool { return n.Stat("cong_send_blocked") == before+1 })
	for i := range congRead {
		select {
		case err := <-sent:
			t.Fatalf("the sender was woken after %d of %d messages: %v", i, congRead, err)
		default:
		}
		expect(t, k, fill, from)
	}
	if err := <-sent; err != nil {
		t.Errorf("the sender was woken with %v", err)
	}
	var m rds.Message
	if err := s.RecvMsg(ctx, &m); err != nil || m.CongUpdate != congMask || m.Addr.IsValid() || m.Len != 0 {
		t.Errorf("notification %+v, %v; want %#x", m, err, congMask)
	}
	if err := s.TryRecvMsg(&m); !errors.Is(err, rds.ErrAgain) {
		t.Errorf("one notification too many: %+v, %v", m, err)
	}
	for range congFill - congRead {
		expect(t, k, fill, from)
	}
	expect(t, k, fill[:1], from)
	expect(t, k, []byte("woken"), from)
}

// unread counts the messages of this test's socket that the kernel holds unread.
func unread(t *testing.T, k *Socket) (n int) {
	t.Helper()
	all, err := k.RecvQueue()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Local == k.Addr() || m.Peer == k.Addr() { // which of the two is the receiver is a matter of taste
			n++
		}
	}
	return n
}

// slowKernel sends numbered messages to a kernel's socket that is read in bursts.
func slowKernel(ctx context.Context, t *testing.T, n *rds.Node, s *rds.Socket, k *Socket) {
	const total = 400
	before := n.Stat("cong_send_blocked")
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(total) {
			if err := s.Send(ctx, toRDS(k.Addr()), message(i+1, congMsg)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var got numbered
	for i := range total {
		if i%20 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		m, err := recvData(k, Patience)
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		got.take(m.Data)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if !got.clean(total) {
		t.Error(got.verdict(total))
	}
	Figure(t, "we-slept", n.Stat("cong_send_blocked")-before)
	Figure(t, "stream", got.verdict(total))
}

// kernelCounter reads one counter of the machine.
func kernelCounter(t *testing.T, k *Socket, name string) uint64 {
	t.Helper()
	c, err := k.Counters()
	if err != nil {
		t.Fatal(err)
	}
	v, ok := c[name]
	if !ok {
		t.Fatalf("the kernel has no counter %s", name)
	}
	return v
}

// congestUs fills our socket from the kernel's and empties it again.
func congestUs(ctx context.Context, t *testing.T, s *rds.Socket, k *Socket) {
	to := netip.AddrPortFrom(s.Addr().IP, s.Addr().Port)
	fill := pattern(congMsg, 2)
	recv := func(want []byte) {
		t.Helper()
		buf := make([]byte, congMsg+1)
		if n, from, err := s.Recv(ctx, buf); err != nil || from != toRDS(k.Addr()) || !bytes.Equal(buf[:n], want) {
			t.Fatalf("%d bytes from %v, %v; want %d", n, from, err, len(want))
		}
	}
	for range congFill {
		if err := k.TrySend(fill, to); err != nil {
			t.Fatal(err)
		}
	}
	maps := kernelCounter(t, k, "cong_update_received")
	if err := k.TrySend(fill[:1], to); err != nil {
		t.Fatalf("with R unread: %v", err)
	}
	eventually(t, "the map has come", func() bool { return kernelCounter(t, k, "cong_update_received") > maps })
	for _, m := range [][]byte{fill, nil} {
		if err := k.TrySend(m, to); !errors.Is(err, unix.ENOBUFS) {
			t.Errorf("kernel sends %d bytes to a congested port: %v", len(m), err)
		}
	}
	if err := k.TrySend(fill, netip.AddrPortFrom(to.Addr(), to.Port()+1)); err != nil {
		t.Errorf("kernel sends to another port: %v", err)
	}
	before := kernelCounter(t, k, "cong_send_blocked")
	sent := make(chan error, 1)
	go func() {
		_, err := k.SendBlocking([]byte("woken"), to, 2*Patience)
		sent <- err
	}()
	eventually(t, "the kernel's sender sleeps", func() bool { return kernelCounter(t, k, "cong_send_blocked") > before })
	for i := range congRead {
		select {
		case err := <-sent:
			t.Fatalf("the kernel's sender was woken after %d of %d messages: %v", i, congRead, err)
		default:
		}
		recv(fill)
	}
	if err := <-sent; err != nil {
		t.Errorf("the kernel's sender: %v", err)
	}
	m, err := k.Recv(Patience)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Control) != 1 || m.Control[0].Header.Type != RDS_CMSG_CONG_UPDATE || m.From.IsValid() {
		t.Fatalf("%+v, want a congestion update alone", m)
	}
	if mask := binary.NativeEndian.Uint64(m.Control[0].Data); mask != congMask {
		t.Errorf("the kernel's notification says %#x, want %#x", mask, congMask)
	}
	for range congFill - congRead {
		recv(fill)
	}
	recv(fill[:1])
	recv([]byte("woken"))
}

// slowUs lets the kernel send numbered messages to our socket, which is read in bursts.
func slowUs(ctx context.Context, t *testing.T, s *rds.Socket, k *Socket) {
	const total = 400
	to := netip.AddrPortFrom(s.Addr().IP, s.Addr().Port)
	before := kernelCounter(t, k, "cong_send_blocked")
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(total) {
			if _, err := k.SendBlocking(message(i+1, congMsg), to, 2*Patience); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var got numbered
	buf := make([]byte, congMsg)
	for i := range total {
		if i%20 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		n, _, err := s.Recv(ctx, buf)
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		got.take(buf[:n])
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if !got.clean(total) {
		t.Error(got.verdict(total))
	}
	Figure(t, "kernel-slept", kernelCounter(t, k, "cong_send_blocked")-before)
	Figure(t, "stream", got.verdict(total))
}

// TestVanishedWhileCongested: a sender of ours sleeps before a kernel's congested port, and the network goes
// away. A socket with a time to give up does not sleep for ever (defect D12), and goes on when the kernel is back.
func TestVanishedWhileCongested(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		p := NewPair(t)
		k := p.KernelSocket(t, ours.Other(), path0Port)
		n, _ := p.Node(t, ours, nil)
		s, err := n.Bind(rds.AddrFrom(p.Addr(ours, false), path0Port), rds.WithGiveUp(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.SetRecvBuffer(congR); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
		defer cancel()
		to, from := toRDS(k.Addr()), netip.AddrPortFrom(s.Addr().IP, s.Addr().Port)
		fill := pattern(2*congR, 1)
		if err := s.Send(ctx, to, fill); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the map has come", func() bool { return congestedPorts(n, k) == 1 })
		sent := make(chan error, 1)
		go func() { sent <- s.Send(ctx, to, []byte("never")) }()
		time.Sleep(3 * time.Second)
		select {
		case err := <-sent:
			t.Fatalf("gave up on a kernel that is there: %v", err)
		default:
		}
		p.Netem(A, "loss", "100%")
		p.Netem(B, "loss", "100%")
		began := time.Now()
		if err := <-sent; !errors.Is(err, rds.ErrPeerGone) || !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("Send: %v", err)
		}
		Figure(t, "given-up-after", time.Since(began).Round(10*time.Millisecond))
		p.NetemDel(A)
		p.NetemDel(B)
		began = time.Now()
		eventually(t, "the kernel is back, and congested", func() bool { return errors.Is(s.TrySend(to, nil), rds.ErrCongested) })
		Figure(t, "back-after", time.Since(began).Round(10*time.Millisecond))
		expect(t, k, fill, from)
		if err := s.Send(ctx, to, []byte("again")); err != nil {
			t.Fatal(err)
		}
		expect(t, k, []byte("again"), from)
	})
}
