package tcp

import (
	"fmt"
	"testing"

	"github.com/rds-go/rds/internal/transport"
)

// BenchmarkOneWay streams messages from one node to another on this machine.
func BenchmarkOneWay(b *testing.B) {
	for _, size := range []int{64, 1024, 8192, 65536} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			x, y, _, _, _, _ := newPair(b, Config{})
			l := mustLink(b, x, y)
			o := newTestOwner()
			p := make([]byte, size)
			window := max(4<<20/size, 16)
			b.SetBytes(int64(size + 48))
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				o.take(window)
				l.Send(transport.Message{SPort: 1, DPort: 2, Payload: p[:size:size], Owner: o, AckSoon: i%(window/4) == 0})
			}
			o.wait(0)
		})
	}
}
