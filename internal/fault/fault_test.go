package fault_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/simnet"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
	portB = netip.AddrPortFrom(addrB, 16385)
)

// pair is a connection whose dialling side has faults.
type pair struct {
	sim  *simnet.Net
	net  *fault.Network
	a    *fault.Stream
	b    transport.Stream
	l    transport.Listener
	dial func() *fault.Stream
}

func newPair(t *testing.T, o fault.Options) *pair {
	t.Helper()
	p := &pair{sim: simnet.New(simnet.Options{Link: simnet.Link{Delay: time.Millisecond}})}
	p.net = fault.Wrap(p.sim.Host(addrA), o)
	l, err := p.sim.Host(addrB).Listen(portB)
	if err != nil {
		t.Fatal(err)
	}
	p.l = l
	p.dial = func() *fault.Stream {
		t.Helper()
		s, err := p.net.Dial(t.Context(), addrA, portB, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.b, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return s.(*fault.Stream)
	}
	p.a = p.dial()
	return p
}

type into struct{ b []byte }

func (r into) Buffers() [][]byte { return [][]byte{r.b} }
func (r into) Idle()             {}

func readAll(s transport.Stream) (all []byte, err error) {
	r := into{make([]byte, 1000)}
	for {
		n, err := s.Read(r)
		all = append(all, r.b[:n]...)
		if err != nil {
			return all, err
		}
	}
}

func write(s transport.Stream, p []byte) error {
	for {
		n, err := s.TryWrite([][]byte{p})
		if err != nil {
			return err
		}
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		if err := s.WaitWrite(); err != nil {
			return err
		}
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v; want %v", what, err, want)
	}
}

func wantInjected(t *testing.T, what string, err error, k fault.Kind) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != k {
		t.Fatalf("%s: %v; want an injected %v", what, err, k)
	}
}

func wantCounts(t *testing.T, n *fault.Network, want map[fault.Kind]uint64) {
	t.Helper()
	for _, k := range fault.Kinds() {
		if n.Count(k) != want[k] {
			t.Errorf("%v: counted %d, want %d", k, n.Count(k), want[k])
		}
	}
}

func TestWithoutFaultsNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, fault.Options{})
		if err := write(p.a, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := p.a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(p.b); string(got) != "hello" || err != io.EOF {
			t.Fatalf("read %q, %v", got, err)
		}
		write(p.b, []byte("answer"))
		p.b.Close()
		if got, err := readAll(p.a); string(got) != "answer" || err != io.EOF {
			t.Fatalf("read %q, %v", got, err)
		}
		if !p.a.Dialled() || p.a.RemoteAddr() != portB || len(p.net.Streams()) != 1 {
			t.Fatal("wrong description of the stream")
		}
		if err := p.a.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := p.a.Unacked()
		wantErr(t, "Unacked after Close", err, net.ErrClosed)
		_, err = readAll(p.a)
		wantErr(t, "Read after Close", err, net.ErrClosed)
		if len(p.net.Streams()) != 0 || p.net.Total() != 0 {
			t.Fatal("closed stream is still listed, or faults were counted")
		}
	})
}

func TestResetOnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, fault.Options{})
		second := p.dial()
		write(p.b, []byte("lost with the reset"))
		write(second, []byte("12345"))
		waiting := make(chan error)
		go func() { _, err := readAll(p.a); waiting <- err }()
		synctest.Wait()
		n := p.net.Reset(func(s *fault.Stream) bool { return s == p.a })
		if n != 1 {
			t.Fatalf("reset %d streams", n)
		}
		err := <-waiting
		wantErr(t, "waiting Read", err, syscall.ECONNRESET)
		wantInjected(t, "waiting Read", err, fault.Reset)
		_, err = p.a.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "TryWrite", err, syscall.ECONNRESET)
		wantErr(t, "WaitWrite", p.a.WaitWrite(), syscall.ECONNRESET)
		if got := p.net.ResetOne(rand.New(rand.NewPCG(1, 2))); got != second {
			t.Fatalf("ResetOne took %v", got)
		}
		if u, err := second.Unacked(); u != 5 || err != nil {
			t.Fatalf("Unacked after the reset: %d, %v", u, err)
		}
		if got := p.net.ResetOne(rand.New(rand.NewPCG(1, 2))); got != nil {
			t.Fatalf("ResetOne took %v", got)
		}
		if err := p.a.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		wantErr(t, "Close again", p.a.Close(), net.ErrClosed)
		_, err = readAll(p.b)
		wantErr(t, "the peer's Read", err, syscall.ECONNRESET)
		wantCounts(t, p.net, map[fault.Kind]uint64{fault.Reset: 2})
	})
}

func TestCutAtEveryByte(t *testing.T) {
	message := []byte("0123456789")
	for at := range len(message) + 1 {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, fault.Options{})
			if n := p.net.Cut(nil, at); n != 1 {
				t.Fatalf("Cut concerns %d streams", n)
			}
			err := write(p.a, message[:4])
			if err == nil {
				err = write(p.a, message[4:])
			}
			if err == nil { // exactly at the end
				_, err = p.a.TryWrite([][]byte{message})
			}
			wantErr(t, "write", err, syscall.ECONNRESET)
			wantInjected(t, "write", err, fault.Cut)
			got, err := readAll(p.b)
			wantErr(t, "the peer's Read", err, syscall.ECONNRESET)
			if !bytes.Equal(got, message[:at]) {
				t.Fatalf("cut at %d: the peer got %q", at, got)
			}
			wantCounts(t, p.net, map[fault.Kind]uint64{fault.Cut: 1})
		})
	}
}

func TestFINOnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, fault.Options{})
		write(p.a, []byte("half a fr"))
		if p.net.Finish(nil) != 1 || p.net.Finish(nil) != 0 {
			t.Fatal("Finish concerns the wrong number of streams")
		}
		_, err := p.a.TryWrite([][]byte{[]byte("ame")})
		wantErr(t, "TryWrite", err, syscall.EPIPE)
		wantInjected(t, "TryWrite", err, fault.FIN)
		if got, err := readAll(p.b); string(got) != "half a fr" || err != io.EOF {
			t.Fatalf("the peer read %q, %v", got, err)
		}
		write(p.b, []byte("still here"))
		p.b.Close()
		if got, err := readAll(p.a); string(got) != "still here" || err != io.EOF {
			t.Fatalf("read %q, %v", got, err)
		}
		if err := p.a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, p.net, map[fault.Kind]uint64{fault.FIN: 1})
	})
}

func TestStallHoldsBothDirectionsAndEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, fault.Options{})
		write(p.b, []byte("x"))
		start := time.Now()
		if p.net.Stall(nil, time.Minute) != 1 {
			t.Fatal("Stall concerns the wrong number of streams")
		}
		if n, err := p.a.TryWrite([][]byte{[]byte("y")}); n != 0 || err != nil {
			t.Fatalf("TryWrite during a stall: %d, %v", n, err)
		}
		if err := p.a.WaitWrite(); err != nil || time.Since(start) != time.Minute {
			t.Fatalf("WaitWrite: %v after %v", err, time.Since(start))
		}
		p.a.StallFor(time.Minute)
		if n, err := p.a.Read(into{make([]byte, 1)}); n != 1 || err != nil || time.Since(start) != 2*time.Minute {
			t.Fatalf("Read: %d, %v after %v", n, err, time.Since(start))
		}
		p.a.StallFor(time.Hour)
		errs := make(chan error)
		go func() { errs <- p.a.WaitWrite() }()
		go func() { _, err := readAll(p.a); errs <- err }()
		synctest.Wait()
		p.a.Close()
		wantErr(t, "waiting call", <-errs, net.ErrClosed)
		wantErr(t, "waiting call", <-errs, net.ErrClosed)
		if time.Since(start) != 2*time.Minute {
			t.Fatal("Close did not end the stall")
		}
	})
}

// frames returns frames with payloads of the given lengths; those with a checksum have odd lengths.
func frames(lengths ...int) (all []byte) {
	for i, n := range lengths {
		h := wire.Header{Seq: uint64(i + 1), Len: uint32(n), SPort: 1, DPort: 2}
		at := len(all)
		all = h.AppendTo(all)
		if n%2 == 1 {
			wire.HeaderView(all[at:]).Seal()
		}
		all = append(all, bytes.Repeat([]byte{0xaa}, n)...)
	}
	return all
}

func TestCorruptFlipsOneBitOfAHeaderWithAChecksum(t *testing.T) {
	for _, any := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, fault.Options{Rates: fault.Rates{Corrupt: 1}, CorruptAny: any})
			sent := frames(100, 33, 0, 7, 200)
			whole := bytes.Clone(sent)
			// In pieces as a transport may write them: a header is only hit as a whole.
			for _, cut := range [][2]int{{0, 20}, {20, 48 + 100 + 20}, {48 + 100 + 20, len(sent)}} {
				if n, err := p.a.TryWrite([][]byte{sent[cut[0] : cut[0]+10], nil, sent[cut[0]+10 : cut[1]]}); n != cut[1]-cut[0] || err != nil {
					t.Fatal(n, err)
				}
			}
			if !bytes.Equal(sent, whole) {
				t.Fatal("the caller's buffer was changed")
			}
			p.a.CloseWrite()
			got, _ := readAll(p.b)
			if len(got) != len(sent) {
				t.Fatalf("%d bytes of %d", len(got), len(sent))
			}
			var where []int
			for i := range got {
				if d := got[i] ^ sent[i]; d != 0 {
					if d&(d-1) != 0 {
						t.Fatalf("byte %d: more than one bit", i)
					}
					where = append(where, i)
				}
			}
			// Only the last write has whole headers: of frames 3 (0 bytes), 4 (7, with a checksum), 5 (200).
			third := 48 + 100 + 48 + 33
			low, high := third, third+48+48+7+48
			if !any {
				low, high = third+48, third+48+48
			}
			if len(where) != 1 || where[0] < low || where[0] >= high {
				t.Fatalf("damaged bytes %v, want one in [%d, %d)", where, low, high)
			}
			if !any {
				if v, _ := wire.View(got[third+48:]); v.CsumOK() && v.Csum() != 0 {
					t.Fatal("the damage cannot be noticed")
				}
			}
			wantCounts(t, p.net, map[fault.Kind]uint64{fault.Corrupt: 1})
		})
	}
}

// story sends a lot over connections with random faults and writes down what came of it.
func story(t *testing.T, seed uint64) (out []string, total uint64) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		p := newPair(t, fault.Options{
			Seed:  seed,
			Rates: fault.Rates{Reset: 0.005, FIN: 0.005, Cut: 0.01, ShortWrite: 0.2, Stall: 0.02},
			OnFault: func(s *fault.Stream, k fault.Kind) {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, k.String())
			},
		})
		data := make([]byte, 1<<16)
		for i := range data {
			data[i] = byte(i * 7)
		}
		for round := range 30 {
			if round > 0 {
				p.a = p.dial()
			}
			done := make(chan int)
			go func() {
				got, err := readAll(p.b)
				if !bytes.Equal(got, data[:len(got)]) {
					t.Errorf("round %d: the peer got something else", round)
				}
				if err == io.EOF {
					p.b.Close()
				}
				done <- len(got)
			}()
			var err error
			for rest := data; len(rest) > 0 && err == nil; rest = rest[min(1000, len(rest)):] {
				err = write(p.a, rest[:min(1000, len(rest))])
			}
			var injected *fault.Error
			if err != nil && !errors.As(err, &injected) {
				t.Errorf("round %d: %v", round, err)
			}
			p.a.CloseWrite()
			got := <-done
			if err == nil && got != len(data) {
				t.Errorf("round %d: %d bytes arrived although nothing failed", round, got)
			}
			p.a.Close()
			p.b.Close()
		}
		total = p.net.Total()
	})
	return out, total
}

func TestRandomFaultsRepeatWithTheirSeed(t *testing.T) {
	first, n := story(t, 7)
	if uint64(len(first)) != n || n < 100 {
		t.Fatalf("%d faults reported, %d counted", len(first), n)
	}
	seen := map[string]bool{}
	for _, k := range first {
		seen[k] = true
	}
	if len(seen) != 5 {
		t.Errorf("kinds that happened: %v", seen)
	}
	again, _ := story(t, 7)
	if len(again) != len(first) {
		t.Fatalf("%d and %d faults with one seed", len(first), len(again))
	}
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("fault %d was %s and %s with one seed", i, first[i], again[i])
		}
	}
	if other, _ := story(t, 8); len(other) == len(first) {
		t.Errorf("another seed has as many faults")
	}
}

func TestRatesCanChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, fault.Options{})
		if err := p.net.SetRates(fault.Rates{Reset: 2}); err == nil {
			t.Fatal("a rate of 2 was taken")
		}
		if err := p.net.SetRates(fault.Rates{Reset: 1}); err != nil || p.net.Rates().Reset != 1 {
			t.Fatal(err)
		}
		_, err := p.a.TryWrite([][]byte{[]byte("x")})
		wantInjected(t, "TryWrite", err, fault.Reset)
		if n := p.net.Count(fault.Reset); n != 1 {
			t.Fatalf("counted %d", n)
		}
	})
}

func TestAcceptedStreamsHaveFaultsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simnet.New(simnet.Options{})
		fb := fault.Wrap(sim.Host(addrB), fault.Options{})
		l, err := fb.Listen(portB)
		if err != nil {
			t.Fatal(err)
		}
		a, err := sim.Host(addrA).Dial(t.Context(), addrA, portB, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if s := fb.Streams(); len(s) != 1 || s[0] != b || s[0].Dialled() || s[0].RemoteAddr() != a.LocalAddr() {
			t.Fatalf("%v", s)
		}
		fb.Reset(nil)
		_, err = readAll(a)
		wantErr(t, "Read", err, syscall.ECONNRESET)
		l.Close()
		_, err = l.Accept()
		wantErr(t, "Accept", err, net.ErrClosed)
		_, err = fb.Listen(netip.AddrPortFrom(addrA, 1))
		wantErr(t, "Listen", err, syscall.EADDRNOTAVAIL)
		_, err = fb.Dial(t.Context(), addrB, netip.AddrPortFrom(addrB, 1), 0, 0)
		wantErr(t, "Dial", err, syscall.ECONNREFUSED)
	})
}
