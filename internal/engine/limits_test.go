package engine

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
)

// deliver sends n messages of size bytes in, and returns how many the link took
// until it was told "no more" (n if it was not).
func deliver(l *fakeLink, port uint16, n, size int) int {
	for i := range n {
		if !l.handler.Deliver(transport.Inbound{SPort: 1, DPort: port, Payload: make([]byte, size)}) {
			return i + 1
		}
	}
	return n
}

func take(t *testing.T, s *Socket, n int) {
	t.Helper()
	for range n {
		if _, err := s.TryRecv(nil, new(Delivery)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPeerLimit(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int
		full int // messages until "no more": 128 bytes each besides the payload
	}{
		{"payload", 1000 - overhead, 11},
		{"flood of empty messages", 0, 79}, // 78.1 fit
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFake(t, Config{PeerQueueLimit: 10000}, here, here2)
			l, same, other := e.to(here, there), e.to(here2, there), e.to(here, nowhere)
			s := bind(t, e.Engine, here+":5")
			bind(t, e.Engine, here2+":5")
			if n := deliver(l, 5, 1000, tc.size); n != tc.full {
				t.Fatalf("no more after %d messages, want %d", n, tc.full)
			}
			if deliver(l, 6, 1, 0) != 1 || same.handler.Deliver(transport.Inbound{DPort: 6}) {
				t.Error("a full peer may go on, on another port or address")
			}
			if !other.handler.Deliver(transport.Inbound{DPort: 5, Payload: make([]byte, 1)}) {
				t.Error("another peer may not go on")
			}
			half := tc.full - (5000 / (tc.size + overhead))
			take(t, s, half-1)
			if l.resumed() != 0 {
				t.Error("resumed with more than half of the limit held")
			}
			take(t, s, 1)
			if l.resumed() != 1 || same.resumed() != 1 || other.resumed() != 0 {
				t.Errorf("resumed %d, %d, and another peer %d times; want 1, 1, 0", l.resumed(), same.resumed(), other.resumed())
			}
			if !l.handler.Deliver(transport.Inbound{DPort: 5}) {
				t.Error("no more, after being resumed")
			}
			if got := counter(e.Engine, "recv_queue_limit"); got != 1 {
				t.Errorf("recv_queue_limit = %d, want 1", got)
			}
			s.Close()
			if got := e.Connections()[0].UnreadBytes; got != 0 {
				t.Errorf("%d bytes on the account of an empty queue", got)
			}
		})
	}
}

// TestPeerLimitHoldsLentMessages until they are released.
func TestPeerLimitHoldsLentMessages(t *testing.T) {
	e := newFake(t, Config{PeerQueueLimit: 10000}, here)
	l := e.to(here, there)
	s := bind(t, e.Engine, here+":5")
	deliver(l, 5, 2, 8000)
	var a, b Held
	s.Next(t.Context(), &a, new(Delivery))
	s.Next(t.Context(), &b, new(Delivery))
	a.Release()
	if l.resumed() != 0 {
		t.Error("resumed while a message of 8000 bytes is lent")
	}
	b.Release()
	if l.resumed() != 1 {
		t.Error("not resumed")
	}
}

// TestNodeLimitIsShared: peers that take all they can get end up with equal shares,
// together below the limit, and there is room for one more.
func TestNodeLimitIsShared(t *testing.T) {
	const node = 1 << 20
	e := newFake(t, Config{PeerQueueLimit: 1 << 30, NodeQueueLimit: node}, here)
	s := bind(t, e.Engine, here+":5")
	s.SetRecvBuffer(1 << 30)
	var links []*fakeLink
	for _, a := range []string{"10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4"} {
		links = append(links, e.to(here, a))
	}
	full := map[*fakeLink]bool{}
	for len(full) < len(links) {
		for _, l := range links {
			if !full[l] && deliver(l, 5, 1, 1000-overhead) == 1 && l.handler.(*conn).peer.full() {
				full[l] = true
			}
		}
	}
	sum := int64(0)
	for _, l := range links {
		b := l.handler.(*conn).peer.holding.bytes.Load()
		sum += b
		if share := int64(node * 8 / 33); b < share*9/10 || b > share*11/10 {
			t.Errorf("a peer holds %d bytes, want about %d", b, share)
		}
	}
	if sum > node {
		t.Errorf("together they hold %d bytes, the limit is %d", sum, node)
	}
	late := e.to(here, "10.0.1.9")
	if deliver(late, 5, 10, 1000-overhead) != 10 {
		t.Error("there is no room for a newcomer")
	}
	// Whoever comes to nothing may always go on, even at the limit.
	e.limits.held.Add(node)
	last := e.to(here, "10.0.1.10")
	if n := deliver(last, 5, 10, 1); n != 1 {
		t.Errorf("at the limit a peer delivered %d messages before it was stopped, want 1", n)
	}
	e.limits.held.Add(-node)
	for s.info().RecvMessages > 0 {
		take(t, s, 1)
	}
	for i, l := range append(links, last) {
		if l.resumed() != 1 {
			t.Errorf("link %d was resumed %d times", i, l.resumed())
		}
	}
	if h := e.limits.held.Load(); h < 0 || h > 5*e.limits.quantum {
		t.Errorf("held = %d with nothing held", h)
	}
}

// TestOthersReadingResumes a peer that was stopped by the node's limit.
func TestOthersReadingResumes(t *testing.T) {
	e := newFake(t, Config{PeerQueueLimit: 1 << 30, NodeQueueLimit: 1 << 20}, here)
	hog, small := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here+":6")
	big, l := e.to(here, there), e.to(here, nowhere)
	deliver(big, 5, 1<<20, 1000)
	for !l.handler.(*conn).peer.full() {
		deliver(l, 6, 1, 1000)
	}
	if small.info().RecvMessages == 0 || l.resumed() != 0 {
		t.Fatal("nothing to test")
	}
	for hog.info().RecvMessages > 0 {
		take(t, hog, 1)
	}
	if l.resumed() != 1 {
		t.Error("not resumed although the node has room")
	}
}

// TestLimitRaces: whatever the timing, a link that was told "no more" is resumed.
func TestLimitRaces(t *testing.T) {
	e := newFake(t, Config{PeerQueueLimit: 2000}, here, here2)
	s, r := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here2+":5")
	// The loop transport stops and waits for Resume; so messages stay if one is
	// missing.
	const n = 20000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			if err := s.Send(t.Context(), r.addr, make([]byte, 10)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range n {
		if _, err := r.Recv(t.Context(), nil, new(Delivery)); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	wg.Wait()
	if m, _ := s.PendingAll(); m != 0 {
		t.Errorf("%d messages are not acknowledged", m)
	}
}

// TestLoopWaitsAtTheLimit: with a full receiver local messages wait unacknowledged,
// so the sender's buffer bounds them, and nothing is lost or out of order.
func TestLoopWaitsAtTheLimit(t *testing.T) {
	e := newFake(t, Config{PeerQueueLimit: 1000, SendBuffer: 2304}, here, here2)
	s, r := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here2+":5")
	sent := 0
	for ; ; sent++ {
		err := s.TrySend(r.addr, []byte{byte(sent)})
		if errors.Is(err, ErrAgain) {
			break
		}
		wantErr(t, "send", err, nil)
	}
	if want := 8 + 2304; sent != want { // 8 × 129 bytes pass 1000
		t.Errorf("%d messages were taken, want %d", sent, want)
	}
	for i := range sent {
		var p [1]byte
		if _, err := r.TryRecv(p[:], new(Delivery)); err != nil || p[0] != byte(i) {
			t.Fatalf("message %d: got %d, error %v", i, p[0], err)
		}
	}
	if m, b := s.PendingAll(); m != 0 || b != 0 {
		t.Errorf("%d messages of %d bytes are pending", m, b)
	}
}

func TestMaxPeers(t *testing.T) {
	var mu sync.Mutex
	var got []Event
	e := newFake(t, Config{MaxPeers: 2, Listener: func(ev Event) { mu.Lock(); got = append(got, ev); mu.Unlock() }}, here)
	s := bind(t, e.Engine, here+":5")
	wantErr(t, "the node itself is no peer", s.TrySend(s.addr, nil), nil)
	wantErr(t, "first peer", s.TrySend(ap("10.0.0.21:1"), nil), nil)
	wantErr(t, "second peer", s.TrySend(ap("10.0.0.22:1"), nil), nil)
	err := s.TrySend(ap("10.0.0.23:1"), nil)
	wantErr(t, "third peer", err, ErrPeerLimit)
	if err == nil || !strings.Contains(err.Error(), "Config.MaxPeers is 2") {
		t.Errorf("error %q does not name the limit", err)
	}
	if !e.MayPeer(netip.MustParseAddr("10.0.0.21")) || e.MayPeer(netip.MustParseAddr("10.0.0.24")) {
		t.Error("known peers may connect, further ones may not")
	}
	e.Refused(ap(here+":16385"), ap("10.0.0.24:40000"), errors.New("no"))
	e.Engine.Close()
	if len(got) != 1 || got[0].Kind != Refused || !errors.Is(got[0].Err, ErrPeerLimit) || got[0].Remote.String() != "10.0.0.24" {
		t.Errorf("events %+v, want one Refused", got)
	}
}

func TestAllowPeers(t *testing.T) {
	pfx := netip.MustParsePrefix
	for _, tc := range []struct {
		allow []netip.Prefix
		peer  string
		want  bool
	}{
		{nil, "203.0.113.9", true},
		{[]netip.Prefix{}, "203.0.113.9", false},
		{[]netip.Prefix{pfx("10.0.0.0/8")}, "10.1.2.3", true},
		{[]netip.Prefix{pfx("10.0.0.0/8")}, "::ffff:10.1.2.3", true},
		{[]netip.Prefix{pfx("::ffff:10.0.0.0/104")}, "10.1.2.3", true},
		{[]netip.Prefix{pfx("10.0.0.0/8")}, "11.1.2.3", false},
		{[]netip.Prefix{pfx("fe80::/64")}, "fe80::7%eth0", true},
		{[]netip.Prefix{pfx("fd00::/16"), pfx("10.0.0.0/8")}, "10.0.0.1", true},
	} {
		e := newFake(t, Config{AllowPeers: tc.allow}, here)
		if got := e.MayPeer(netip.MustParseAddr(tc.peer)); got != tc.want {
			t.Errorf("AllowPeers %v: MayPeer(%s) = %v", tc.allow, tc.peer, got)
		}
	}
}

// TestEventsAreOrderedAndNeverBlock: a listener that does not return loses events,
// and they are counted.
func TestEventsAreOrderedAndNeverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var got []Event
		d := newDispatcher(func(ev Event) { <-block; got = append(got, ev) })
		for i := range eventQueue + 100 {
			d.emit(Event{Count: i})
			if i == 0 {
				synctest.Wait() // the listener has it
			}
		}
		if n := d.lost.Load(); n != 99 {
			t.Errorf("%d events lost, want 99", n)
		}
		close(block)
		d.close()
		d.emit(Event{})
		d.close()
		if len(got) != eventQueue+1 {
			t.Errorf("%d events came, want %d", len(got), eventQueue+1)
		}
		for i, ev := range got {
			if ev.Count != i || ev.At.IsZero() {
				t.Fatalf("event %d is %+v", i, ev)
			}
		}
	})
}

// TestEventsOfLinks: which link events become which events, and what is counted.
func TestEventsOfLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []EventKind
		var last Event
		e := newFake(t, Config{Listener: func(ev Event) { kinds = append(kinds, ev.Kind); last = ev }}, here)
		h := e.to(here, there).handler
		for _, tc := range []struct {
			e    transport.Event
			want []EventKind
		}{
			{transport.Event{Kind: transport.EventUp, Path: 0}, []EventKind{PathUp, PeerUp}},
			{transport.Event{Kind: transport.EventUp, Path: 3}, []EventKind{PathUp}},
			{transport.Event{Kind: transport.EventDown, Path: 0}, []EventKind{PathDown}},
			{transport.Event{Kind: transport.EventDown, Path: 3, Count: 7}, []EventKind{PathDown, PeerDown}},
			{transport.Event{Kind: transport.EventPeerKnown, Own: true}, []EventKind{PeerKnown}},
			{transport.Event{Kind: transport.EventPeerRestarted, Count: 5}, []EventKind{PeerRestarted}},
			{transport.Event{Kind: transport.EventProtocol}, []EventKind{ProtocolError}},
			{transport.Event{Kind: transport.EventRefused}, []EventKind{Refused}},
			{transport.Event{Kind: transport.EventDialFailed}, []EventKind{DialFailed}},
		} {
			kinds = nil
			h.Event(tc.e)
			synctest.Wait()
			if len(kinds) != len(tc.want) || kinds[0] != tc.want[0] || kinds[len(kinds)-1] != tc.want[len(tc.want)-1] {
				t.Errorf("link event %+v became %v, want %v", tc.e, kinds, tc.want)
			}
			if last.Local.String() != here || last.Remote.String() != there || last.Count != tc.e.Count || last.Own != tc.e.Own || last.Path != tc.e.Path {
				t.Errorf("link event %+v became %+v", tc.e, last)
			}
		}
		// Repetitions are thinned out to one a second for each kind.
		kinds = nil
		time.Sleep(time.Second)
		for range 50 {
			h.Event(transport.Event{Kind: transport.EventDialFailed})
			h.Event(transport.Event{Kind: transport.EventPeerKnown})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		n := map[EventKind]int{}
		for _, k := range kinds {
			n[k]++
		}
		if n[DialFailed] != 5 || n[PeerKnown] != 50 {
			t.Errorf("%d DialFailed and %d PeerKnown in 5 s, want 5 and 50", n[DialFailed], n[PeerKnown])
		}
		h.Event(transport.Event{Kind: transport.EventDialFailed})
		synctest.Wait()
		if last.Suppressed != 9 {
			t.Errorf("Suppressed = %d, want 9", last.Suppressed)
		}
		for name, want := range map[string]uint64{"conn_reset": 2, "dials_failed": 52, "protocol_errors": 1, "connections_refused": 1, "peer_restarts": 1} {
			if got := counter(e.Engine, name); got != want {
				t.Errorf("%s = %d, want %d", name, got, want)
			}
		}
	})
}

// TestReserve: messages count against the limit from the moment when they begin to arrive.
func TestReserve(t *testing.T) {
	e := newFake(t, Config{PeerQueueLimit: 100_000}, here)
	l, other := e.to(here, there), e.to(here, nowhere)
	c := l.handler.(*conn)
	s := bind(t, e.Engine, here+":5")
	held := func(want int64) {
		t.Helper()
		if got := c.peer.holding.bytes.Load(); got != want {
			t.Errorf("%d bytes on the account, want %d", got, want)
		}
	}
	for range 2 { // the second one passes the limit
		if !c.Reserve(60_000) {
			t.Fatal("no room")
		}
	}
	held(120_000)
	if c.Reserve(20_000) {
		t.Error("room beyond the limit")
	}
	if !other.handler.(*conn).Reserve(20_000) {
		t.Error("no room for another peer")
	}
	whole := func(port uint16) transport.Inbound {
		b := buffer.Get(60_000)
		return transport.Inbound{SPort: 1, DPort: port, Payload: b.B[:60_000], Buf: b, Reserved: true}
	}
	if l.handler.Deliver(whole(5)) {
		t.Error("may go on")
	}
	held(120_000 + overhead)
	take(t, s, 1)
	held(60_000)
	l.handler.Deliver(whole(6)) // nobody has the port
	held(0)
	if l.resumed() != 1 {
		t.Errorf("resumed %d times", l.resumed())
	}
	c.Reserve(1 << 20)
	if c.Reserve(1) {
		t.Error("room beyond the limit")
	}
	c.Unreserve(1 << 20) // the stream was cut
	held(0)
	if l.resumed() != 2 || !c.Reserve(1) {
		t.Errorf("resumed %d times", l.resumed())
	}
}
