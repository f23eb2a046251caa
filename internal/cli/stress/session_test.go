package stress

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds"
)

var quick = Config{Port: 4000, Time: 2 * time.Second, Timeout: 15 * time.Second}

// Without faults both sides pass and have the same numbers.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		room int
	}{
		{"one", Options{Tasks: 1, Depth: 1, ReqBytes: 1024, AckBytes: 63}, 0},
		{"many, verified", Options{Tasks: 3, Depth: 4, ReqBytes: 100, AckBytes: 32, Verify: true}, 0},
		{"one way", Options{Tasks: 2, Depth: 2, ReqBytes: 32, AckBytes: 64, OneWay: true, Verify: true}, 0},
		{"congested", Options{Tasks: 2, Depth: 8, ReqBytes: 64, AckBytes: 64, Verify: true}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(10 * time.Millisecond)
				f.room = tt.room
				cfg := quick
				var seconds []Interval
				cfg.Each = func(iv Interval) error { seconds = append(seconds, iv); return nil }
				a, p := runPair(t.Context(), f, tt.o, cfg, quick)
				if a.err != nil || p.err != nil {
					t.Fatalf("active: %v, passive: %v", a.err, p.err)
				}
				for _, s := range []Summary{a.sum, p.sum} {
					if !s.Pass || !s.Complete || s.TxMessages == 0 || s.Received != s.RxMessages || s.Options != tt.o {
						t.Errorf("summary %+v", s)
					}
				}
				if a.sum.Received != p.sum.TxMessages || p.sum.Received != a.sum.TxMessages || a.sum.Tally != p.sum.Peer || p.sum.Tally != a.sum.Peer {
					t.Errorf("active %+v\npassive %+v", a.sum, p.sum)
				}
				if a.sum.Local != addrA || a.sum.Remote != addrB || p.sum.Local != addrB || p.sum.Remote != addrA {
					t.Errorf("active %v to %v, passive %v to %v", a.sum.Local, a.sum.Remote, p.sum.Local, p.sum.Remote)
				}
				if a.sum.Seconds != 2 || len(seconds) != 2 {
					t.Errorf("%v seconds, %d reports", a.sum.Seconds, len(seconds))
				}
				if asked := p.sum.Mean.RTTMicros > 0; asked == tt.o.OneWay {
					t.Errorf("passive side asked: %v, one way: %v", asked, tt.o.OneWay)
				}
				if waited := a.sum.Congested+p.sum.Congested > 0; waited != (tt.room > 0) {
					t.Errorf("%d and %d waits for congestion", a.sum.Congested, p.sum.Congested)
				}
				// A round trip takes twice the delay: 100 requests and as many answers, or one more of
				// each, because the end of the time and of a round trip coincide.
				if n := a.sum.TxMessages; tt.name == "one" && (a.sum.Mean.RTTMicros != 20000 || n < 200 || n > 202) {
					t.Errorf("round trip %v us, %d messages", a.sum.Mean.RTTMicros, a.sum.TxMessages)
				}
				if len(f.sockets) > 0 {
					t.Errorf("%d sockets left open", len(f.sockets))
				}
			})
		})
	}
}

// Each planted fault is found, by the side that it happens to, and fails both sides.
func TestRunPlantedFaults(t *testing.T) {
	const victim = 30 // the number of the message it happens to
	var held []byte
	for _, tt := range []struct {
		name  string
		plant func(n int, m []byte) [][]byte
		want  Tally // less Received
		// answered says that no request remains without an answer.
		answered bool
	}{
		{"lost", func(n int, m []byte) [][]byte {
			if n == victim {
				return [][]byte{nil}
			}
			return nil
		}, Tally{Lost: 1}, false},
		{"doubled", func(n int, m []byte) [][]byte {
			if n == victim {
				return [][]byte{m, m}
			}
			return nil
		}, Tally{Doubled: 1}, true},
		{"reordered", func(n int, m []byte) [][]byte {
			switch n {
			case victim:
				held = slices.Clone(m)
				return [][]byte{nil}
			case victim + 1:
				return [][]byte{m, held}
			}
			return nil
		}, Tally{Reordered: 1}, true},
		{"damaged", func(n int, m []byte) [][]byte {
			if n == victim {
				bad := slices.Clone(m)
				bad[len(bad)-1] ^= 0x80
				return [][]byte{bad}
			}
			return nil
		}, Tally{Lost: 1, Damaged: 1}, false},
		{"delayed double", func(n int, m []byte) [][]byte {
			switch n {
			case victim:
				held = slices.Clone(m)
			case victim + 20:
				return [][]byte{held, m}
			}
			return nil
		}, Tally{Doubled: 1}, true},
	} {
		for _, to := range []netip.Addr{addrA, addrB} {
			t.Run(tt.name+" to "+map[netip.Addr]string{addrA: "active", addrB: "passive"}[to], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFabric(10 * time.Millisecond)
					f.plant = func(from, dest rds.Addr, n int, m []byte) [][]byte {
						if dest.IP != to || dest.Port != 4002 || from.Port != 4001 {
							return nil
						}
						return tt.plant(n, m)
					}
					o := Options{Tasks: 2, Depth: 3, ReqBytes: 100, AckBytes: 50, Verify: true}
					a, p := runPair(t.Context(), f, o, quick, quick)
					if a.err != nil || p.err != nil {
						t.Fatalf("active: %v, passive: %v", a.err, p.err)
					}
					hit, other := a.sum, p.sum
					if to == addrB {
						hit, other = other, hit
					}
					got := hit.Tally
					got.Received = 0
					if got != tt.want {
						t.Errorf("counted %+v, want %+v", got, tt.want)
					}
					if !other.Tally.Clean() || other.Peer != hit.Tally {
						t.Errorf("the other side: %+v", other)
					}
					if hit.Pass || other.Pass || len(hit.Reasons) == 0 || len(other.Reasons) == 0 {
						t.Errorf("passed: %v, %v", hit, other)
					}
					if n := hit.Unanswered + other.Unanswered; (n == 0) != tt.answered {
						t.Errorf("%d requests unanswered", n)
					}
				})
			})
		}
	}
}

// A message that comes again when everything has arrived is still seen.
func TestRunLateDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(10 * time.Millisecond)
		latest := map[rds.Addr]packet{} // by destination; guarded by f.mu
		f.plant = func(from, to rds.Addr, n int, m []byte) [][]byte {
			latest[to] = packet{from: from, data: slices.Clone(m)}
			return nil
		}
		cfg := quick
		cfg.During = func(ctx context.Context) {
			<-ctx.Done()
			time.AfterFunc(150*time.Millisecond, func() { // what is outstanding takes 20 ms
				f.mu.Lock()
				defer f.mu.Unlock()
				for at, s := range f.sockets {
					s.packets <- latest[at]
				}
			})
		}
		a, p := runPair(t.Context(), f, Options{Tasks: 1, Depth: 1, ReqBytes: 100, AckBytes: 100}, cfg, quick)
		if a.err != nil || p.err != nil || a.sum.Doubled != 1 || p.sum.Doubled != 1 || a.sum.Pass || p.sum.Pass {
			t.Errorf("active %+v, %v\npassive %+v, %v", a.sum, a.err, p.sum, p.err)
		}
	})
}

// A receiver that is far too slow ends the run in time. What still waited for room is not sent afterwards, when
// the sides have counted already.
func TestRunTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(10 * time.Millisecond)
		f.room = 1
		slow := quick
		slow.ReadDelay = 20 * time.Second
		o := Options{Tasks: 1, Depth: 4, ReqBytes: 32, AckBytes: 32, OneWay: true}
		start := time.Now()
		a, p := runPair(t.Context(), f, o, quick, slow)
		if a.err != nil || p.err != nil || a.sum.Pass || p.sum.Pass || a.sum.Unanswered == 0 || p.sum.Damaged != 0 {
			t.Errorf("active %+v, %v\npassive %+v, %v", a.sum, a.err, p.sum, p.err)
		}
		if took := time.Since(start); took > quick.Time+2*quick.Timeout+time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// An interrupt on either side ends both in good order.
func TestRunInterrupted(t *testing.T) {
	for _, who := range []string{"active", "passive"} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(10 * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				ctxs := map[bool]context.Context{true: ctx, false: t.Context()}
				x, y := tcpPipe()
				done := make(chan outcome)
				cfg := quick
				cfg.Time = 0
				go func() {
					s, err := Passive(ctxs[who == "passive"], y, func(netip.Addr) (Node, error) { return f, nil }, cfg)
					done <- outcome{s, err}
				}()
				s, err := Active(ctxs[who == "active"], x, f, testOptions, cfg)
				p := <-done
				if err != nil || p.err != nil || !s.Pass || !p.sum.Pass || s.Seconds != 1.5 {
					t.Errorf("active %+v, %v\npassive %+v, %v", s, err, p.sum, p.err)
				}
			})
		})
	}
}

// A side that goes away in the middle is an error of the other side, which knows what it had seen.
func TestRunPeerGone(t *testing.T) {
	for _, how := range []string{"hangs up", "falls silent"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(10 * time.Millisecond)
				cfg := quick
				cfg.Time = 0
				x, y := tcpPipe()
				go func() {
					ctl := newControl(y, time.Minute)
					defer y.Close()
					if _, _, err := ctl.hello(t.Context(), &cfg); err != nil {
						t.Error(err)
					}
					if err := ctl.send(line{Type: "ready"}); err != nil {
						t.Error(err)
					}
					if how == "hangs up" {
						ctl.expect(t.Context(), "go")
						time.Sleep(500 * time.Millisecond)
						return
					}
					for { // a process that is stopped: its kernel takes everything
						if _, err := ctl.receive(t.Context(), lineLimit); err != nil {
							return
						}
					}
				}()
				start := time.Now()
				s, err := Active(t.Context(), x, f, testOptions, cfg)
				want, text := 500*time.Millisecond, "closed the control connection"
				if how == "falls silent" {
					want, text = cfg.Timeout, "silent on the control connection for 15s"
				}
				if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), text) || time.Since(start) != want {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if s.Pass || s.Complete || s.TxMessages == 0 || s.Lost > 0 {
					t.Errorf("summary %+v", s)
				}
			})
		})
	}
}

// A side that keeps the connection alive and never comes to its end does not hold up the other one.
func TestRunPeerNeverEnds(t *testing.T) {
	for _, last := range []string{"go", "drained", "sent"} {
		t.Run("after "+last, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric(10 * time.Millisecond)
				o := Options{Tasks: 1, Depth: 1, ReqBytes: 32, AckBytes: 32}
				x, y := tcpPipe()
				script := []line{{Type: "ready"}, {Type: "drained"}, {Type: "sent", Sent: [][]uint64{{0}}}}
				go func() {
					ctl := newControl(y, time.Minute)
					defer y.Close()
					ctl.hello(t.Context(), &quick)
					ctl.send(script[0])
					for {
						l, err := ctl.receive(t.Context(), lineLimit)
						if err != nil {
							return
						}
						switch {
						case l.Type == "stop" && last != "go":
							ctl.send(script[1])
						case l.Type == "drained" && last == "sent":
							ctl.send(script[2])
						case l.Type == "alive":
							ctl.send(l)
						}
					}
				}()
				_, err := Active(t.Context(), x, f, o, quick)
				if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "did not finish in time") {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// Lines that make no sense where they come end the run.
func TestRunNonsense(t *testing.T) {
	for _, tt := range []struct {
		say []line
		err string
	}{
		{[]line{{Type: "drained"}}, `"drained", which has no meaning here (phase: running)`},
		{[]line{{Type: "sent", Sent: [][]uint64{{1}}}}, `"sent"`},
		{[]line{{Type: "verdict", Tally: &Tally{}}}, `"verdict"`},
		{[]line{{Type: "hello"}}, `"hello"`},
		{[]line{{Type: "error", Error: "no more"}}, "says: no more"},
		{[]line{{Type: "stop"}, {Type: "drained"}, {Type: "drained"}}, `"drained"`},
		{[]line{{Type: "stop"}, {Type: "drained"}, {Type: "sent", Sent: [][]uint64{{1, 2}}}}, "did not count messages for 1 times 1 tasks"},
		{[]line{{Type: "stop"}, {Type: "drained"}, {Type: "sent"}}, "did not count"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFabric(10 * time.Millisecond)
			x, y := tcpPipe()
			var other sync.WaitGroup
			defer other.Wait()
			other.Go(func() {
				ctl := newControl(y, time.Minute)
				defer y.Close()
				ctl.hello(t.Context(), &quick)
				ctl.send(line{Type: "ready"})
				ctl.expect(t.Context(), "go")
				// The requests go nowhere: make the other side see its own end soon.
				go func() {
					for {
						if _, err := ctl.receive(t.Context(), lineLimit); err != nil {
							return
						}
					}
				}()
				for i, l := range tt.say {
					for j := 0; i == 2 && l.Type == "sent" && j < 16; j++ { // until its requests are given up
						ctl.send(line{Type: "alive"})
						time.Sleep(time.Second)
					}
					if ctl.send(l) != nil {
						return
					}
				}
				time.Sleep(time.Second)
			})
			_, err := Active(t.Context(), x, f, Options{Tasks: 1, Depth: 1, ReqBytes: 32, AckBytes: 32}, quick)
			if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: error %v, want %q", tt.say, err, tt.err)
			}
		})
	}
}

// An error of the report, such as a closed standard output, ends the run.
func TestRunReportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := quick
		full := errors.New("no space left")
		cfg.Each = func(Interval) error { return full }
		a, p := runPair(t.Context(), newFabric(10*time.Millisecond), testOptions, cfg, quick)
		if !errors.Is(a.err, full) || errors.Is(a.err, ErrPeer) || !errors.Is(p.err, ErrPeer) || !strings.Contains(p.err.Error(), full.Error()) {
			t.Errorf("active %v, passive %v", a.err, p.err)
		}
	})
}

// The error of a socket ends the run, and is not the other side's.
func TestRunSocketFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("socket broke")
		f := &failing{fabric: newFabric(10 * time.Millisecond), after: 50, err: broken}
		x, y := tcpPipe()
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() { Passive(t.Context(), y, func(netip.Addr) (Node, error) { return f.fabric, nil }, quick) })
		_, err := Active(t.Context(), x, f, testOptions, quick)
		if !errors.Is(err, broken) || errors.Is(err, ErrPeer) {
			t.Errorf("error %v", err)
		}
	})
}

// failing is a fabric whose sockets fail to send after some messages.
type failing struct {
	*fabric
	after int
	err   error
}

func (f *failing) Bind(at rds.Addr, s, r int) (Socket, error) {
	sock, err := f.fabric.Bind(at, s, r)
	return &failingSocket{Socket: sock, f: f}, err
}

type failingSocket struct {
	Socket
	f    *failing
	sent int
}

func (s *failingSocket) TrySend(to rds.Addr, m []byte) error {
	if s.sent++; s.sent > s.f.after {
		return s.f.err
	}
	return s.Socket.TrySend(to, m)
}
