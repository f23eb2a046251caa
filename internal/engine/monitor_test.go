package engine

import (
	"testing"
	"testing/synctest"
)

// notice receives without waiting, as RecvMsg does.
func notice(t *testing.T, s *Socket) (mask uint64, err error) {
	t.Helper()
	d := Delivery{Notices: true}
	n, err := s.TryRecv(make([]byte, 10), &d)
	if d.CongUpdate != 0 && (n != 0 || d.From.IsValid()) {
		t.Errorf("a notification with %d bytes from %v", n, d.From)
	}
	return d.CongUpdate, err
}

// TestCongMonitor: which maps notify whom, and of what (defect D11).
func TestCongMonitor(t *testing.T) {
	const p, q, p64 = 3100, 3101, 3100 + 64 // p and p64 share a bit
	bit := func(ports ...uint16) (m uint64) {
		for _, p := range ports {
			m |= 1 << (p % 64)
		}
		return m
	}
	type step struct {
		there, nowhere []uint16 // maps that come from the two peers; nil: none
		send           string   // then this is tried
		want           error
		mask           uint64 // and then this is told
	}
	none := []uint16{}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"cleared", []step{{there: []uint16{p}, send: there + ":3100", want: ErrCongested}, {there: none, mask: bit(p)}, {there: []uint16{p}}, {there: none}}},
		{"still set", []step{{there: []uint16{p}, send: there + ":3100", want: ErrCongested}, {there: []uint16{p, q}}, {there: []uint16{p}}, {there: none, mask: 1 << 28}}},
		{"another port of the same bit", []step{{there: []uint16{p, p64}, send: there + ":3100", want: ErrCongested}, {there: []uint16{p}}, {there: none, mask: bit(p)}}},
		{"another peer", []step{{there: []uint16{p}, nowhere: []uint16{p}, send: there + ":3100", want: ErrCongested}, {nowhere: none}, {there: none, mask: bit(p)}}},
		{"not refused", []step{{there: []uint16{p}, send: there + ":3101"}, {there: none}}},
		{"several, in one notification", []step{
			{there: []uint16{p, q, p64}, send: there + ":3100", want: ErrCongested}, {send: there + ":3101", want: ErrCongested}, {send: there + ":3101", want: ErrCongested},
			{there: none, mask: bit(p, q)},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFake(t, Config{}, here)
			a, b := e.to(here, there), e.to(here, nowhere)
			s, off := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here+":6")
			s.SetCongMonitor(true)
			for i, st := range tc.steps {
				if st.there != nil {
					a.handler.RemoteMap(congest(st.there...))
				}
				if st.nowhere != nil {
					b.handler.RemoteMap(congest(st.nowhere...))
				}
				if st.send != "" {
					wantErr(t, "send", s.TrySend(ap(st.send), nil), st.want)
					wantErr(t, "send", off.TrySend(ap(st.send), nil), st.want)
				}
				mask, err := notice(t, s)
				if mask != st.mask || (err == nil) != (st.mask != 0) {
					t.Errorf("step %d: told %#x, %v; want %#x", i, mask, err, st.mask)
				}
				if mask, _ := notice(t, off); mask != 0 {
					t.Errorf("step %d: a socket without a monitor is told %#x", i, mask)
				}
			}
		})
	}
}

// TestCongMonitorOff forgets, and a closed socket is not kept.
func TestCongMonitorOff(t *testing.T) {
	e := newFake(t, Config{}, here)
	l := e.to(here, there)
	s := bind(t, e.Engine, here+":5")
	c := &l.handler.(*conn).peer.cong
	refuse := func() {
		t.Helper()
		l.handler.RemoteMap(congest(7))
		wantErr(t, "send", s.TrySend(ap(there+":7"), nil), ErrCongested)
	}
	s.SetCongMonitor(true)
	refuse()
	s.SetCongMonitor(false)
	if len(c.monitors) != 0 {
		t.Error("a monitor that is off is kept")
	}
	s.SetCongMonitor(true)
	l.handler.RemoteMap(congest())
	if mask, _ := notice(t, s); mask != 0 {
		t.Errorf("told %#x of before it was switched on", mask)
	}
	refuse()
	l.handler.RemoteMap(congest())
	s.SetCongMonitor(false)
	s.SetCongMonitor(true)
	if mask, _ := notice(t, s); mask != 0 {
		t.Errorf("told %#x of before it was switched off", mask)
	}
	refuse()
	s.Close()
	if len(c.monitors) != 0 {
		t.Error("a closed socket is kept")
	}
}

// TestCongMonitorMissesNothing: the port is cleared between the test and the entry.
func TestCongMonitorMissesNothing(t *testing.T) {
	e := newFake(t, Config{}, here)
	l := e.to(here, there)
	s := bind(t, e.Engine, here+":5")
	s.SetCongMonitor(true)
	s.monitor(l.handler.(*conn).peer, 7)
	if mask, _ := notice(t, s); mask != 1<<7 {
		t.Errorf("told %#x", mask)
	}
}

// TestCongMonitorWakes who takes notifications, before messages, and leaves others alone.
func TestCongMonitorWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{}, here)
		l := e.to(here, there)
		s := bind(t, e.Engine, here+":5")
		s.SetCongMonitor(true)
		var d Delivery
		plain := blocked(t, "Recv", func() error { _, err := s.Recv(t.Context(), make([]byte, 1), &d); return err })
		next := blocked(t, "Next", func() error { return s.Next(t.Context(), new(Held), new(Delivery)) })
		n := Delivery{Notices: true}
		msg := blocked(t, "RecvMsg", func() error { _, err := s.Recv(t.Context(), nil, &n); return err })
		l.handler.RemoteMap(congest(7))
		wantErr(t, "send", s.TrySend(ap(there+":7"), nil), ErrCongested)
		l.handler.RemoteMap(congest())
		if err, done := msg(); !done || err != nil || n.CongUpdate != 1<<7 {
			t.Errorf("RecvMsg: done %v, %v, %#x", done, err, n.CongUpdate)
		}
		for _, f := range []func() (error, bool){plain, next} {
			if _, done := f(); done {
				t.Error("a notification ended a call that does not take it")
			}
		}
		deliver(l, 5, 2, 1)
		for _, f := range []func() (error, bool){plain, next} {
			if err, done := f(); !done || err != nil {
				t.Errorf("done %v, %v", done, err)
			}
		}
		deliver(l, 5, 1, 1)
		l.handler.RemoteMap(congest(7))
		s.TrySend(ap(there+":7"), nil)
		l.handler.RemoteMap(congest())
		if mask, err := notice(t, s); mask != 1<<7 || err != nil {
			t.Errorf("a message came first: %#x, %v", mask, err)
		}
		if mask, err := notice(t, s); mask != 0 || err != nil {
			t.Errorf("then the message: %#x, %v", mask, err)
		}
	})
}
