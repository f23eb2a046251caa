package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// TestCongestionThresholds has the observed rows of RDS spec section 19 for R.
func TestCongestionThresholds(t *testing.T) {
	type step struct {
		in, out int // deliver a message of in bytes, or receive out messages
		want    bool
	}
	for _, tc := range []struct {
		name  string
		r     int
		steps []step
	}{
		{"more than R sets, less than half clears", 10000, []step{
			{in: 1000}, {in: 9000, want: false}, {in: 1, want: true}, {out: 1, want: true}, {out: 1},
		}},
		{"observed", 10000, func() (s []step) {
			for range 10 {
				s = append(s, step{in: 1000})
			}
			return append(s, step{in: 1, want: true},
				step{out: 5, want: true}, // 5001 left
				step{out: 1})             // 4001 left
		}()},
		{"exactly half stays", 10000, []step{{in: 5001, want: false}, {in: 5000, want: true}, {out: 1, want: true}, {out: 1}}},
		{"half is rounded down", 2001, []step{{in: 1000}, {in: 1002, want: true}, {out: 1, want: true}, {out: 1}}},
		{"one message larger than R", 106496, []step{{in: 200000, want: true}, {out: 1}}},
		{"empty messages count nothing", 1152, []step{{in: 1152}, {in: 0}, {in: 0}, {out: 1}}},
		{"an empty message does not clear", 10000, []step{{in: 0}, {in: 10001, want: true}, {out: 1, want: true}, {out: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFake(t, Config{RecvBuffer: tc.r}, here)
			l := e.to(here, there)
			s := bind(t, e.Engine, here+":7001")
			for i, st := range tc.steps {
				if st.out == 0 {
					l.handler.Deliver(transport.Inbound{SPort: 1, DPort: 7001, Payload: make([]byte, st.in)})
				}
				for range st.out {
					if _, err := s.TryRecv(nil, new(Delivery)); err != nil {
						t.Fatal(err)
					}
				}
				m := l.localMap()
				if m.Has(7001) != st.want {
					t.Errorf("step %d (in %d, out %d): congested %v, want %v; %d bytes unread, R = %d",
						i, st.in, st.out, !st.want, st.want, s.info().RecvBytes, tc.r)
				}
				if st.want && (m[875] != 0x02 || e.locals[netip.MustParseAddr(here)].cong.count() != 1) {
					t.Errorf("step %d: byte 875 of the map is %#x, want 0x02 and nothing else", i, m[875])
				}
			}
		})
	}
}

// TestEmptyMessageDoesNotReevaluate: only a change of the unread bytes does, so a
// larger R shows with the first message that is not empty.
func TestEmptyMessageDoesNotReevaluate(t *testing.T) {
	e := newFake(t, Config{RecvBuffer: 10000}, here)
	l := e.to(here, there)
	s := bind(t, e.Engine, here+":7001")
	for _, n := range []int{0, 1, 10001} {
		l.handler.Deliver(inbound(7001, n))
	}
	s.SetRecvBuffer(100000)
	for i, want := range []bool{true, false, false} {
		s.TryRecv(nil, new(Delivery))
		if got := l.localMap().Has(7001); got != want {
			t.Errorf("after message %d: congested %v, want %v", i, got, want)
		}
	}
}

// TestCongestionObserved plays the congestion part of RDS spec section 19 between
// two nodes.
func TestCongestionObserved(t *testing.T) {
	a, b := newFake(t, Config{}, here), newFake(t, Config{RecvBuffer: 10000}, there)
	join(a, b)
	s, r := bind(t, a.Engine, here+":3000"), bind(t, b.Engine, there+":3100")
	to := r.addr
	send := func(what string, to netip.AddrPort, n int, want error) {
		t.Helper()
		wantErr(t, what, s.TrySend(to, make([]byte, n)), want)
	}
	recv := func(n int) {
		t.Helper()
		for range n {
			if _, err := r.TryRecv(nil, new(Delivery)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 10 {
		send("fill", to, 1000, nil)
	}
	send("10000 are unread, one byte more", to, 1, nil)
	send("10001 are unread", to, 1, ErrCongested)
	send("empty message", to, 0, ErrCongested)
	send("another port", ap(there+":3101"), 1, nil)
	send("a port of the same bit in a monitor", ap(there+":3164"), 1, nil)
	recv(5)
	send("5001 are unread", to, 1, ErrCongested)
	recv(1)
	send("4001 are unread", to, 1, nil)

	r.SetRecvBuffer(3000)
	send("SetRecvBuffer does not look", to, 0, nil)
	send("the next message is taken", to, 1, nil)
	send("and congests", to, 1, ErrCongested)
	r.Close()
	send("closing clears", to, 1, nil)
	if got := counter(b.Engine, "recv_drop_no_sock"); got != 3 {
		t.Errorf("recv_drop_no_sock = %d, want 3", got) // two to other ports, one after closing
	}
	if got := counter(a.Engine, "cong_send_error"); got != 4 {
		t.Errorf("cong_send_error = %d, want 4", got)
	}
	if got := counter(b.Engine, "cong_update_queued"); got != 4 {
		t.Errorf("cong_update_queued = %d, want 4", got)
	}
	if got := counter(a.Engine, "cong_update_received"); got != 4 {
		t.Errorf("cong_update_received = %d, want 4", got)
	}
}

// TestCongestionOfOwnAddress is defect D21: a message between two local addresses
// congests the receiving one.
func TestCongestionOfOwnAddress(t *testing.T) {
	a, b := newFake(t, Config{}, here, here2), newFake(t, Config{}, there)
	join(a, b)
	s, r, far := bind(t, a.Engine, here+":3000"), bind(t, a.Engine, here2+":3401"), bind(t, b.Engine, there+":3000")
	r.SetRecvBuffer(1152)
	for _, to := range []string{here + ":1", here2 + ":1"} { // make the links
		far.TrySend(ap(to), nil)
	}
	wantErr(t, "overfill", s.TrySend(r.addr, make([]byte, 1153)), nil)
	for _, tc := range []struct {
		s    *Socket
		to   string
		want error
	}{
		{s, here2 + ":3401", ErrCongested},
		{s, here + ":3401", nil},
		{far, here2 + ":3401", ErrCongested},
		{far, here + ":3401", nil},
		{far, here2 + ":3402", nil},
		{r, here2 + ":3401", ErrCongested}, // itself
	} {
		wantErr(t, fmt.Sprintf("%v -> %s", tc.s.addr, tc.to), tc.s.TrySend(ap(tc.to), []byte("x")), tc.want)
	}
	r.TryRecv(nil, new(Delivery))
	wantErr(t, "local, cleared", s.TrySend(r.addr, nil), nil)
	wantErr(t, "remote, cleared", far.TrySend(r.addr, nil), nil)
}

// TestCongMapAgainstModel compares replace, has and who is woken with the obvious.
func TestCongMapAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var c congMap
		model := new(wire.CongMap)
		port := rapid.SampledFrom([]uint16{0, 5, 6, 63, 64, 69, 70, 134, 65535}) // some differ by 64
		ports := rapid.SliceOfN(port, 1, 6)
		waiting := map[uint16]*waiter{}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			p := port.Draw(rt, "port")
			switch rapid.IntRange(0, 3).Draw(rt, "op") {
			case 0:
				old := *model
				*model = *congest(ports.Draw(rt, "ports")...)
				c.replace(model)
				for p, w := range waiting {
					cleared := old.Has(p) && !model.Has(p)
					if woken := len(w.ch) == 1; woken != cleared {
						rt.Fatalf("port %d cleared %v, waiter woken %v", p, cleared, woken)
					}
					if cleared {
						got := rapid.Bool().Draw(rt, "token taken")
						if got {
							<-w.ch
						}
						c.done(w, got) // or gave up at this moment
						if len(w.ch) != 0 {
							rt.Fatal("a token is left in a waiter that is done")
						}
						delete(waiting, p)
					}
				}
			case 1:
				if waiting[p] == nil {
					w := &waiter{ch: make(chan struct{}, 1)}
					waits := c.wait(p, w, nil)
					if waits != model.Has(p) {
						rt.Fatalf("port %d congested %v, waits %v", p, model.Has(p), waits)
					}
					if waits {
						waiting[p] = w
					}
				}
			case 2:
				if w := waiting[p]; w != nil {
					c.done(w, false) // gave up
					delete(waiting, p)
				}
			case 3:
				c.set(p)
				model.Set(p)
			}
			var m wire.CongMap
			c.copyTo(&m)
			if m != *model {
				rt.Fatal("maps differ")
			}
			if len(c.waits) != len(waiting) {
				rt.Fatalf("%d wait, want %d", len(c.waits), len(waiting))
			}
		}
	})
}

// TestMapOfVanishedPeerIsForgotten is defect D12.
func TestMapOfVanishedPeerIsForgotten(t *testing.T) {
	up := func(path int) transport.Event { return transport.Event{Kind: transport.EventUp, Path: path} }
	down := func(path int) transport.Event { return transport.Event{Kind: transport.EventDown, Path: path} }
	for _, tc := range []struct {
		name string
		do   func(l *fakeLink)
		want error
	}{
		{"down for a minute", func(l *fakeLink) {
			l.handler.Event(down(0))
			time.Sleep(time.Minute)
		}, nil},
		{"down for less", func(l *fakeLink) {
			l.handler.Event(down(0))
			time.Sleep(time.Minute - 1)
		}, ErrCongested},
		{"up again in time", func(l *fakeLink) {
			l.handler.Event(down(0))
			time.Sleep(time.Minute - 1)
			l.handler.Event(up(1))
			time.Sleep(time.Hour)
		}, ErrCongested},
		{"another path is up", func(l *fakeLink) {
			l.handler.Event(up(1))
			l.handler.Event(down(0))
			time.Sleep(time.Hour)
		}, ErrCongested},
		{"restarted", func(l *fakeLink) {
			l.handler.Event(down(0))
			l.handler.Event(up(0))
			l.handler.Event(transport.Event{Kind: transport.EventPeerRestarted})
		}, nil},
		{"restarted, and its map has come before the handshake", func(l *fakeLink) {
			l.handler.Event(down(0))
			l.handler.Event(up(0))
			l.handler.RemoteMap(congest(3100))
			l.handler.Event(transport.Event{Kind: transport.EventPeerRestarted})
		}, ErrCongested},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newFake(t, Config{}, here)
				l := e.to(here, there)
				s := bind(t, e.Engine, here+":3000")
				l.handler.Event(up(0))
				l.handler.RemoteMap(congest(3100))
				wantErr(t, "before", s.TrySend(ap(there+":3100"), nil), ErrCongested)
				tc.do(l)
				synctest.Wait()
				wantErr(t, "after", s.TrySend(ap(there+":3100"), nil), tc.want)
			})
		})
	}
}

func counter(e *Engine, name string) uint64 {
	for _, c := range e.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}
