package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
)

// TestDeliverAll: a batch leaves sockets, accounts and counters as its messages one by one do.
func TestDeliverAll(t *testing.T) {
	live := buffer.Live()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		one, many := newFake(t, Config{}, here), newFake(t, Config{}, here)
		lo, lm := one.to(here, there), many.to(here, there)
		ports := []uint16{3000, 3001, 3002}
		var so, sm []*Socket
		for _, p := range ports[:2] { // nobody on the third
			for _, x := range []struct {
				e  *Engine
				to *[]*Socket
			}{{one.Engine, &so}, {many.Engine, &sm}} {
				s := bind(t, x.e, fmt.Sprintf("%s:%d", here, p))
				s.SetRecvBuffer(20_000)
				*x.to = append(*x.to, s)
			}
		}
		var batch []transport.Inbound
		port := ports[0]
		for i := range 1 + rng.IntN(64) {
			if rng.IntN(4) == 0 {
				port = ports[rng.IntN(3)]
			}
			batch = append(batch, transport.Inbound{SPort: uint16(i), DPort: port, Payload: pattern(i, rng.IntN(5000)), Retransmitted: i%3 == 0})
		}
		for _, m := range batch {
			lo.handler.Deliver(m)
		}
		if !lm.handler.(*conn).DeliverAll(batch) {
			t.Error("no more")
		}
		for i := range so {
			if a, b := so[i].local.cong.has(ports[i]), sm[i].local.cong.has(ports[i]); a != b {
				t.Errorf("port %d congested: %v one by one, %v together", ports[i], a, b)
			}
		}
		if a, b := lo.handler.(*conn).peer.holding.bytes.Load(), lm.handler.(*conn).peer.holding.bytes.Load(); a != b {
			t.Errorf("peer holds %d bytes one by one, %d together", a, b)
		}
		for _, name := range []string{"recv_queued", "recv_drop_no_sock", "recv_bytes_added_to_sock"} {
			if a, b := counter(one.Engine, name), counter(many.Engine, name); a != b {
				t.Errorf("%s: %d one by one, %d together", name, a, b)
			}
		}
		for i := range so {
			p, q := make([]byte, 5000), make([]byte, 5000)
			for {
				var d, e Delivery
				n, err := so[i].TryRecv(p, &d)
				m, err2 := sm[i].TryRecv(q, &e)
				if n != m || err != err2 || !bytes.Equal(p[:n], q[:m]) || d != e {
					t.Fatalf("%d bytes, %v, %+v one by one; %d bytes, %v, %+v together", n, err, d, m, err2, e)
				}
				if err != nil {
					break
				}
			}
		}
		if n := lm.handler.(*conn).peer.holding.bytes.Load(); n != 0 {
			t.Errorf("%d bytes held after all was read", n)
		}
		sm[0].Close()
		if lm.handler.(*conn).DeliverAll([]transport.Inbound{{DPort: ports[0], Payload: pattern(1, 4000)}}); counter(many.Engine, "recv_drop_no_sock") == 0 {
			t.Error("a message to a closed socket is not counted")
		}
	}
	if n := buffer.Live(); n > live+100 {
		t.Errorf("%d buffers are not given back", n-live)
	}
}
