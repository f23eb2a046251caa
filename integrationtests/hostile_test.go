//go:build linux

package integrationtests

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/wire"
)

// attacker is a plain TCP connection to the RDS port of a node.
type attacker struct {
	*net.TCPConn
	t testing.TB
}

// attack connects from an address; nil if the node or the system refuses.
func attack(t testing.TB, from, to netip.Addr) *attacker {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: patience}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(context.Background(), "tcp4", netip.AddrPortFrom(to, rds.DefaultPort).String())
	if err != nil {
		return nil
	}
	return &attacker{c.(*net.TCPConn), t}
}

// frame is a frame of a peer that is not ours.
func frame(h wire.Header, payload []byte) []byte {
	h.Len = uint32(len(payload))
	return append(h.AppendTo(nil), payload...)
}

// dropped waits until the node has closed the connection, and throws away what it says.
func (a *attacker) dropped() bool {
	a.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, a)
	return !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// goodPeer asks an echo service again and again, one message at a time, until it is stopped.
type goodPeer struct {
	t       testing.TB
	s       *rds.Socket
	stop    context.CancelFunc
	wg      sync.WaitGroup
	answers atomic.Uint64
	longest time.Duration // of an answer
}

func newGoodPeer(t testing.TB, s *rds.Socket, to rds.Addr) *goodPeer {
	ctx, stop := context.WithCancel(context.Background())
	g := &goodPeer{t: t, s: s, stop: stop}
	g.wg.Go(func() {
		buf := make([]byte, 1000)
		for n := uint64(1); ; n++ {
			size := 8 + rand.IntN(900)
			binary.BigEndian.PutUint64(buf, n)
			begun := time.Now()
			if err := s.Send(ctx, to, buf[:size]); err != nil {
				return
			}
			got, _, err := s.Recv(ctx, buf)
			if err != nil {
				return
			}
			if got != size || binary.BigEndian.Uint64(buf) != n {
				t.Errorf("good peer: %d bytes with number %d, want %d with %d", got, binary.BigEndian.Uint64(buf), size, n)
				return
			}
			g.longest = max(g.longest, time.Since(begun))
			g.answers.Add(1)
		}
	})
	return g
}

// goesOn waits for some more answers.
func (g *goodPeer) goesOn(n uint64) {
	g.t.Helper()
	want := g.answers.Load() + n
	until(g.t, "the good peer is served", func() bool { return g.answers.Load() >= want })
}

func (g *goodPeer) end() {
	g.t.Helper()
	g.goesOn(10)
	g.stop()
	g.wg.Wait()
	g.t.Logf("FIGURE good peer: %d answers meanwhile, longest %v", g.answers.Load(), g.longest.Round(time.Microsecond))
}

// echoNode is a node with an echo service, and a good peer that uses it. Attackers come from addresses
// below 100 (as dialling peers do) and above.
func echoNode(t testing.TB, cfg rds.Config) (subnet, *rds.Node, *goodPeer) {
	t.Helper()
	net := newSubnet()
	node := net.node(t, 100, cfg)
	echo := bind(t, node, echoPort)
	go func() {
		buf := make([]byte, 1000)
		for {
			n, from, err := echo.Recv(context.Background(), buf)
			if err != nil {
				return
			}
			echo.Send(context.Background(), from, buf[:n])
		}
	}()
	return net, node, newGoodPeer(t, bind(t, net.node(t, 50, rds.Config{}), 5000), echo.Addr())
}

// heap is the live heap in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // pools let go at the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var (
	probe   = frame(wire.Header{Seq: 1, SPort: wire.ProbePort, DPort: wire.PingPort, Ext: (&wire.Handshake{NPaths: 1, SportIdx: true}).Area()}, nil)
	ownItem = frame(wire.Header{Seq: 1, SPort: wire.ProbePort, DPort: wire.PingPort, Ext: (&wire.Handshake{NPaths: 1, SportIdx: true, Own: true, OwnGeneration: 7, Features: wire.FeatureCsum}).Area()}, nil)
)

// sealed sets the checksum of a frame as own peers do.
func sealed(f []byte) []byte {
	wire.HeaderView(f[:wire.HeaderLen]).Seal()
	return f
}

// TestHostileInput: what strangers may send costs them their connection, and nobody else anything.
func TestHostileInput(t *testing.T) {
	overrun := wire.Header{Seq: 1, SPort: wire.ProbePort, DPort: wire.PingPort}
	for i := range overrun.Ext {
		overrun.Ext[i] = 5 // NPATHS again and again, to the end and beyond
	}
	garbage := func(seed uint64) []byte {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 100_000)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] |= 0x80 // a length that no frame has stands at offset 16
		b[16] |= 0x80
		return b
	}
	for _, tc := range []struct {
		name  string
		conns int
		send  func(i int) []byte
		drops bool // else the connection is kept
	}{
		{"garbage", 200, func(i int) []byte { return garbage(uint64(i)) }, true},
		{"length of 4 GiB", 200, func(int) []byte { return (&wire.Header{Seq: 1, Len: 1<<32 - 1, SPort: 5, DPort: 6}).AppendTo(nil) }, true},
		{"one byte too long", 200, func(int) []byte { return (&wire.Header{Seq: 1, Len: 1<<20 + 1, SPort: 5, DPort: 6}).AppendTo(nil) }, true},
		{"long ping", 200, func(int) []byte { return (&wire.Header{Seq: 1, Len: 1 << 20, SPort: 5}).AppendTo(nil) }, true},
		{"wrong checksum of an own peer", 200, func(i int) []byte {
			bad := sealed(frame(wire.Header{Seq: 2, SPort: 5, DPort: 6}, nil))
			bad[i%wire.HeaderLen] ^= 1 << (i % 8)
			return append(ownItem[:len(ownItem):len(ownItem)], bad...)
		}, true},
		{"half a header", 20, func(int) []byte { return probe[:24] }, false},
		{"overrunning extensions", 20, func(int) []byte { return frame(overrun, nil) }, false},
		{"map of a wrong length", 20, func(int) []byte { return frame(wire.Header{Flags: wire.FlagCongBitmap}, make([]byte, 100)) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r recorder
			net, node, good := echoNode(t, rds.Config{Events: r.events()})
			good.goesOn(10)
			before, begun := heap(), time.Now()
			attackers := make([]*attacker, 0, tc.conns)
			for i := range tc.conns {
				a := attack(t, net.addr(1+i%20), node.Addrs()[0])
				if a == nil {
					t.Fatalf("connection %d failed", i)
				}
				attackers = append(attackers, a)
				a.Write(tc.send(i))
				if tc.drops && !a.dropped() {
					t.Errorf("connection %d is kept", i)
				}
			}
			if !tc.drops {
				good.goesOn(10)
				for i, a := range attackers {
					a.SetReadDeadline(time.Now().Add(time.Millisecond))
					if _, err := io.Copy(io.Discard, a); err != nil && !isTimeout(err) || err == nil {
						t.Errorf("connection %d was dropped: %v", i, err)
					}
				}
			}
			took := time.Since(begun)
			t.Logf("FIGURE %d connections, heap %+d KiB", tc.conns, (heap()-before)>>10)
			for _, a := range attackers {
				a.Close()
			}
			good.end()
			errors, events := node.Stat("protocol_errors"), r.count("protocol")
			t.Logf("FIGURE protocol_errors %d, events %d (20 addresses, %v)", errors, events, took.Round(time.Millisecond))
			if most := 20 * (2 + int(took/time.Second)); events > most {
				t.Errorf("%d events, want at most %d", events, most)
			}
			if tc.drops && (errors != uint64(tc.conns) || events == 0) || !tc.drops && errors != 0 {
				t.Errorf("protocol_errors = %d after %d connections, %d events", errors, tc.conns, events)
			}
		})
	}
}

// TestHeaderBitFlips: each bit of the headers of a short conversation is flipped once. The node may take it for
// something else or drop the connection, but nothing worse.
func TestHeaderBitFlips(t *testing.T) {
	net, node, good := echoNode(t, rds.Config{})
	sink := bind(t, node, sinkPort)
	conversation := [][]byte{
		frame(wire.Header{Flags: wire.FlagCongBitmap}, make([]byte, wire.MapLen)),
		probe,
		frame(wire.Header{Seq: 2, SPort: 5, DPort: sinkPort}, []byte("hello")),
	}
	flips, dropped := 0, uint64(0)
	for k := range conversation {
		for bit := range wire.HeaderLen * 8 {
			a := attack(t, net.addr(1+flips%40), node.Addrs()[0])
			if a == nil {
				t.Fatalf("flip %d: no connection", flips)
			}
			for i, f := range conversation {
				if i == k {
					f = append([]byte(nil), f...)
					f[bit/8] ^= 1 << (bit % 8)
				}
				a.Write(f)
			}
			a.CloseWrite()
			if !a.dropped() {
				t.Errorf("frame %d, bit %d: the connection is still there after its end", k, bit)
			}
			a.Close()
			flips++
		}
	}
	dropped = node.Stat("protocol_errors")
	good.end()
	got := 0
	for {
		if _, _, err := sink.TryRecv(nil); err != nil {
			break
		}
		got++
	}
	t.Logf("FIGURE %d flips, %d connections dropped for them, %d messages taken", flips, dropped, got)
	if got < flips/2 || dropped == 0 {
		t.Error("the conversation was not understood")
	}
}

// TestOneByteAtATime: a slow peer is a peer.
func TestOneByteAtATime(t *testing.T) {
	net, node, good := echoNode(t, rds.Config{})
	sink := bind(t, node, sinkPort)
	a := attack(t, net.addr(1), node.Addrs()[0])
	defer a.Close()
	data := append(probe[:len(probe):len(probe)], frame(wire.Header{Seq: 2, SPort: 5, DPort: sinkPort}, []byte("hello"))...)
	data = append(data, frame(wire.Header{Seq: 3, SPort: 5, DPort: sinkPort}, make([]byte, 20000))...)
	a.SetNoDelay(true)
	for i := range data {
		if _, err := a.Write(data[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{5, 20000} {
		if n, from, err := sink.Recv(limited(t), make([]byte, 20001)); n != want || from != rds.AddrFrom(net.addr(1), 5) || err != nil {
			t.Errorf("got %d bytes from %v: %v", n, from, err)
		}
	}
	good.end()
}

// TestPingFlood: whoever asks and does not read the answers does not fill our memory.
func TestPingFlood(t *testing.T) {
	for _, own := range []bool{false, true} {
		name, hello := "kernel", probe
		if own {
			name, hello = "own", ownItem
		}
		t.Run(name, func(t *testing.T) {
			var r recorder
			net, node, good := echoNode(t, rds.Config{Events: r.events()})
			good.goesOn(10)
			before := heap()
			a := attack(t, net.addr(1), node.Addrs()[0])
			defer a.Close()
			a.SetReadBuffer(64 << 10)
			a.Write(hello)
			pings := 0
			var batch []byte
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && pings < 500_000; {
				batch = batch[:0]
				for range 1000 {
					pings++
					batch = append(batch, sealed(frame(wire.Header{Seq: uint64(1 + pings), SPort: 777}, nil))...)
				}
				if _, err := a.Write(batch); err != nil {
					t.Fatal(err)
				}
			}
			until(t, "pings are not answered", func() bool { return node.Stat("pings_unanswered") > 0 })
			until(t, "event", func() bool { return r.count("ping limit") > 0 })
			grown := heap() - before
			good.end()
			t.Logf("FIGURE %d pings, %d answered, %d not, %d events, heap %+d KiB", pings, node.Stat("recv_ping"), node.Stat("pings_unanswered"),
				r.count("ping limit"), grown>>10)
			if grown > 64<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
		})
	}
}

// TestPartialFrames: many connections that each begin a message of 1 MiB and send no more of it.
func TestPartialFrames(t *testing.T) {
	net, node, good := echoNode(t, rds.Config{})
	good.goesOn(10)
	begin := (&wire.Header{Seq: 2, Len: 1 << 20, SPort: 5, DPort: 6}).AppendTo(probe[:len(probe):len(probe)])
	for _, sent := range []int{0, 100_000} {
		before, conns := heap(), 0
		var attackers []*attacker
		for i := range 200 {
			if a := attack(t, net.addr(1+i/5), node.Addrs()[0]); a != nil {
				attackers = append(attackers, a)
				a.Write(append(begin[:len(begin):len(begin)], make([]byte, sent)...))
				conns++
			}
		}
		until(t, "all is read", func() bool {
			n := 0
			for _, c := range node.Connections() {
				for _, p := range c.Paths {
					if p.State == "UP" {
						n++
					}
				}
			}
			return n > 40
		})
		good.goesOn(10)
		grown := heap() - before
		t.Logf("FIGURE %d connections, 1 MiB announced and %d bytes sent on each: heap %+d KiB, %d KiB a connection", conns, sent, grown>>10, grown>>10/int64(conns))
		if most := int64(conns) * 256 << 10; grown > most {
			t.Errorf("the heap has grown by %d bytes, want at most %d", grown, most)
		}
		for _, a := range attackers {
			a.Close()
		}
	}
	good.end()
}

// TestStrangers get nothing through, whatever they send, and in both roles.
func TestStrangers(t *testing.T) {
	var r recorder
	net := newSubnet()
	node := net.node(t, 100, rds.Config{AllowPeers: []netip.Prefix{netip.PrefixFrom(net.addr(50), 32)}, Events: r.events()})
	s := bind(t, node, 4000)
	for i := range 100 {
		a := attack(t, net.addr(1+i*2), node.Addrs()[0])
		if a == nil {
			continue // refused so fast that it was not even connected
		}
		a.Write(append(probe[:len(probe):len(probe)], frame(wire.Header{Seq: 2, SPort: 5, DPort: 4000}, []byte("hello"))...))
		a.SetReadDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(a); len(b) > 0 || isTimeout(err) {
			t.Errorf("a stranger got %d bytes, %v", len(b), err)
		}
		a.Close()
	}
	if _, _, err := s.TryRecv(nil); !errors.Is(err, rds.ErrAgain) {
		t.Errorf("a message of a stranger: %v", err)
	}
	until(t, "all are refused", func() bool { return node.Stat("connections_refused") == 100 })
	if n := len(node.Connections()); n != 0 {
		t.Errorf("%d connections", n)
	}
	if err := s.TrySend(rds.AddrFrom(net.addr(1), 1), nil); !errors.Is(err, rds.ErrNotAllowed) {
		t.Errorf("sending to a stranger: %v", err)
	}
	friend := bind(t, net.node(t, 50, rds.Config{}), 4000)
	if err := friend.Send(limited(t), s.Addr(), []byte("hello")); err != nil {
		t.Error(err)
	}
	if n, _, err := s.Recv(limited(t), make([]byte, 10)); n != 5 || err != nil {
		t.Errorf("from the friend: %d bytes, %v", n, err)
	}
	t.Logf("FIGURE 100 connections refused, %d events", r.count("refused"))
}

// TestConnectStorm: 10,000 connections come and go at a process that may open 128 descriptors.
func TestConnectStorm(t *testing.T) {
	total := 10_000
	if testing.Short() {
		total = 1000
	}
	net := newSubnet()
	srv := startServer(t, net.addr(100), 128)
	peer := net.node(t, 50, rds.Config{})
	ask := bind(t, peer, 5001)
	good := newGoodPeer(t, bind(t, peer, 5000), srv.echo())
	good.goesOn(10)
	heapBefore := srv.ask(ask, "heap")
	goroutines := srv.ask(ask, "goroutines")
	begun := time.Now()
	var made, failed atomic.Int64
	var wg sync.WaitGroup
	const workers = 50
	for w := range workers {
		wg.Go(func() {
			var kept []*attacker
			for i := range total / workers {
				from := net.addr(1 + w)
				if w%5 == 4 {
					from = net.addr(101 + w)
				}
				if w == 49 {
					from = net.addr(99)
				}
				a := attack(t, from, srv.ip)
				if a == nil {
					failed.Add(1)
					continue
				}
				made.Add(1)
				switch i % 4 {
				case 0:
					a.Close()
				case 1:
					a.SetLinger(0)
					a.Close()
				case 2:
					a.Write(probe[:i%48])
					a.Close()
				case 3:
					if kept = append(kept, a); len(kept) > 5 {
						kept[0].Close()
						kept = kept[1:]
					}
				}
			}
			for _, a := range kept {
				a.Close()
			}
		})
	}
	wg.Wait()
	t.Logf("FIGURE %d connections made, %d failed, in %v", made.Load(), failed.Load(), time.Since(begun).Round(time.Millisecond))
	good.goesOn(10)
	// A newcomer is served as well once it is over.
	late := newGoodPeer(t, bind(t, net.node(t, 60, rds.Config{}), 5000), srv.echo())
	late.end()
	good.end()
	until(t, "the server's goroutines end", func() bool { return srv.ask(ask, "goroutines") <= goroutines+60 })
	t.Logf("FIGURE server: heap %d KiB before, %d after; %d goroutines before, %d after; refused %d, dials failed %d", heapBefore>>10, srv.ask(ask, "heap")>>10,
		goroutines, srv.ask(ask, "goroutines"), srv.ask(ask, "counter connections_refused"), srv.ask(ask, "counter dials_failed"))
}
