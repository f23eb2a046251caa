package engine

import (
	"context"
	"net/netip"
	"testing"
)

func loopPair(tb testing.TB) (a, b *Socket) {
	tb.Helper()
	e, err := New(Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	if a, err = e.Bind(netip.MustParseAddrPort("127.0.0.1:4000"), nil); err != nil {
		tb.Fatal(err)
	}
	if b, err = e.Bind(netip.MustParseAddrPort("127.0.0.2:4000"), nil); err != nil {
		tb.Fatal(err)
	}
	return a, b
}

func benchmarkLoop(b *testing.B, size, burst int) {
	x, y := loopPair(b)
	p, q := make([]byte, size), make([]byte, size)
	ctx := context.Background()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	var d Delivery
	for i := 0; i < b.N; i += burst {
		for range burst {
			if err := x.Send(ctx, y.addr, p); err != nil {
				b.Fatal(err)
			}
		}
		for range burst {
			if _, err := y.Recv(ctx, q, &d); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkLoopSendRecv0(b *testing.B)      { benchmarkLoop(b, 0, 1) }
func BenchmarkLoopSendRecv64(b *testing.B)     { benchmarkLoop(b, 64, 1) }
func BenchmarkLoopSendRecv64x100(b *testing.B) { benchmarkLoop(b, 64, 100) }
func BenchmarkLoopSendRecv2k(b *testing.B)     { benchmarkLoop(b, 2048, 1) }
func BenchmarkLoopSendRecv64k(b *testing.B)    { benchmarkLoop(b, 65536, 1) }
