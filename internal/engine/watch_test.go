package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// recorder is a listener that keeps what it hears.
type recorder struct {
	mu  sync.Mutex
	evs []Event
}

func (r *recorder) listen(ev Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evs = append(r.evs, ev)
}

// take returns the kinds of the events since the last call, and the last event.
func (r *recorder) take() (kinds []EventKind, last Event) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.evs {
		kinds = append(kinds, ev.Kind)
		last = ev
	}
	r.evs = nil
	return kinds, last
}

func (r *recorder) want(t *testing.T, what string, want ...EventKind) Event {
	t.Helper()
	kinds, last := r.take()
	if !slices.Equal(kinds, want) {
		t.Errorf("%s: events %v, want %v", what, kinds, want)
	}
	return last
}

func (l *fakeLink) took(bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tcp = bytes
}

// TestStall: what is progress and what is not.
func TestStall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every func(l *fakeLink, i uint64) // done each second
		stall bool
	}{
		{"nothing happens", func(*fakeLink, uint64) {}, true},
		{"acknowledgements", func(l *fakeLink, _ uint64) { l.ack(1) }, false},
		{"a long message trickles", func(l *fakeLink, i uint64) { l.took(100 * i) }, false},
		{"a stopped process takes the same again on each connection", func(l *fakeLink, i uint64) { l.took(50000 * (i % 2)) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				e := newFake(t, Config{Listener: r.listen}, here)
				l := e.to(here, there).holding()
				s := bind(t, e.Engine, here+":5")
				for range 20 {
					wantErr(t, "send", s.TrySend(ap(there+":6"), []byte("x")), nil)
				}
				for i := range uint64(13) {
					tc.every(l, i+1)
					time.Sleep(time.Second)
				}
				if !tc.stall {
					r.want(t, "moving")
					return
				}
				if !e.Connections()[0].Stalled {
					t.Error("Connections does not show it")
				}
				if ev := r.want(t, "stalled", PeerStalled); ev.Count != 20 || ev.Remote.String() != there || ev.Local.String() != here || ev.Err == nil {
					t.Errorf("%+v", ev)
				}
				l.ack(1)
				time.Sleep(3 * time.Second)
				r.want(t, "one acknowledgement", PeerRecovered)
				if got := counter(e.Engine, "peer_stalls"); got != 1 {
					t.Errorf("peer_stalls = %d", got)
				}
			})
		})
	}
}

// TestWatchStops when there is nothing to watch, and starts again.
func TestWatchStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		e := newFake(t, Config{Listener: r.listen, StallTimeout: 4 * time.Second}, here)
		l := e.to(here, there).holding()
		s := bind(t, e.Engine, here+":5")
		for range 3 {
			s.TrySend(ap(there+":6"), nil)
			w := &l.handler.(*conn).watch
			if !w.on.Load() {
				t.Fatal("not watched")
			}
			time.Sleep(5 * time.Second)
			r.want(t, "stalled", PeerStalled)
			s.CancelAll()
			time.Sleep(time.Second)
			synctest.Wait()
			r.want(t, "nothing is left", PeerRecovered)
			if w.on.Load() {
				t.Error("an idle connection is watched")
			}
			time.Sleep(time.Hour)
		}
		local := bind(t, e.Engine, here+":6")
		local.TrySend(local.addr, nil)
		time.Sleep(time.Hour)
		r.want(t, "local messages")
	})
}

// TestGiveUp: a socket that gives up after 8 s and a patient one, with messages to a silent
// peer and to a slow one, and calls of Send and Flush that wait for them.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		e := newFake(t, Config{Listener: r.listen, StallTimeout: time.Hour, GiveUp: 8 * time.Second, SendBuffer: 2304}, here)
		dead, slow := e.to(here, there).holding(), e.to(here, nowhere).holding()
		s, patient := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here+":6")
		wantErr(t, "SetGiveUp", patient.SetGiveUp(0), nil)
		wantErr(t, "SetGiveUp", patient.SetGiveUp(-1), ErrInvalid)
		for _, x := range []*Socket{s, patient} {
			wantErr(t, "send", x.TrySend(ap(there+":7"), make([]byte, 1000)), nil)
			wantErr(t, "send", x.TrySend(ap(there+":8"), make([]byte, 1000)), nil)
			wantErr(t, "send", x.TrySend(ap(nowhere+":8"), make([]byte, 1000)), nil)
		}
		toDead := blocked(t, "Send", func() error { return s.Send(t.Context(), ap(there+":7"), make([]byte, 10)) })
		toSlow := blocked(t, "Send", func() error { return s.Send(t.Context(), ap(nowhere+":7"), make([]byte, 10)) })
		flush := blocked(t, "Flush", func() error { return s.Flush(t.Context()) })
		for range 9 {
			time.Sleep(time.Second)
			slow.took(slow.tcp + 1)
		}
		time.Sleep(time.Second)
		if ev := r.want(t, "after 10 s", PeerGone); ev.Count != 2 || ev.Remote.String() != there || ev.Local.String() != here {
			t.Errorf("%+v", ev)
		}
		err, done := toDead()
		wantErr(t, "Send to the dead peer", err, ErrPeerGone)
		wantErr(t, "Send to the dead peer", err, syscall.EHOSTUNREACH)
		if errors.Is(err, ErrTimeout) || !done {
			t.Errorf("Send to the dead peer: done %v, %v; no time of the caller's is over", done, err)
		}
		if err, done := toSlow(); !done || err != nil {
			t.Errorf("Send to the slow peer: done %v, %v; there is room now", done, err)
		}
		if _, done := flush(); done {
			t.Error("Flush does not wait for the slow peer")
		}
		wantErr(t, "TrySend", s.TrySend(ap(there+":9"), nil), ErrPeerGone)
		wantErr(t, "patient TrySend", patient.TrySend(ap(nowhere+":9"), nil), ErrAgain)
		if m, _ := patient.Pending(ap(there + ":7")); m != 1 {
			t.Error("a patient socket's message was cancelled")
		}
		slow.ack(3)
		err, _ = flush()
		var gone *GoneError
		if !errors.As(err, &gone) || gone.Messages != 2 || gone.Peer.String() != there {
			t.Errorf("Flush: %v", err)
		}
		wantErr(t, "Flush while it is gone", s.Flush(t.Context()), ErrPeerGone)
		if got := counter(e.Engine, "peers_given_up"); got != 1 {
			t.Errorf("peers_given_up = %d", got)
		}
		if got := counter(e.Engine, "send_given_up"); got != 2 {
			t.Errorf("send_given_up = %d", got)
		}

		// It comes back: the herald is behind the patient socket's messages.
		sent := dead.sent()
		if n := len(sent); n != 3 || sent[2].DPort != 0 || sent[2].SPort != 0 {
			t.Fatalf("%d messages are queued, want the patient socket's two and a ping", n)
		}
		time.Sleep(time.Hour)
		wantErr(t, "an hour later", s.TrySend(ap(there+":9"), nil), ErrPeerGone)
		if len(dead.sent()) != 3 {
			t.Error("one ping is enough")
		}
		dead.ack(3)
		wantErr(t, "back", s.TrySend(ap(there+":9"), nil), nil)
		flush = blocked(t, "Flush", func() error { return s.Flush(t.Context()) })
		dead.ack(1)
		if err, done := flush(); !done || err != nil {
			t.Errorf("Flush: done %v, %v", done, err)
		}

		// And is given up on anew.
		wantErr(t, "send", s.TrySend(ap(there+":9"), nil), nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantErr(t, "gone again", s.TrySend(ap(there+":9"), nil), ErrPeerGone)
		wantErr(t, "SetGiveUp", s.SetGiveUp(0), nil)
		wantErr(t, "patient now", s.TrySend(ap(there+":9"), nil), nil)
		wantErr(t, "SetGiveUp", s.SetGiveUp(time.Second), nil)
		time.Sleep(time.Second + time.Second/4)
		synctest.Wait()
		wantErr(t, "impatient again", s.TrySend(ap(there+":9"), nil), ErrPeerGone)
		s.Close()
		patient.Close()
		if n := len(dead.handler.(*conn).watch.impatient); n != 0 {
			t.Errorf("%d flows of closed sockets are watched", n)
		}
	})
}

// TestGiveUpOnCongestedPort: a sender that waits for a port gives up if the peer does
// not answer, and only then.
func TestGiveUpOnCongestedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{GiveUp: 8 * time.Second, StallTimeout: time.Hour}, here)
		l := e.to(here, there)
		s := bind(t, e.Engine, here+":5")
		l.handler.RemoteMap(congest(7))
		send := blocked(t, "Send", func() error { return s.Send(t.Context(), ap(there+":7"), nil) })
		time.Sleep(time.Hour)
		if _, done := send(); done {
			t.Fatal("gave up on a peer that answers")
		}
		l.holding()
		time.Sleep(12*time.Second + 1)
		err, _ := send()
		wantErr(t, "Send", err, ErrPeerGone)
		wantErr(t, "TrySend", s.TrySend(ap(there+":7"), nil), ErrPeerGone)
		l.ack(1)
		wantErr(t, "TrySend", s.TrySend(ap(there+":7"), nil), ErrCongested)
		time.Sleep(time.Hour)
		if l.handler.(*conn).watch.on.Load() {
			t.Error("an idle connection is watched")
		}
	})
}

// TestSendAcrossGivingUp: a message that was admitted before and reaches the link after it does not
// stay there.
func TestSendAcrossGivingUp(t *testing.T) {
	e := newFake(t, Config{GiveUp: time.Hour}, here)
	l := e.to(here, there).holding()
	s := bind(t, e.Engine, here+":5")
	f, port, soon, err := s.admit(ap(there+":5"), 1)
	if err != nil {
		t.Fatal(err)
	}
	l.handler.(*conn).lose(f)
	f.cancelLost(0)
	wantErr(t, "hand", s.hand(f, port, []byte("x"), soon), ErrPeerGone)
	if m, b := s.PendingAll(); m != 0 || b != 0 || len(l.sent()) != 0 {
		t.Errorf("%d messages of %d bytes are pending, %d queued", m, b, len(l.sent()))
	}
}

// TestLingerAndGivingUp: Close says that messages were given up on.
func TestLingerAndGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{GiveUp: time.Second}, here)
		e.to(here, there).holding()
		s := bind(t, e.Engine, here+":5")
		s.SetLinger(time.Minute)
		s.TrySend(ap(there+":7"), nil)
		begun := time.Now()
		err := s.Close()
		wantErr(t, "Close", err, ErrPeerGone)
		if d := time.Since(begun); d > 2*time.Second {
			t.Errorf("Close took %v", d)
		}
		// Refused messages are no loss.
		s = bind(t, e.Engine, here+":5")
		s.SetLinger(time.Minute)
		s.TrySend(ap(there+":7"), nil)
		time.Sleep(2 * time.Second)
		s.Flush(t.Context())
		wantErr(t, "TrySend", s.TrySend(ap(there+":7"), nil), ErrPeerGone)
		wantErr(t, "Close", s.Close(), nil)
	})
}

// TestGiveUpRaces: senders, acknowledgements and giving up at the same time leave the accounts at zero.
func TestGiveUpRaces(t *testing.T) {
	e := newFake(t, Config{GiveUp: time.Hour}, here)
	l := e.to(here, there).holding()
	c := l.handler.(*conn)
	s := bind(t, e.Engine, here+":5")
	s.SetSendBuffer(10000)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				if err := s.Send(ctx, ap(there+":7"), make([]byte, 100)); err != nil && !errors.Is(err, ErrPeerGone) {
					t.Error(err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			l.mu.Lock()
			n := len(l.unacked)
			var m fakeSent
			if n > 0 {
				m, l.unacked = l.unacked[0], l.unacked[1:]
			}
			l.mu.Unlock()
			if n > 0 {
				m.Owner.Released(1, len(m.payload))
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.snd.mu.Lock()
			f := s.snd.used[c]
			s.snd.mu.Unlock()
			if f == nil {
				continue
			}
			c.peer.mu.Lock()
			c.lose(f)
			c.peer.mu.Unlock()
			f.cancelLost(0)
			(*herald)(c).Released(1, 0)
		}
	})
	wg.Wait()
	close(stop)
	others.Wait()
	s.CancelAll()
	if m, b := s.PendingAll(); m != 0 || b != 0 {
		t.Errorf("%d messages of %d bytes are on the account of nothing", m, b)
	}
	if g := s.gone.Load(); g != 0 {
		t.Errorf("%d flows are gone", g)
	}
}

var _ transport.Owner = (*herald)(nil)
