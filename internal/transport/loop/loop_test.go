package loop

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an engine that writes down what it gets.
type host struct {
	mu   sync.Mutex
	ends map[[2]netip.Addr]*end
	room bool // answer of Deliver
}

type end struct {
	h             *host
	link          transport.Link
	local, remote netip.Addr
	got           []transport.Inbound
	localMap      wire.CongMap
	remoteMap     wire.CongMap
	onDeliver     func()
}

func (h *host) NewLink(l transport.Link, local, remote netip.Addr) transport.Handler {
	h.mu.Lock()
	e := &end{h: h, link: l, local: local, remote: remote}
	h.ends[[2]netip.Addr{local, remote}] = e
	h.mu.Unlock()
	l.MapChanged() // as soon as the host knows of the link, it may be told
	return e
}
func (h *host) MayPeer(netip.Addr) bool                       { return true }
func (h *host) Refused(local, remote netip.AddrPort, _ error) {}

func (e *end) Deliver(m transport.Inbound) bool {
	if e.onDeliver != nil {
		e.onDeliver()
	}
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	m.Payload = bytes.Clone(m.Payload)
	if m.Buf != nil {
		m.Buf.Release()
	}
	e.got = append(e.got, m)
	return e.h.room
}
func (e *end) RemoteMap(m *wire.CongMap) { e.remoteMap = *m }
func (e *end) LocalMap(m *wire.CongMap)  { *m = e.localMap }
func (e *end) Event(transport.Event)     {}

type owner struct{ msgs, bytes int }

func (o *owner) Released(m, b int) { o.msgs += m; o.bytes += b }

var a, b = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.3")

func setup(t *testing.T) (*Transport, *host, transport.Link) {
	t.Helper()
	live := buffer.Live()
	h := &host{ends: map[[2]netip.Addr]*end{}, room: true}
	tr := New(Config{}, h)
	l, err := tr.Link(a, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tr.Close(0)
		if got := buffer.Live(); got != live {
			t.Errorf("%d buffers are live, %d before", got, live)
		}
	})
	return tr, h, l
}

func send(t *testing.T, l transport.Link, o transport.Owner, dport uint16, payload string) {
	t.Helper()
	p := []byte(payload)
	if err := l.Send(transport.Message{SPort: 7, DPort: dport, Payload: p, Owner: o}); err != nil {
		t.Fatal(err)
	}
	clear(p)
}

func TestSendDeliversAndAcknowledges(t *testing.T) {
	tr, h, l := setup(t)
	back, err := tr.Link(b, a)
	if again, _ := tr.Link(a, b); err != nil || again != l || len(h.ends) != 2 {
		t.Fatalf("links %v and %v, %d ends, error %v", l, again, len(h.ends), err)
	}
	self, _ := tr.Link(a, a)
	o := &owner{}
	large := string(bytes.Repeat([]byte("x"), 100_000))
	send(t, l, o, 5, "one")
	send(t, l, o, 6, large)
	send(t, back, o, 8, "")
	send(t, self, nil, 9, "self")
	for _, tc := range []struct {
		e    *end
		want []string
	}{
		{h.ends[[2]netip.Addr{b, a}], []string{"one", large}},
		{h.ends[[2]netip.Addr{a, b}], []string{""}},
		{h.ends[[2]netip.Addr{a, a}], []string{"self"}},
	} {
		if len(tc.e.got) != len(tc.want) {
			t.Fatalf("%v <- %v: %d messages, want %d", tc.e.local, tc.e.remote, len(tc.e.got), len(tc.want))
		}
		for i, m := range tc.e.got {
			if string(m.Payload) != tc.want[i] || m.SPort != 7 || m.Seq != uint64(i)+1 || m.Retransmitted || (m.Buf != nil) != (len(m.Payload) > lendMax) {
				t.Errorf("%v <- %v: message %d is %d bytes, %+v", tc.e.local, tc.e.remote, i, len(m.Payload), m)
			}
		}
	}
	if o.msgs != 3 || o.bytes != 3+len(large) {
		t.Errorf("owner was told of %d messages of %d bytes", o.msgs, o.bytes)
	}
	if p := l.Info().Paths[0]; p.NextTx != 3 || p.NextRx != 2 || p.State != "UP" {
		t.Errorf("info %+v", p)
	}
	n := 0
	tr.Links(func(transport.Link) { n++ })
	if n != 3 {
		t.Errorf("%d links, want 3", n)
	}
}

func TestMaps(t *testing.T) {
	tr, h, l := setup(t)
	e := h.ends[[2]netip.Addr{a, b}]
	e.localMap.Set(5)
	l.MapChanged()
	if !h.ends[[2]netip.Addr{b, a}].remoteMap.Has(5) || h.ends[[2]netip.Addr{a, b}].remoteMap.Has(5) {
		t.Error("the map went to the wrong end")
	}
	self, _ := tr.Link(a, a)
	se := h.ends[[2]netip.Addr{a, a}]
	se.localMap.Set(6)
	self.MapChanged()
	if !se.remoteMap.Has(6) {
		t.Error("a link to itself has no map")
	}
}

// TestNewLinkBeginsWithTheMap that is there already.
func TestNewLinkBeginsWithTheMap(t *testing.T) {
	h := &congested{host{ends: map[[2]netip.Addr]*end{}, room: true}}
	tr := New(Config{}, h)
	defer tr.Close(0)
	tr.Link(a, b)
	if e := h.ends[[2]netip.Addr{a, b}]; !e.remoteMap.Has(9) {
		t.Error("the new link does not know the other end's congestion")
	}
}

// congested is a host all of whose links have a congested port from the start.
type congested struct{ host }

func (h *congested) NewLink(l transport.Link, local, remote netip.Addr) transport.Handler {
	e := h.host.NewLink(l, local, remote).(*end)
	e.localMap.Set(9)
	return e
}

func TestPing(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		h := &host{ends: map[[2]netip.Addr]*end{}, room: true}
		tr := New(Config{DisablePing: disabled}, h)
		l, _ := tr.Link(a, b)
		o := &owner{}
		send(t, l, o, wire.PingPort, "ignored")
		l.Send(transport.Message{SPort: 0, DPort: wire.PingPort}) // nobody to answer to
		got := h.ends[[2]netip.Addr{a, b}].got
		if disabled {
			if len(got) != 0 {
				t.Errorf("answered: %+v", got)
			}
		} else if len(got) != 1 || got[0].SPort != 0 || got[0].DPort != 7 || len(got[0].Payload) != 0 {
			t.Errorf("answers %+v, want one empty message from port 0 to port 7", got)
		}
		if o.msgs != 1 || len(h.ends[[2]netip.Addr{b, a}].got) != 0 {
			t.Errorf("ping acknowledged %d times, delivered %d times", o.msgs, len(h.ends[[2]netip.Addr{b, a}].got))
		}
		tr.Close(0)
	}
}

// TestWaitsForRoom: what is sent while the receiving side is full waits, can be
// counted and cancelled, and comes in order when it is resumed.
func TestWaitsForRoom(t *testing.T) {
	_, h, l := setup(t)
	e := h.ends[[2]netip.Addr{b, a}]
	h.room = false
	o, o2 := &owner{}, &owner{}
	send(t, l, o, 5, "taken") // "no more" is said of the next
	send(t, l, o, 5, "waits")
	send(t, l, o2, 5, "cancelled")
	send(t, l, o, 6, "other port")
	send(t, l, o2, 6, "last")
	if len(e.got) != 1 || o.msgs != 1 {
		t.Fatalf("%d delivered, %d acknowledged, want 1", len(e.got), o.msgs)
	}
	if m, n := l.Pending(o, 5, false); m != 1 || n != 5 {
		t.Errorf("%d messages of %d bytes pending, want 1 of 5", m, n)
	}
	if m, n := l.Cancel(o2, 5, false); m != 1 || n != 9 {
		t.Errorf("%d messages of %d bytes cancelled, want 1 of 9", m, n)
	}
	if p := l.Info().Paths[0]; p.Queued != 3 || p.QueuedBytes != 19 {
		t.Errorf("info %+v", p)
	}
	e.link.Resume() // still full: one more
	if len(e.got) != 2 {
		t.Errorf("%d delivered, want 2", len(e.got))
	}
	h.room = true
	e.link.Resume()
	var got []string
	for _, m := range e.got {
		got = append(got, string(m.Payload))
	}
	if len(got) != 4 || got[1] != "waits" || got[2] != "other port" || got[3] != "last" {
		t.Errorf("got %q", got)
	}
	send(t, l, o, 5, "at once")
	if len(e.got) != 5 || o.msgs != 4 || o2.msgs != 1 {
		t.Errorf("%d delivered, %d and %d acknowledged", len(e.got), o.msgs, o2.msgs)
	}
}

// TestResumeDuringDeliver: Resume may cross the answer that makes it necessary.
func TestResumeDuringDeliver(t *testing.T) {
	_, h, l := setup(t)
	e := h.ends[[2]netip.Addr{b, a}]
	h.room = false
	e.onDeliver = func() { e.link.Resume() }
	for range 5 {
		send(t, l, nil, 5, "x")
	}
	if len(e.got) != 5 {
		t.Errorf("%d delivered, want all 5: each time there was room again", len(e.got))
	}
}

func TestPongsAreNotKept(t *testing.T) {
	_, h, l := setup(t)
	e := h.ends[[2]netip.Addr{a, b}]
	h.room = false
	for range 5 {
		send(t, l, nil, wire.PingPort, "")
	}
	if len(e.got) != 1 {
		t.Errorf("%d pongs, want 1: then the pinging side was full", len(e.got))
	}
}

func TestClose(t *testing.T) {
	tr, h, l := setup(t)
	h.room = false
	send(t, l, &owner{}, 5, "taken")
	send(t, l, &owner{}, 5, "waits")
	if err := tr.Close(0); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing again: %v", err)
	}
	if err := l.Send(transport.Message{DPort: 5}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
	if _, err := tr.Link(b, b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Link after Close: %v", err)
	}
	h.ends[[2]netip.Addr{b, a}].link.Resume()
	if n := len(h.ends[[2]netip.Addr{b, a}].got); n != 1 {
		t.Errorf("%d delivered, want 1", n)
	}
}

// TestLinkAtOnce: everybody gets the same link, ready for use.
func TestLinkAtOnce(t *testing.T) {
	for range 50 {
		h := &host{ends: map[[2]netip.Addr]*end{}, room: true}
		tr := New(Config{}, h)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				from, to := a, b
				if i%2 == 1 {
					from, to = b, a
				}
				l, err := tr.Link(from, to)
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Send(transport.Message{SPort: 1, DPort: 5, Payload: []byte("x")}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(h.ends[[2]netip.Addr{a, b}].got) + len(h.ends[[2]netip.Addr{b, a}].got); n != 8 || len(h.ends) != 2 {
			t.Fatalf("%d messages at %d ends", n, len(h.ends))
		}
		tr.Close(0)
	}
}
