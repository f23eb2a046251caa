package simnet

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestCutAtEveryByte(t *testing.T) {
	const message = "0123456789"
	for how := range CutHow(numCutHow) {
		for at := range int64(len(message) + 1) {
			t.Run(fmt.Sprint(how, at), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPair(t, Options{})
					mustWrite(t, p.db, "back")
					settle(5 * oneWay)
					p.c.CutAt(Dialer, at, how)
					write(p.da, []byte(message[:3]))
					settle(5 * oneWay)
					write(p.da, []byte(message[3:]))
					settle(5 * oneWay)
					if d := p.c.Progress(Dialer).Delivered; d != at {
						t.Fatalf("%d bytes arrived, want %d", d, at)
					}
					var want error = syscall.ECONNRESET
					switch how {
					case CutFIN:
						want = io.EOF
					case CutSilent:
						want = syscall.ETIMEDOUT
					}
					start := p.net.Now()
					got, err := readAll(p.db)
					if got != message[:at] {
						t.Errorf("the receiver has %q", got)
					}
					wantErr(t, "receiver", err, want)
					if d := p.net.Now() - start; how != CutSilent && d != 0 {
						t.Errorf("the break took %v", d)
					}

					wantAcked := 0
					switch {
					case how == CutResetAcked:
						wantAcked = int(at)
					case at > 3:
						wantAcked = 3 // the first packet's acknowledgement had travelled
					case at == 3 && how != CutReset:
						wantAcked = 0 // cut before the acknowledgement
					}
					if u := unacked(t, p.da); int(p.c.Progress(Dialer).Written)-u != wantAcked {
						t.Errorf("%d written, %d unacknowledged, want %d acknowledged", p.c.Progress(Dialer).Written, u, wantAcked)
					}
					got, err = readAll(p.da)
					if got != "back" {
						t.Errorf("the sender had received %q", got)
					}
					if how == CutFIN {
						want = syscall.ECONNABORTED
					}
					wantErr(t, "sender", err, want)
				})
			})
		}
	}
}

func TestCutAfterCountsFromWhatHasArrived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.db, "12345")
		settle(5 * oneWay)
		p.c.CutAfter(Acceptor, 2, CutReset)
		mustWrite(t, p.db, "67890")
		got, err := readAll(p.da)
		if got != "1234567" {
			t.Errorf("read %q", got)
		}
		wantErr(t, "read", err, syscall.ECONNRESET)
		p.dial(t)
		mustWrite(t, p.da, "abc")
		settle(5 * oneWay)
		p.c.CutAt(Dialer, 1, CutReset) // has arrived already
		wantReadErr(t, p.da, syscall.ECONNRESET)
	})
}

func TestRSTLosesWhatIsOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "arrives")
		settle(oneWay)
		mustWrite(t, p.da, "on its way")
		p.c.RST(Dialer)
		wantReadErr(t, p.da, syscall.ECONNABORTED)
		got, err := readAll(p.db)
		if got != "arrives" {
			t.Errorf("read %q", got)
		}
		wantErr(t, "read", err, syscall.ECONNRESET)
		if u := unacked(t, p.da); u != 17 {
			t.Errorf("%d unacknowledged, want 17: the acknowledgement was on its way, too", u)
		}
		p.dial(t)
		p.c.Break()
		wantReadErr(t, p.da, syscall.ECONNRESET)
		wantReadErr(t, p.db, syscall.ECONNRESET)
		if p.c.Established() || len(p.net.Conns()) != 0 {
			t.Error("still alive")
		}
	})
}

func TestCutLosesTheFINThatComesTheOtherWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{UserTimeout: -1})
		p.c.CutAt(Dialer, 1, CutFIN)
		mustWrite(t, p.da, "x")
		p.db.CloseWrite() // on its way when the connection is cut
		got, err := readAll(p.db)
		if got != "x" || err != io.EOF {
			t.Fatal(got, err)
		}
		p.db.Close()
		settle(time.Minute)
		if c := p.net.Conns(); len(c) != 0 {
			t.Errorf("left over: %v", c)
		}
	})
}

func TestVanishedSideAnswersWithRST(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.c.Vanish(Dialer)
		wantReadErr(t, p.da, syscall.ECONNABORTED)
		if !p.c.Stream(Acceptor).canWriteForTest() || len(p.net.Conns()) != 1 {
			t.Fatal("the other side noticed")
		}
		start := p.net.Now()
		mustWrite(t, p.db, "anybody there?")
		wantReadErr(t, p.db, syscall.ECONNRESET)
		if d := p.net.Now() - start; d != 2*oneWay {
			t.Errorf("noticed after %v", d)
		}
		p.dial(t)
		p.c.Vanish(Dialer)
		start = p.net.Now()
		wantReadErr(t, p.db, syscall.ECONNRESET) // the first keepalive probe
		if d := p.net.Now() - start; d > 5*time.Second+2*oneWay {
			t.Errorf("noticed after %v", d)
		}
	})
}

func (e *Stream) canWriteForTest() bool {
	e.lock()
	defer e.unlock()
	return e.writeErr("write") == nil && e.canWrite()
}

func TestShortWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.c.LimitWrites(Dialer, 3)
		if n, err := p.da.TryWrite([][]byte{[]byte("ab"), []byte("cdef")}); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if err := p.da.WaitWrite(); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, p.da, "defghijk")
		settle(oneWay)
		wantRead(t, p.db, "abcdefghijk")
	})
}

func TestStallDelaysTheAcknowledgement(t *testing.T) {
	for name, stall := range map[string]func(*pair, time.Duration){
		"connection": func(p *pair, d time.Duration) { p.c.Stall(Acceptor, d) },
		"machine":    func(p *pair, d time.Duration) { p.b.Stall(d) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t, Options{})
				stall(p, time.Second)
				start := p.net.Now()
				mustWrite(t, p.da, "x")
				mustWrite(t, p.db, "y") // the other direction is not concerned
				settle(oneWay)
				wantRead(t, p.da, "y")
				settle(time.Second - oneWay - 1)
				if unacked(t, p.da) != 1 || p.c.Progress(Dialer).Delivered != 0 {
					t.Fatal("arrived during the stall")
				}
				wantRead(t, p.db, "x")
				if d := p.net.Now() - start; d != time.Second {
					t.Fatalf("arrived after %v", d)
				}
				settle(time.Minute) // no keepalive takes the stall for an outage
				if u := unacked(t, p.da); u != 0 || !p.c.Established() {
					t.Fatal(u, p.c.Established())
				}
			})
		})
	}
}

func TestOnDialScriptsAConnectionBeforeItsFirstPacket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{OnDial: func(c *Conn) {
			if c.ID() == 2 {
				c.CutAt(c.SideOf(addrB), 1, CutReset)
			}
		}})
		p.dial(t)
		mustWrite(t, p.db, "ab")
		got, err := readAll(p.da)
		if got != "a" {
			t.Errorf("read %q", got)
		}
		wantErr(t, "read", err, syscall.ECONNRESET)
	})
}

func TestTapAndTrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tapped [2]string
		var trace []string
		p := newPair(t, Options{
			Link:  Link{Loss: 0.3}, // every byte is still seen once
			Seed:  3,
			Tap:   func(_ *Conn, from Side, p []byte) { tapped[from] += string(p) },
			Trace: func(e Event) { trace = append(trace, e.Kind.String()+" "+e.From.String()) },
		})
		for i := range 20 {
			mustWrite(t, p.da, fmt.Sprintf("<%d>", i))
			mustWrite(t, p.db, fmt.Sprintf("(%d)", i))
			settle(10 * time.Millisecond)
		}
		p.da.CloseWrite()
		p.db.CloseWrite()
		b, _ := readAll(p.db)
		a, _ := readAll(p.da)
		if tapped[Dialer] != b || tapped[Acceptor] != a {
			t.Errorf("tapped %q\nread %q, %q", tapped, b, a)
		}
		p.da.Close()
		p.db.Close()
		settle(time.Hour)
		count := map[string]int{}
		for _, e := range trace {
			count[e]++
		}
		for _, want := range []string{"SYN dialer", "SYN-ACK acceptor", "established dialer", "established acceptor",
			"data dialer", "data acceptor", "FIN dialer", "FIN acceptor", "drop dialer", "drop acceptor"} {
			if count[want] == 0 {
				t.Errorf("no %q in the trace", want)
			}
		}
		if count["established dialer"] != 1 || count["FIN dialer"] != 1 || len(p.net.Conns()) != 0 {
			t.Errorf("%v, %v", count, p.net.Conns())
		}
	})
}

func TestEventString(t *testing.T) {
	e := Event{At: 1500 * time.Microsecond, Kind: EventData, Conn: &Conn{id: 3}, From: Acceptor, Seq: 4, N: 5}
	if got, want := e.String(), "1.5ms #3 acceptor data 4+5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestChaosRepeatsWithItsSeed(t *testing.T) {
	run := func(seed uint64) (lengths []int) {
		bubble(t, func(t *testing.T) {
			p := newPair(t, Options{Seed: seed, Chaos: Chaos{Cut: 0.5, CutBytes: 1000, ShortWrite: 0.3, Stall: 0.1}, Link: Link{Jitter: oneWay}})
			for range 40 {
				p.dial(t)
				go func(p pair) {
					write(p.da, make([]byte, 3000))
					p.da.CloseWrite()
				}(*p)
				got, _ := readAll(p.db)
				lengths = append(lengths, len(got))
				p.db.Close()
			}
			synctest.Wait()
		})
		return lengths
	}
	a, b, c := fmt.Sprint(run(1)), fmt.Sprint(run(1)), fmt.Sprint(run(2))
	if a != b {
		t.Errorf("with one seed:\n%v\n%v", a, b)
	}
	if a == c {
		t.Errorf("with two seeds: %v", a)
	}
	whole := 0
	for _, n := range run(1) {
		if n == 3000 {
			whole++
		}
	}
	if whole == 0 || whole == 40 {
		t.Errorf("%d of 40 streams arrived whole", whole)
	}
}
