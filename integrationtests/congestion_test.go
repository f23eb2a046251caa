//go:build linux

package integrationtests

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/simnet"
)

// TestCongestion is an episode of congestion from end to end, over TCP and inside a node: refused without blocking, asleep
// with it, each wait ended by its context or deadline, woken and told when less than half is unread, nothing lost.
func TestCongestion(t *testing.T) {
	net := newSubnet()
	for _, tc := range []struct {
		name  string
		nodes func() (from, to *rds.Node)
	}{
		{"tcp", func() (from, to *rds.Node) { return net.node(t, 1, rds.Config{}), net.node(t, 2, rds.Config{}) }},
		{"tcp, other way", func() (from, to *rds.Node) { return net.node(t, 4, rds.Config{}), net.node(t, 3, rds.Config{}) }},
		{"loop", func() (from, to *rds.Node) {
			n, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{net.addr(5), net.addr(6)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Close() })
			return n, n
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := tc.nodes()
			s := bind(t, from, 4000, rds.WithCongMonitor(), rds.WithSendBuffer(20_000))
			dest := rds.AddrFrom(to.Addrs()[len(to.Addrs())-1], 3100)
			r, err := to.Bind(dest, rds.WithRecvBuffer(10_000))
			if err != nil {
				t.Fatal(err)
			}
			congested := func() (n int) {
				for _, c := range from.Connections() {
					if c.Remote == dest.IP && c.Local == s.Addr().IP {
						n = c.CongestedPorts
					}
				}
				return n
			}
			number := uint64(0)
			msg := func(size int) []byte {
				number++
				return append(binary.BigEndian.AppendUint64(nil, number), make([]byte, size-8)...)
			}
			for range 10 {
				if err := s.TrySend(dest, msg(1000)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Flush(limited(t)); err != nil {
				t.Fatal(err)
			}
			if err := s.TrySend(dest, msg(8)); err != nil {
				t.Fatalf("with R unread: %v", err)
			}
			until(t, "congested", func() bool { return congested() == 1 })

			if err := s.TrySend(dest, make([]byte, 20_001)); !errors.Is(err, syscall.EMSGSIZE) {
				t.Errorf("too long, to a congested port: %v", err)
			}
			if err := s.TrySend(dest, nil); !errors.Is(err, syscall.ENOBUFS) {
				t.Errorf("to a congested port: %v", err)
			}
			if err := s.TrySend(rds.AddrFrom(dest.IP, 3101), nil); err != nil {
				t.Errorf("to another port: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err = s.Send(ctx, dest, nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("the context's time is over: %v", err)
			}
			s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := s.WriteTo(nil, dest); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("the deadline is over: %v", err)
			}
			s.SetWriteDeadline(time.Time{})

			blocked := from.Stat("cong_send_blocked")
			woken := make(chan error, 1)
			last := msg(8)
			go func() { woken <- s.Send(context.Background(), dest, last) }()
			until(t, "asleep", func() bool { return from.Stat("cong_send_blocked") == blocked+1 })
			got := uint64(0)
			recv := func() {
				t.Helper()
				buf := make([]byte, 1000)
				if _, _, err := r.Recv(limited(t), buf); err != nil || binary.BigEndian.Uint64(buf) != got+1 {
					t.Fatalf("message %d after %d, %v", binary.BigEndian.Uint64(buf), got, err)
				}
				got++
			}
			for range 5 {
				recv() // 5008 bytes are left
			}
			if congested() != 1 {
				t.Error("clear with more than half of R unread")
			}
			select {
			case err := <-woken:
				t.Errorf("woken with more than half of R unread: %v", err)
			default:
			}
			recv()
			if err := <-woken; err != nil {
				t.Error(err)
			}
			var m rds.Message
			if err := s.RecvMsg(limited(t), &m); err != nil || m.CongUpdate != 1<<28 || m.Addr.IsValid() {
				t.Errorf("notification %+v, %v; RDS spec section 5 has %#x for port 3100", m, err, 1<<28)
			}
			if err := s.TryRecvMsg(&m); !errors.Is(err, rds.ErrAgain) {
				t.Errorf("one notification too many: %+v, %v", m, err)
			}
			for got < number {
				recv()
			}
		})
	}
}

// TestCongestedForEver is defect D12: the network is cut while a port of the peer is congested. Who waits goes on
// after Config.MapTimeout, and who gives up does so earlier.
func TestCongestedForEver(t *testing.T) {
	for _, peer := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			net := simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})
			t.Cleanup(net.Close)
			var r recorder
			away := simNode(t, net, peer, func(*rds.Config) {})
			node := simNode(t, net, 3-peer, func(c *rds.Config) { c.Events = r.events() })
			full := bind(t, away, 4000, rds.WithRecvBuffer(10_000))
			s, impatient := bind(t, node, 4000), bind(t, node, 4001, rds.WithGiveUp(20*time.Second))
			if err := errors.Join(s.Send(t.Context(), full.Addr(), make([]byte, 20_000)), s.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if n := r.count("congested"); n != 1 {
				t.Errorf("%d events of congestion", n)
			}
			begun := time.Now()
			type end struct {
				after time.Duration
				err   error
			}
			send := func(s *rds.Socket) chan end {
				c := make(chan end, 1)
				go func() {
					err := s.Send(context.Background(), full.Addr(), []byte("x"))
					c <- end{time.Since(begun), err}
				}()
				return c
			}
			waits, gives := send(s), send(impatient)
			time.Sleep(time.Hour) // both are patient with a peer that answers
			select {
			case e := <-waits:
				t.Fatalf("woken for nothing: %+v", e)
			case e := <-gives:
				t.Fatalf("gave up on a peer that answers: %+v", e)
			default:
			}
			begun = time.Now()
			net.Partition(simAddr(1), simAddr(2))
			if e := <-gives; !errors.Is(e.err, rds.ErrPeerGone) || e.after < 20*time.Second || e.after > 26*time.Second {
				t.Errorf("impatient: %v after %v", e.err, e.after)
			}
			e := <-waits
			if e.err != nil || e.after < time.Minute || e.after > 2*time.Minute {
				t.Errorf("patient: %v after %v", e.err, e.after)
			}
			time.Sleep(10 * time.Second)
			if n := r.count("clear"); n != 1 {
				t.Errorf("%d events that it is clear", n)
			}
			t.Logf("FIGURE peer %d: the patient sender went on %v after the peer had vanished", peer, e.after)
			away.Close()
		})
	}
}
