package engine

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// blocked runs f in a goroutine and checks that it waits.
func blocked(t *testing.T, what string, f func() error) (result func() (error, bool)) {
	t.Helper()
	ch := make(chan error, 1)
	go func() { ch <- f() }()
	synctest.Wait()
	result = func() (error, bool) {
		synctest.Wait()
		select {
		case err := <-ch:
			ch <- err
			return err, true
		default:
			return nil, false
		}
	}
	if err, done := result(); done {
		t.Fatalf("%s did not wait: %v", what, err)
	}
	return result
}

// fullSocket is a socket whose send buffer is full.
func fullSocket(t *testing.T) (*fakeEngine, *fakeLink, *Socket) {
	t.Helper()
	e := newFake(t, Config{SendBuffer: 2304}, here)
	l := e.to(here, there).holding()
	s := bind(t, e.Engine, here+":3000")
	wantErr(t, "fill", s.TrySend(ap(there+":5"), make([]byte, 2304)), nil)
	return e, l, s
}

// TestSendWaits says for each way in which a full send buffer's wait can end how
// it ends.
func TestSendWaits(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(e *fakeEngine, l *fakeLink, s *Socket, cancel context.CancelCauseFunc)
		is   []error // none: success
		not  []error
	}{
		{"acknowledged", func(_ *fakeEngine, l *fakeLink, _ *Socket, _ context.CancelCauseFunc) { l.ack(1) }, nil, nil},
		{"cancelled from elsewhere", func(_ *fakeEngine, _ *fakeLink, s *Socket, _ context.CancelCauseFunc) { s.Cancel(ap(there + ":5")) }, nil, nil},
		{"larger buffer", func(_ *fakeEngine, _ *fakeLink, s *Socket, _ context.CancelCauseFunc) { s.SetSendBuffer(2305) }, nil, nil},
		{"deadline set before it passes", func(_ *fakeEngine, _ *fakeLink, s *Socket, _ context.CancelCauseFunc) {
			s.SetWriteDeadline(time.Now().Add(time.Second))
			time.Sleep(time.Second)
		}, []error{ErrTimeout, syscall.ETIMEDOUT, os.ErrDeadlineExceeded}, []error{context.DeadlineExceeded}},
		{"deadline in the past", func(_ *fakeEngine, _ *fakeLink, s *Socket, _ context.CancelCauseFunc) {
			s.SetWriteDeadline(time.Now().Add(-1))
		}, []error{ErrTimeout}, nil},
		{"context cancelled", func(_ *fakeEngine, _ *fakeLink, _ *Socket, c context.CancelCauseFunc) { c(nil) },
			[]error{context.Canceled}, []error{ErrTimeout}},
		{"context cancelled with a cause", func(_ *fakeEngine, _ *fakeLink, _ *Socket, c context.CancelCauseFunc) { c(os.ErrExist) },
			[]error{context.Canceled, os.ErrExist}, []error{ErrTimeout}},
		{"context's deadline", func(*fakeEngine, *fakeLink, *Socket, context.CancelCauseFunc) { time.Sleep(time.Hour) },
			[]error{ErrTimeout, syscall.ETIMEDOUT, context.DeadlineExceeded}, nil},
		{"socket closed", func(_ *fakeEngine, _ *fakeLink, s *Socket, _ context.CancelCauseFunc) { s.Close() }, []error{ErrClosed}, nil},
		{"node closed", func(e *fakeEngine, _ *fakeLink, _ *Socket, _ context.CancelCauseFunc) { e.Close() }, []error{ErrClosed}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, l, s := fullSocket(t)
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				result := blocked(t, "Send", func() error { return s.Send(ctx, ap(there+":6"), []byte("x")) })
				if l.urges == 0 {
					t.Error("nobody urged the link")
				}
				tc.end(e, l, s, cancel)
				err, done := result()
				if !done {
					t.Fatal("Send still waits")
				}
				if len(tc.is) == 0 {
					wantErr(t, "Send", err, nil)
				}
				for _, want := range tc.is {
					wantErr(t, "Send", err, want)
				}
				for _, not := range tc.not {
					if errors.Is(err, not) {
						t.Errorf("error %v is %v", err, not)
					}
				}
				if got := counter(e.Engine, "send_queue_full"); got != 1 {
					t.Errorf("send_queue_full = %d, want 1", got)
				}
			})
		})
	}
}

// TestEndedContextFailsAtOnce even if there is room or a message.
func TestEndedContextFailsAtOnce(t *testing.T) {
	e := newFake(t, Config{}, here)
	s := bind(t, e.Engine, here+":3000")
	wantErr(t, "send to itself", s.TrySend(s.addr, []byte("x")), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, "Send", s.Send(ctx, s.addr, nil), context.Canceled)
	wantErr(t, "Flush", s.Flush(ctx), context.Canceled)
	_, err := s.Recv(ctx, nil, new(Delivery))
	wantErr(t, "Recv", err, context.Canceled)
	wantErr(t, "Next", s.Next(ctx, new(Held), new(Delivery)), context.Canceled)
	past := time.Now().Add(-time.Hour)
	s.SetReadDeadline(past)
	s.SetWriteDeadline(past)
	ctx = t.Context()
	wantErr(t, "Send", s.Send(ctx, s.addr, nil), ErrTimeout)
	_, err = s.Recv(ctx, nil, new(Delivery))
	wantErr(t, "Recv", err, ErrTimeout)
	s.SetReadDeadline(time.Time{})
	s.SetWriteDeadline(time.Time{})
	wantErr(t, "Send without a deadline", s.Send(ctx, s.addr, nil), nil)
	_, err = s.Recv(ctx, nil, new(Delivery))
	wantErr(t, "Recv without a deadline", err, nil)
}

// TestDeadlineIsNotTheOldOne: a deadline that was replaced has no effect.
func TestDeadlineIsNotTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, s := fullSocket(t)
		s.SetWriteDeadline(time.Now().Add(time.Second))
		begun := time.Now()
		result := blocked(t, "Send", func() error { return s.Send(t.Context(), ap(there+":6"), nil) })
		s.SetWriteDeadline(time.Now().Add(3 * time.Second))
		time.Sleep(2 * time.Second)
		if _, done := result(); done {
			t.Fatal("the old deadline ended the wait")
		}
		time.Sleep(2 * time.Second)
		err, _ := result()
		wantErr(t, "Send", err, ErrTimeout)
		if d := time.Since(begun); d != 4*time.Second {
			t.Errorf("%v passed", d)
		}
	})
}

// TestWokenOneByOne: room for one message wakes one sender, in order, and what a
// sender leaves is passed on.
func TestWokenOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, s := fullSocket(t)
		ctx1, cancel1 := context.WithCancel(t.Context())
		first := blocked(t, "first", func() error { return s.Send(ctx1, ap(there+":6"), make([]byte, 2304)) })
		second := blocked(t, "second", func() error { return s.Send(t.Context(), ap(there+":6"), make([]byte, 2304)) })
		third := blocked(t, "third", func() error { return s.Send(t.Context(), ap(there+":6"), make([]byte, 1)) })
		l.ack(1)
		if err, done := first(); !done || err != nil {
			t.Errorf("first sender: done %v, error %v", done, err)
		}
		if _, done := second(); done {
			t.Error("the second sender was let in as well")
		}
		cancel1() // of no consequence any more
		l.ack(1)
		if _, done := second(); !done {
			t.Error("the second sender still waits")
		}
		if _, done := third(); done {
			t.Error("the third sender was let in as well")
		}
		l.ack(1)
		if _, done := third(); !done {
			t.Error("the third sender still waits")
		}
		if got := counter(e.Engine, "send_queued"); got != 4 {
			t.Errorf("send_queued = %d, want 4", got)
		}
	})
}

// TestRoomIsPassedOn by who is woken for it and cannot use it: it finds its port
// congested, or gives up at the same moment.
func TestRoomIsPassedOn(t *testing.T) {
	for _, tc := range []string{"congested", "gives up"} {
		t.Run(tc, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, s := fullSocket(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := blocked(t, "first", func() error { return s.Send(ctx, ap(there+":6"), []byte("x")) })
				second := blocked(t, "second", func() error { return s.Send(t.Context(), ap(there+":7"), []byte("x")) })
				if tc == "congested" {
					l.handler.RemoteMap(congest(6))
					l.ack(1)
					if _, done := first(); done {
						t.Error("sent to a congested port")
					}
				} else {
					// The context ends the wait, and before the sender can say
					// so there is room and it is the one that is told.
					s.snd.mu.Lock()
					cancel()
					s.snd.bytes, s.snd.msgs = 0, 0
					s.snd.passOn()
					s.snd.mu.Unlock()
					if err, _ := first(); !errors.Is(err, context.Canceled) {
						t.Errorf("first sender: %v", err)
					}
				}
				if err, done := second(); !done || err != nil {
					t.Errorf("second sender: done %v, error %v", done, err)
				}
			})
		})
	}
}

// TestCongestionWakesExactly those whose port was cleared (defect D11), and honours
// deadlines (defect D4).
func TestCongestionWakesExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{}, here)
		l := e.to(here, there).holding()
		e.to(here, nowhere).handler.RemoteMap(congest(5))
		l.handler.RemoteMap(congest(5, 6, 70))
		s, s2 := bind(t, e.Engine, here+":3000"), bind(t, e.Engine, here+":3001")
		send := func(s *Socket, to string) func() (error, bool) {
			return blocked(t, "Send to "+to, func() error { return s.Send(t.Context(), ap(to), nil) })
		}
		to5, also5, to6, to70, other := send(s, there+":5"), send(s2, there+":5"), send(s, there+":6"), send(s, there+":70"), send(s, nowhere+":5")
		l.handler.RemoteMap(congest(5, 6, 70, 71)) // clears nothing
		for i, r := range []func() (error, bool){to5, also5, to6, to70, other} {
			if _, done := r(); done {
				t.Errorf("sender %d was woken by a map that cleared nothing", i)
			}
		}
		l.handler.RemoteMap(congest(6))
		for i, tc := range []struct {
			r    func() (error, bool)
			want bool
		}{{to5, true}, {also5, true}, {to6, false}, {to70, true}, {other, false}} {
			if _, done := tc.r(); done != tc.want {
				t.Errorf("sender %d: done %v, want %v", i, done, tc.want)
			}
		}
		s.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		time.Sleep(300 * time.Millisecond)
		err, _ := to6()
		wantErr(t, "deadline during congestion", err, ErrTimeout)
		err, _ = other()
		wantErr(t, "deadline during congestion", err, ErrTimeout)
		if got := counter(e.Engine, "cong_send_blocked"); got != 5 {
			t.Errorf("cong_send_blocked = %d, want 5", got)
		}
		s2.SetSendBuffer(2304)
		closing := blocked(t, "Send", func() error { return s2.Send(t.Context(), ap(there+":6"), nil) })
		s2.Close()
		err, _ = closing()
		wantErr(t, "closed during congestion", err, ErrClosed)
		if n := len(l.handler.(*conn).peer.cong.waits); n != 0 {
			t.Errorf("%d waiters are left behind", n)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, s := fullSocket(t)
		flush := blocked(t, "Flush", func() error { return s.Flush(t.Context()) })
		flush2 := blocked(t, "Flush", func() error { return s.Flush(t.Context()) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, "Flush with a deadline", s.Flush(ctx), ErrTimeout)
		if l.urges != 3 {
			t.Errorf("three calls of Flush urged the link %d times", l.urges)
		}
		l.ack(1)
		for _, f := range []func() (error, bool){flush, flush2} {
			if err, done := f(); !done || err != nil {
				t.Errorf("Flush: done %v, error %v", done, err)
			}
		}
		wantErr(t, "Flush of nothing", s.Flush(t.Context()), nil)
		s.TrySend(ap(there+":5"), nil) // empty messages count
		flush = blocked(t, "Flush of an empty message", func() error { return s.Flush(t.Context()) })
		s.CancelAll()
		if err, done := flush(); !done || err != nil {
			t.Errorf("Flush after cancel: done %v, error %v", done, err)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, s := fullSocket(t)
		begun := time.Now()
		wantErr(t, "Close", s.Close(), nil)
		if len(l.sent()) != 0 || time.Since(begun) != 0 {
			t.Errorf("after Close %d messages are queued, %v passed; the kernel cancels at once (defect D17)", len(l.sent()), time.Since(begun))
		}
		wantErr(t, "Close again", s.Close(), ErrClosed)
		for what, err := range map[string]error{
			"TrySend":          s.TrySend(ap(there+":5"), nil),
			"Send":             s.Send(t.Context(), ap(there+":5"), nil),
			"Flush":            s.Flush(t.Context()),
			"Connect":          s.Connect(ap(there + ":5")),
			"SetReadDeadline":  s.SetReadDeadline(time.Now()),
			"SetWriteDeadline": s.SetWriteDeadline(time.Now()),
			"Next":             s.Next(t.Context(), new(Held), new(Delivery)),
		} {
			wantErr(t, what+" after Close", err, ErrClosed)
		}
		_, err := s.TryRecv(nil, new(Delivery))
		wantErr(t, "TryRecv after Close", err, ErrClosed)
	})
}

func TestLinger(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(l *fakeLink)
		took time.Duration
		want error
	}{
		{"acknowledged in time", func(l *fakeLink) { time.Sleep(time.Second); l.ack(1) }, time.Second, nil},
		{"not acknowledged", func(*fakeLink) {}, 2 * time.Second, ErrTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, s := fullSocket(t)
				s.SetLinger(2 * time.Second)
				begun := time.Now()
				result := blocked(t, "Close", s.Close)
				wantErr(t, "TrySend while lingering", s.TrySend(ap(there+":5"), nil), ErrClosed)
				if len(l.sent()) != 1 {
					t.Fatal("the message was cancelled at once")
				}
				tc.do(l)
				time.Sleep(tc.took - time.Since(begun))
				err, done := result()
				if !done {
					t.Fatal("Close still waits")
				}
				wantErr(t, "Close", err, tc.want)
				if len(l.sent()) != 0 {
					t.Error("the message is still queued")
				}
			})
		})
	}
}

// TestSendAcrossClose: a message that was admitted before Close and reaches the
// link after it does not stay there.
func TestSendAcrossClose(t *testing.T) {
	e := newFake(t, Config{}, here)
	l := e.to(here, there).holding()
	s := bind(t, e.Engine, here+":3000")
	c, port, soon, err := s.admit(ap(there+":5"), 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	wantErr(t, "hand", s.hand(c, port, []byte("x"), soon), ErrClosed)
	if len(l.sent()) != 0 {
		t.Error("the message stayed")
	}
}

// TestEngineCloseGivesGrace: what is queued has a second, together.
func TestEngineCloseGivesGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, s := fullSocket(t)
		s2 := bind(t, e.Engine, here+":3001")
		s2.TrySend(ap(there+":5"), nil)
		recv := blocked(t, "Recv", func() error { _, err := s.Recv(t.Context(), nil, new(Delivery)); return err })
		begun := time.Now()
		result := blocked(t, "Close", e.Engine.Close)
		if err, done := recv(); !done || !errors.Is(err, ErrClosed) {
			t.Errorf("Recv: done %v, error %v; must end at once", done, err)
		}
		time.Sleep(time.Second)
		err, done := result()
		if !done || err != nil || time.Since(begun) != time.Second {
			t.Errorf("Close: done %v, error %v, after %v", done, err, time.Since(begun))
		}
		if e.t.grace != 0 {
			t.Errorf("the transport got %v more", e.t.grace)
		}
		wantErr(t, "Close again", e.Engine.Close(), ErrClosed)
		wantErr(t, "TrySend", s.TrySend(ap(there+":5"), nil), ErrClosed)
	})
}

// TestEngineCloseLeavesTheRestOfTheGrace to the transport.
func TestEngineCloseLeavesTheRestOfTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, _ := fullSocket(t)
		result := blocked(t, "Close", e.Engine.Close)
		time.Sleep(400 * time.Millisecond)
		l.ack(1)
		if _, done := result(); !done || e.t.grace != 600*time.Millisecond {
			t.Errorf("done %v, grace %v", done, e.t.grace)
		}
	})
}

func TestRecvWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{}, here)
		l := e.to(here, there)
		s := bind(t, e.Engine, here+":3000")
		recv := func(ctx context.Context) func() (error, bool) {
			return blocked(t, "Recv", func() error { _, err := s.Recv(ctx, nil, new(Delivery)); return err })
		}
		deliver := func() { l.handler.Deliver(transport.Inbound{SPort: 1, DPort: 3000}) }
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := recv(ctx), recv(t.Context()), recv(t.Context())
		deliver()
		if _, done := first(); !done {
			t.Error("the first reader still waits")
		}
		if _, done := second(); done {
			t.Error("one message ended two waits")
		}
		cancel()
		deliver()
		deliver()
		for i, r := range []func() (error, bool){second, third} {
			if err, done := r(); !done || err != nil {
				t.Errorf("reader %d: done %v, error %v", i+2, done, err)
			}
		}
		last := recv(t.Context())
		s.Close()
		err, _ := last()
		wantErr(t, "Recv", err, ErrClosed)
	})
}

// TestMessageIsPassedOn by a reader whose context ends its wait, and who is told of a
// message before it can say so.
func TestMessageIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(t, Config{}, here)
		c := e.to(here, there).handler.(*conn)
		s := bind(t, e.Engine, here+":3000")
		ctx, cancel := context.WithCancel(t.Context())
		first := blocked(t, "first", func() error { _, err := s.Recv(ctx, nil, new(Delivery)); return err })
		second := blocked(t, "second", func() error { _, err := s.Recv(t.Context(), nil, new(Delivery)); return err })
		s.rcv.mu.Lock()
		cancel()
		s.rcv.queue.push().conn = c
		s.rcv.wait.wake()
		s.rcv.mu.Unlock()
		if err, _ := first(); !errors.Is(err, context.Canceled) {
			t.Errorf("first reader: %v", err)
		}
		if err, done := second(); !done || err != nil {
			t.Errorf("second reader: done %v, error %v", done, err)
		}
		if len(s.rcv.wait.free.ch) != 0 || len(s.rcv.wait.free.next.ch) != 0 {
			t.Error("a spare waiter has a token")
		}
	})
}

func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(t, Config{}, "fd00::1", here, here2), newFake(t, Config{}, there)
		join(a, b)
		for _, to := range []string{there, here, here2, "::ffff:10.0.0.2"} {
			if _, err := a.Ping(t.Context(), netip.Addr{}, netip.MustParseAddr(to)); err != nil {
				t.Errorf("ping %s: %v", to, err)
			}
		}
		if n := len(a.Sockets()); n != 0 {
			t.Errorf("%d sockets are left", n)
		}
		_, err := b.Ping(t.Context(), netip.Addr{}, netip.MustParseAddr("fd00::1"))
		wantErr(t, "no address of that family", err, ErrNotSupported)
		_, err = b.Ping(t.Context(), netip.MustParseAddr(here), netip.MustParseAddr(there))
		wantErr(t, "from a foreign address", err, ErrAddrNotAvail)
		_, err = b.Ping(t.Context(), netip.Addr{}, netip.Addr{})
		wantErr(t, "to no address", err, ErrInvalid)
		a.to(here, nowhere).holding()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Ping(ctx, netip.Addr{}, netip.MustParseAddr(nowhere))
		wantErr(t, "no answer", err, ErrTimeout)
	})
}
