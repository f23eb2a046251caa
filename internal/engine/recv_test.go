package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
)

// pattern is n bytes that depend on seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed*31 + i*7 + i>>8)
	}
	return b
}

// TestReceive: sizes on both sides of all limits, truncation, order, sources.
func TestReceive(t *testing.T) {
	live := buffer.Live()
	e := newFake(t, Config{}, here)
	l, l2 := e.to(here, there), e.to(here, nowhere)
	s := bind(t, e.Engine, here+":3000")
	sizes := []int{0, 1, 511, 512, 1024, 2047, 2048, 2049, 5000, 16383, 16384, 100000}
	for i, n := range sizes {
		m := transport.Inbound{SPort: uint16(i), DPort: 3000, Payload: pattern(i, n), Retransmitted: i%2 == 1}
		if i%3 == 2 && n > 0 {
			m.Buf = buffer.Get(n)
			m.Payload = m.Buf.B[:copy(m.Buf.B, m.Payload)]
		}
		link := l
		if i%2 == 1 {
			link = l2
		}
		lent := m.Payload
		link.handler.Deliver(m)
		if m.Buf == nil {
			clear(lent) // it was only lent
		}
	}
	for i, n := range sizes {
		room := n
		if i%4 == 3 {
			room = n / 2
		}
		p := make([]byte, room+1)
		p[room] = 0xee
		var d Delivery
		got, err := s.TryRecv(p[:room], &d)
		if err != nil || got != room || d.Len != n {
			t.Fatalf("message %d of %d bytes into %d: got %d, Len %d, error %v", i, n, room, got, d.Len, err)
		}
		from := netip.AddrPortFrom([]*fakeLink{l, l2}[i%2].remote, uint16(i))
		if !bytes.Equal(p[:room], pattern(i, n)[:room]) || p[room] != 0xee {
			t.Errorf("message %d of %d bytes is damaged", i, n)
		}
		if d.From != from || d.Retransmitted != (i%2 == 1) || !d.Time.IsZero() {
			t.Errorf("message %d: %+v, want it from %v", i, d, from)
		}
	}
	_, err := s.TryRecv(nil, new(Delivery))
	wantErr(t, "nothing left", err, ErrAgain)
	s.Close()
	if got := buffer.Live(); got != live {
		t.Errorf("%d buffers are live, %d before", got, live)
	}
}

func TestTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{}, here)
		s := bind(t, e.Engine, here+":3000")
		s.SetTimestamps(true)
		begun := time.Now()
		s.TrySend(s.addr, nil)
		time.Sleep(time.Second)
		var d Delivery
		if _, err := s.TryRecv(nil, &d); err != nil || !d.Time.Equal(begun) {
			t.Errorf("time %v, error %v; want when it was queued, %v", d.Time, err, begun)
		}
	})
}

// TestNext: lent messages stay intact while others come and go, and after Close.
func TestNext(t *testing.T) {
	live := buffer.Live()
	e := newFake(t, Config{}, here)
	l := e.to(here, there)
	s := bind(t, e.Engine, here+":3000")
	peer := l.handler.(*conn).peer
	send := func(i, n int) {
		l.handler.Deliver(transport.Inbound{SPort: 1, DPort: 3000, Payload: pattern(i, n)})
	}
	const all = 300
	for i := range all {
		send(i, 10*i)
	}
	var held [all / 2]Held
	for i := range held {
		var d Delivery
		if err := s.Next(context.Background(), &held[i], &d); err != nil {
			t.Fatal(err)
		}
		if got := s.info().RecvMessages; got != all-i-1 {
			t.Fatalf("%d unread, want %d", got, all-i-1)
		}
	}
	before := peer.holding.bytes.Load()
	for range all - len(held) {
		s.TryRecv(nil, new(Delivery))
	}
	for i := range 100 {
		send(i+1000, 700) // would overwrite what was given up too early
	}
	s.Close()
	for i := range held {
		if !bytes.Equal(held[i].Payload(), pattern(i, 10*i)) {
			t.Fatalf("message %d is damaged", i)
		}
		held[i].Release()
	}
	if got := peer.holding.bytes.Load(); got != 0 {
		t.Errorf("%d bytes on the peer's account, want 0 (before: %d)", got, before)
	}
	if got := buffer.Live(); got != live {
		t.Errorf("%d buffers are live, %d before", got, live)
	}
}

// TestArenaAgainstModel: payloads stay as they were put until they are freed, in
// whatever order, and nothing is kept that is not needed.
func TestArenaAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		live := buffer.Live()
		type item struct {
			seed int
			p    []byte
			c    *chunk
		}
		var a arena
		var items []item
		for seed := range rapid.IntRange(1, 200).Draw(rt, "steps") {
			if len(items) == 0 || rapid.IntRange(0, 9).Draw(rt, "op") < 6 {
				n := rapid.IntRange(1, smallMax).Draw(rt, "size")
				p, c := a.put(pattern(seed, n))
				items = append(items, item{seed, p, c})
				continue
			}
			i := 0
			if rapid.Bool().Draw(rt, "lent") {
				i = rapid.IntRange(0, len(items)-1).Draw(rt, "which")
			}
			it := items[i]
			if !bytes.Equal(it.p, pattern(it.seed, len(it.p))) {
				rt.Fatalf("payload %d is damaged", it.seed)
			}
			a.free(it.c)
			items = append(items[:i], items[i+1:]...)
		}
		for _, it := range items {
			a.free(it.c)
		}
		if a.cur != nil && len(a.cur.buf.B) > keepChunk {
			rt.Fatalf("an empty arena keeps %d bytes", len(a.cur.buf.B))
		}
		a.close()
		if got := buffer.Live(); got != live {
			rt.Fatalf("%d buffers are live, %d before", got, live)
		}
	})
}

// TestArenaIsTight: many small payloads take little more than their bytes.
func TestArenaIsTight(t *testing.T) {
	var a arena
	chunks := map[*chunk]bool{}
	const n, size = 10000, 100
	for range n {
		_, c := a.put(make([]byte, size))
		chunks[c] = true
	}
	sum := 0
	for c := range chunks {
		sum += len(c.buf.B)
	}
	if sum > n*size*11/10+maxChunk {
		t.Errorf("%d payloads of %d bytes take %d bytes", n, size, sum)
	}
}

func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q queue
		var model []uint16
		var next uint16
		for range rapid.IntRange(1, 20).Draw(rt, "bursts") {
			for range rapid.IntRange(0, 100).Draw(rt, "in") {
				e := q.push()
				if e.payload != nil || e.chunk != nil || e.buf != nil || e.conn != nil || e.sport != 0 || e.again || e.at != 0 {
					rt.Fatal("an entry is not empty")
				}
				e.sport = next
				model = append(model, next)
				next++
			}
			for range min(rapid.IntRange(0, 120).Draw(rt, "out"), len(model)) {
				if got := q.front().sport; got != model[0] {
					rt.Fatalf("got %d, want %d", got, model[0])
				}
				q.pop()
				model = model[1:]
			}
			if q.n != len(model) {
				rt.Fatalf("%d entries, want %d", q.n, len(model))
			}
		}
	})
}

func TestQueueShrinks(t *testing.T) {
	var q queue
	burst := func(n int) {
		for range n {
			q.push()
		}
		for range n {
			q.pop()
		}
	}
	burst(10000)
	big := len(q.ring)
	burst(10000)
	if len(q.ring) != big {
		t.Errorf("a burst of the usual size left a ring of %d, before %d", len(q.ring), big)
	}
	burst(10)
	if len(q.ring) > 100 {
		t.Errorf("after a small burst the ring is still of %d", len(q.ring))
	}
}

// TestReadersAndSendersAtOnce: every message comes exactly once, and those of one
// sender in order, with several readers, blocking senders, both kinds of receiving,
// and changes of buffer sizes meanwhile.
func TestReadersAndSendersAtOnce(t *testing.T) {
	live := buffer.Live()
	a := newFake(t, Config{SendBuffer: 5000}, here, here2)
	r := bind(t, a.Engine, here2+":4000")
	r.SetRecvBuffer(4000)
	const senders, each = 4, 3000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var send, recv sync.WaitGroup
	for i := range senders {
		s := bind(t, a.Engine, fmt.Sprintf("%s:%d", here, 5000+i))
		send.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			buf := make([]byte, 5000)
			for k := range each {
				n := 8 + rng.IntN(64)
				if rng.IntN(20) == 0 {
					n = 8 + rng.IntN(4000)
				}
				binary.BigEndian.PutUint64(buf, uint64(k))
				if err := s.Send(ctx, r.addr, buf[:n]); err != nil {
					t.Errorf("sender %d: %v", i, err)
					return
				}
			}
			if err := s.Flush(ctx); err != nil {
				t.Errorf("flush of sender %d: %v", i, err)
			}
		})
	}
	var mu sync.Mutex
	seen := make([]map[uint64]bool, senders)
	for i := range seen {
		seen[i] = map[uint64]bool{}
	}
	for i := range 3 {
		recv.Go(func() {
			buf := make([]byte, 5000)
			last := make([]int64, senders)
			for i := range last {
				last[i] = -1
			}
			for {
				var d Delivery
				var h Held
				p := buf
				var err error
				if i == 0 {
					if err = r.Next(ctx, &h, &d); err == nil {
						p = h.Payload()
					}
				} else {
					_, err = r.Recv(ctx, buf, &d)
				}
				if err != nil {
					return
				}
				k, from := binary.BigEndian.Uint64(p), int(d.From.Port())-5000
				if i == 0 {
					h.Release()
				}
				if int64(k) <= last[from] {
					t.Errorf("reader %d got message %d of sender %d after %d", i, k, from, last[from])
				}
				last[from] = int64(k)
				mu.Lock()
				if seen[from][k] {
					t.Errorf("message %d of sender %d came twice", k, from)
				}
				seen[from][k] = true
				mu.Unlock()
			}
		})
	}
	send.Wait()
	for r.info().RecvMessages > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	r.Close()
	recv.Wait()
	for i, m := range seen {
		if len(m) != each {
			t.Errorf("%d of %d messages of sender %d came", len(m), each, i)
		}
	}
	if got := buffer.Live(); got != live {
		t.Errorf("%d buffers are live, %d before", got, live)
	}
	if n := a.locals[netip.MustParseAddr(here2)].cong.count(); n != 0 {
		t.Errorf("%d ports are congested after closing", n)
	}
}

// TestCloseRaces closes sockets and the node in the middle of everything.
func TestCloseRaces(t *testing.T) {
	live := buffer.Live()
	for range 20 {
		e := newFake(t, Config{RecvBuffer: 2000, SendBuffer: 4000}, here, here2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		socks := []*Socket{bind(t, e.Engine, here+":1000"), bind(t, e.Engine, here2+":1000"), bind(t, e.Engine, here+":1001")}
		for i, s := range socks {
			to := socks[(i+1)%3].addr
			wg.Go(func() {
				for s.Send(ctx, to, make([]byte, 300)) == nil {
				}
			})
			wg.Go(func() {
				for {
					if _, err := s.Recv(ctx, nil, new(Delivery)); err != nil {
						return
					}
				}
			})
			wg.Go(func() {
				var h Held
				for s.Next(ctx, &h, new(Delivery)) == nil {
					h.Release()
				}
			})
			wg.Go(func() {
				for range 20 {
					s.CancelAll()
					e.Counters()
					e.Sockets()
					e.Connections()
					s.Flush(ctx)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // a random moment
		wg.Go(func() { socks[0].Close() })
		wg.Go(func() { socks[1].Close() })
		wg.Go(func() {
			if s, err := e.Bind(socks[0].addr, nil); err == nil {
				s.Close()
			}
		})
		e.Engine.Close()
		wg.Wait()
		if ctx.Err() != nil {
			t.Fatal("somebody waited for ever")
		}
		cancel()
		for _, p := range e.peers {
			if n := p.holding.bytes.Load(); n != 0 {
				t.Fatalf("%d bytes on the account of %v", n, p.addr)
			}
		}
	}
	if got := buffer.Live(); got != live {
		t.Errorf("%d buffers are live, %d before", got, live)
	}
}

// raceDetector says that the test runs under the race detector, where sync.Pool
// forgets things at random.
var raceDetector bool

// TestNoAllocation: sending and receiving do not allocate in the steady state.
func TestNoAllocation(t *testing.T) {
	if raceDetector {
		t.Skip("pools allocate under the race detector")
	}
	e := newFake(t, Config{}, here, here2)
	s, r := bind(t, e.Engine, here+":1000"), bind(t, e.Engine, here2+":1000")
	far := e.to(here, there) // nobody there: messages are acknowledged at once
	ctx := context.Background()
	buf := make([]byte, 1<<20)
	s.SetSendBuffer(len(buf))
	s2 := bind(t, e.Engine, here+":1001")
	for _, tc := range []struct {
		name string
		f    func()
	}{
		{"send and receive nothing", func() { s.Send(ctx, r.addr, nil); r.Recv(ctx, buf, new(Delivery)) }},
		{"send and receive 64", func() { s.Send(ctx, r.addr, buf[:64]); r.Recv(ctx, buf, new(Delivery)) }},
		{"send and receive 64 KiB", func() { s.Send(ctx, r.addr, buf[:65536]); r.Recv(ctx, buf, new(Delivery)) }},
		{"a burst of 200", func() {
			for range 200 {
				s.TrySend(r.addr, buf[:64])
			}
			for range 200 {
				r.TryRecv(buf, new(Delivery))
			}
		}},
		{"two destinations in turn", func() {
			s2.Send(ctx, r.addr, nil)
			s2.Send(ctx, s.addr, nil)
			r.Recv(ctx, nil, new(Delivery))
			s.Recv(ctx, nil, new(Delivery))
		}},
		{"to another node", func() { s.Send(ctx, netip.AddrPortFrom(far.remote, 7), buf[:64]) }},
		{"without copying", func() {
			var h Held
			s.Send(ctx, r.addr, buf[:64])
			r.Next(ctx, &h, new(Delivery))
			h.Release()
		}},
	} {
		tc.f()
		if n := testing.AllocsPerRun(1000, tc.f); n >= 1 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
	}
}
