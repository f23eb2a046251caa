package rds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// testAddr is an address for a node that no other test is likely to use, of this
// process or of another one.
func testAddr() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(64 + rand.IntN(128)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
}

// localPair is two sockets on two addresses of one node.
func localPair(tb testing.TB) (s, r *Socket) {
	tb.Helper()
	n, err := NewNode(Config{Addrs: []netip.Addr{testAddr(), testAddr()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	s = mustBind(tb, n, 4000)
	if r, err = n.Bind(AddrFrom(n.Addrs()[1], 4000)); err != nil {
		tb.Fatal(err)
	}
	return s, r
}

// BenchmarkLocal is Send and Recv of one message between two addresses of a node:
// everything but the wire.
func BenchmarkLocal(b *testing.B) {
	for _, size := range []int{0, 64, 1024, 65536} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			s, r := localPair(b)
			p, q, to := make([]byte, size), make([]byte, size), r.Addr()
			ctx := context.Background()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := s.Send(ctx, to, p); err != nil {
					b.Fatal(err)
				}
				if _, _, err := r.Recv(ctx, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// raceDetector says that the test runs under the race detector, where sync.Pool
// forgets things at random.
var raceDetector bool

// TestNoAllocation: no call allocates per message in the steady state.
func TestNoAllocation(t *testing.T) {
	if raceDetector {
		t.Skip("pools allocate under the race detector")
	}
	s, r := localPair(t)
	s.Connect(r.Addr())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	to, buf, to2 := r.Addr(), make([]byte, 1000), r.LocalAddr()
	out := []Message{{Addr: to, Payload: buf[:10]}, {Addr: to, Payload: buf[:10]}}
	in := []Message{{Payload: buf[:10]}, {Payload: buf[:10]}}
	for name, f := range map[string]func(){
		"Send, Recv":           func() { s.Send(ctx, to, buf); r.Recv(ctx, buf) },
		"TrySend, TryRecv":     func() { s.TrySend(to, buf); r.TryRecv(buf) },
		"WriteTo, ReadFrom":    func() { s.WriteTo(buf, to2); r.ReadFrom(buf) },
		"Write, Read":          func() { s.Write(buf); r.Read(buf) },
		"Send, Next":           func() { s.Send(ctx, to, buf); m, _ := r.Next(ctx); m.Release() },
		"SendBatch, RecvBatch": func() { s.SendBatch(ctx, out); r.RecvBatch(ctx, in) },
	} {
		f()
		if n := testing.AllocsPerRun(1000, f); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
