package stress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const goodOptions = `{"tasks":1,"depth":1,"req_bytes":32,"ack_bytes":32}`

// What a passive side says to an active one, or to a stranger, that it cannot work with. It may wait for
// another one afterwards.
func TestHelloRefused(t *testing.T) {
	hello := func(version int, options string) string {
		return fmt.Sprintf(`{"type":"hello","protocol":"rds stress","version":%d,"tag":1,"options":%s}`, version, options) + "\n"
	}
	for _, tt := range []struct{ name, say, err string }{
		{"newer version", hello(2, `{"tasks":"many"}`), "speaks version 2 of the control protocol, the passive side version 1"},
		{"no version", `{"type":"hello","protocol":"rds stress"}` + "\n", "speaks version 0"},
		{"another protocol", `{"type":"hello","protocol":"other","version":1}` + "\n", "does not speak the control protocol"},
		{"another line", `{"type":"go"}` + "\n", "does not speak the control protocol"},
		{"not JSON", "GET / HTTP/1.1\r\n", "does not speak the control protocol"},
		{"binary", "\x00\x01\x02\x03\n", "does not speak the control protocol"},
		{"not an object", "[1]\n", "does not speak the control protocol"},
		{"too long", strings.Repeat("x", helloLimit+1) + "\n", "a line is longer than 4096 bytes"},
		{"endless", strings.Repeat("x", 1<<20), "a line is longer than 4096 bytes"},
		{"nothing", "", "closed the control connection"},
		{"half a line", hello(1, goodOptions)[:20], "closed the control connection"},
		{"wrong type", hello(1, `{"tasks":"many"}`), "options of the active side"},
		{"no options", hello(1, `null`), "-t 0: want 1 to 256 tasks"},
		{"too many tasks", hello(1, `{"tasks":257,"depth":1,"req_bytes":32,"ack_bytes":32}`), "-t 257: want 1 to 256 tasks"},
		{"too large", hello(1, `{"tasks":1,"depth":1,"req_bytes":1048577,"ack_bytes":32}`), "-q 1048577: want 32 to 1048576"},
		{"memory", hello(1, `{"tasks":256,"depth":65536,"req_bytes":1048576,"ack_bytes":1048576}`), "at most 1073741824 fit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := tcpPipe()
				var wg sync.WaitGroup
				defer wg.Wait()
				heard := make(chan line, 1)
				wg.Go(func() {
					x.Write([]byte(tt.say)) // may be cut short
					if tt.err == "closed the control connection" {
						x.Close()
					}
					ctl := newControl(x, time.Minute)
					_, err := ctl.receive(t.Context(), lineLimit)
					heard <- line{Error: fmt.Sprint(err)}
				})
				start := time.Now()
				_, err := Passive(t.Context(), y, func(netip.Addr) (Node, error) {
					t.Error("the node was opened")
					return nil, errors.New("no node")
				}, quick)
				if took := time.Since(start); took > pace { // which is the time for the refusal
					t.Errorf("took %v: waited for more although it had enough", took)
				}
				if !errors.Is(err, ErrHello) || !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if l := <-heard; tt.name == "newer version" && !strings.Contains(l.Error, tt.err) {
					t.Errorf("the other side heard %q", l.Error)
				}
			})
		})
	}
}

// A stranger who says nothing is waited for so long and not longer; an interrupt ends the wait.
func TestHelloSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, interrupt := range []time.Duration{0, 2 * time.Second} {
			ctx, want := t.Context(), quick.Timeout
			if interrupt > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, interrupt)
				defer cancel()
				want = interrupt
			}
			x, y := tcpPipe()
			go func() { // takes what the passive side says, and says nothing
				buf := make([]byte, 100)
				for {
					if _, err := x.Read(buf); err != nil {
						return
					}
				}
			}()
			start := time.Now()
			_, err := Passive(ctx, y, nil, quick)
			if !errors.Is(err, ErrHello) || time.Since(start) != want || errors.Is(err, context.DeadlineExceeded) != (interrupt > 0) {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		}
	})
}

// A passive side without a node tells the active side why.
func TestNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := tcpPipe()
		taken := errors.New("10.0.0.2 is taken by process 1 (init)")
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			_, err := Passive(t.Context(), y, func(local netip.Addr) (Node, error) {
				if local != addrB {
					t.Errorf("node wanted on %v", local)
				}
				return nil, taken
			}, quick)
			if !errors.Is(err, taken) || errors.Is(err, ErrHello) || errors.Is(err, ErrPeer) {
				t.Errorf("passive: %v", err)
			}
		})
		f := newFabric(time.Millisecond)
		_, err := Active(t.Context(), x, f, testOptions, quick)
		if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "10.0.0.2:4000 says: "+taken.Error()) {
			t.Errorf("active: %v", err)
		}
		if len(f.sockets) > 0 {
			t.Errorf("%d sockets left open", len(f.sockets))
		}
	})
}

// A port that is taken is the error of the side where it is.
func TestPortTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric(time.Millisecond)
		for _, at := range []netip.Addr{addrA, addrB} {
			s, err := f.Bind(addr(at, 4002), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			a, p := runPair(t.Context(), f, testOptions, quick, quick)
			mine, other := a.err, p.err
			if at == addrB {
				mine, other = other, mine
			}
			if mine == nil || errors.Is(mine, ErrPeer) || !errors.Is(other, ErrPeer) {
				t.Errorf("port of %v taken: active %v, passive %v", at, a.err, p.err)
			}
			s.Close()
			if len(f.sockets) > 0 {
				t.Errorf("%d sockets left open", len(f.sockets))
			}
		}
	})
}

// An active side that has found something else than a passive one.
func TestNoPassive(t *testing.T) {
	for _, tt := range []struct{ name, say, err string }{
		{"hangs up", "", "closed the control connection"},
		{"binary", "\x00\x00\x00\n", "does not speak the control protocol of rds stress"},
		{"another line", `{"type":"alive"}` + "\n", `sent the line "alive" instead of "ready"`},
		{"refuses", `{"type":"error","error":"version 7"}` + "\n", "10.0.0.2:4000 says: version 7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := tcpPipe()
				go func() {
					defer y.Close()
					newControl(y, time.Minute).receive(t.Context(), helloLimit)
					y.Write([]byte(tt.say))
				}()
				_, err := Active(t.Context(), x, newFabric(time.Millisecond), testOptions, quick)
				if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			})
		})
	}
}

// The longest lines pass in both directions at the same time.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Tasks: MaxTasks, Depth: 1, ReqBytes: MinSize, AckBytes: MinSize}
		cfg := quick
		cfg.Time = 50 * time.Millisecond
		a, p := runPair(t.Context(), newFabric(100*time.Millisecond), o, cfg, cfg)
		if a.err != nil || p.err != nil || !a.sum.Pass || a.sum.Received != 2*MaxTasks*MaxTasks {
			t.Errorf("active %v %v, passive %v", a.sum.Reasons, a.err, p.err)
		}
	})
}
