package simnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
	portB = netip.AddrPortFrom(addrB, 16385)
)

// into reads into one buffer.
type into struct {
	b    []byte
	idle int
}

func (r *into) Buffers() [][]byte { return [][]byte{r.b} }
func (r *into) Idle()             { r.idle++ }

func read(s transport.Stream, n int) (string, error) {
	b := make([]byte, n)
	n, err := s.Read(&into{b: b})
	return string(b[:n]), err
}

// readAll reads until the end of the stream.
func readAll(s transport.Stream) (string, error) {
	var all []byte
	r := &into{b: make([]byte, 1000)}
	for {
		n, err := s.Read(r)
		all = append(all, r.b[:n]...)
		if err != nil {
			return string(all), err
		}
	}
}

// write writes everything.
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

func mustWrite(t *testing.T, s transport.Stream, p string) {
	t.Helper()
	if err := write(s, []byte(p)); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func wantRead(t *testing.T, s transport.Stream, want string) {
	t.Helper()
	if got, err := read(s, len(want)+10); got != want || err != nil {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v; want %v", what, err, want)
	}
}

func wantReadErr(t *testing.T, s transport.Stream, want error) {
	t.Helper()
	got, err := read(s, 100)
	if got != "" {
		t.Fatalf("read %q, want %v", got, want)
	}
	wantErr(t, "read", err, want)
}

func unacked(t *testing.T, s transport.Stream) int {
	t.Helper()
	n, err := s.Unacked()
	if err != nil {
		t.Fatalf("Unacked: %v", err)
	}
	return n
}

// pair is two hosts, a listener and one connection.
type pair struct {
	net    *Net
	a, b   *Host
	l      *Listener
	da, db *Stream // dialled by a, accepted by b
	c      *Conn
}

const oneWay = time.Millisecond

func newPair(t *testing.T, o Options) *pair {
	t.Helper()
	if o.Link.Delay == 0 {
		o.Link.Delay = oneWay
	}
	p := &pair{net: New(o)}
	p.a, p.b = p.net.Host(addrA), p.net.Host(addrB)
	l, err := p.b.Listen(portB)
	if err != nil {
		t.Fatal(err)
	}
	p.l = l.(*Listener)
	p.dial(t)
	return p
}

func (p *pair) dial(t *testing.T) {
	t.Helper()
	s, err := p.a.Dial(t.Context(), addrA, portB, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.da, p.db, p.c = s.(*Stream), r.(*Stream), s.(*Stream).Conn()
}

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// settle lets everything happen that happens within d.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestDialTakesARoundTripAndAcceptHalfMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{Link: Link{Delay: oneWay}})
		a, b := n.Host(addrA), n.Host(addrB)
		l, err := b.Listen(portB)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan time.Duration)
		go func() {
			s, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- n.Now()
			s.Close()
		}()
		s, err := a.Dial(t.Context(), addrA, portB, 3, 5)
		if err != nil {
			t.Fatal(err)
		}
		if n.Now() != 2*oneWay {
			t.Errorf("Dial took %v", n.Now())
		}
		if at := <-accepted; at != 3*oneWay {
			t.Errorf("Accept took %v", at)
		}
		if got, want := s.LocalAddr().Port(), uint16(32776+5*8+3); got != want {
			t.Errorf("source port %d, want %d", got, want)
		}
		wantReadErr(t, s, io.EOF)
		s.Close()
		l.Close()
		_, err = l.Accept()
		wantErr(t, "Accept after Close", err, net.ErrClosed)
	})
}

func TestBytesAndHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "hello ")
		mustWrite(t, p.da, "world")
		if err := p.da.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(p.db); got != "hello world" || err != io.EOF {
			t.Fatalf("read %q, %v", got, err)
		}
		// The other direction goes on.
		mustWrite(t, p.db, "answer")
		wantRead(t, p.da, "answer")
		_, err := p.da.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "TryWrite after CloseWrite", err, syscall.EPIPE)
		p.db.Close()
		wantReadErr(t, p.da, io.EOF)
		p.da.Close()
		settle(time.Second)
		if c := p.net.Conns(); len(c) != 0 {
			t.Fatalf("left over: %v", c)
		}
		if s := p.net.Stats(); s.RSTs != 0 || s.FINs != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAcknowledgedMeansInThePeersReceiveBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "12345")
		settle(2*oneWay - 1)
		if n := unacked(t, p.da); n != 5 {
			t.Fatalf("before a round trip %d unacknowledged", n)
		}
		settle(1)
		if n := unacked(t, p.da); n != 0 {
			t.Fatalf("after a round trip %d unacknowledged", n)
		}
		if pr := p.c.Progress(Dialer); pr != (Progress{Written: 5, Delivered: 5, Acked: 5}) {
			t.Fatalf("%+v", pr)
		}
	})
}

func TestWindowOfAReaderThatDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{SendBuffer: 3000, RecvBuffer: 1000})
		big := make([]byte, 10000)
		n, err := p.da.TryWrite([][]byte{big[:10], big[10:]})
		if n != 3000 || err != nil {
			t.Fatalf("TryWrite took %d, %v", n, err)
		}
		settle(10 * time.Second)
		if u := unacked(t, p.da); u != 2000 {
			t.Fatalf("%d unacknowledged, want 2000", u)
		}
		if n, err := p.da.TryWrite([][]byte{big}); n != 1000 || err != nil {
			t.Fatalf("TryWrite took %d, %v", n, err)
		}
		done := make(chan error, 1)
		go func() { done <- p.da.WaitWrite() }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("WaitWrite returned although the buffer is full")
		default:
		}
		got := 0
		for got < 4000 {
			s, err := read(p.db, 300)
			if err != nil {
				t.Fatal(err)
			}
			got += len(s)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		settle(oneWay)
		if u := unacked(t, p.da); u != 0 {
			t.Fatalf("%d unacknowledged, want 0", u)
		}
	})
}

func TestZeroWindowEndsWithTheUserTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{SendBuffer: 3000, RecvBuffer: 1000})
		start := p.net.Now()
		if _, err := p.da.TryWrite([][]byte{make([]byte, 2000)}); err != nil {
			t.Fatal(err)
		}
		_, err := read(p.da, 1)
		wantErr(t, "read", err, syscall.ETIMEDOUT)
		if d := p.net.Now() - start; d != 30*time.Second+2*oneWay {
			t.Fatalf("took %v", d)
		}
		if u := unacked(t, p.da); u != 1000 {
			t.Fatalf("%d unacknowledged, want 1000", u)
		}
		// The other side learns it from keepalive, and can still read what arrived.
		settle(10 * time.Second)
		wantErr(t, "WaitWrite at the reader", p.db.WaitWrite(), syscall.ECONNRESET)
		wantRead(t, p.db, string(make([]byte, 1000)))
		wantReadErr(t, p.db, syscall.ECONNRESET)
	})
}

func TestResetLeavesWhatHadArrived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "arrived")
		settle(5 * oneWay)
		if err := p.da.Reset(); err != nil {
			t.Fatal(err)
		}
		wantReadErr(t, p.da, net.ErrClosed)
		settle(5 * oneWay)
		wantRead(t, p.db, "arrived")
		wantReadErr(t, p.db, syscall.ECONNRESET)
		_, err := p.db.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "first TryWrite", err, syscall.ECONNRESET)
		_, err = p.db.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "second TryWrite", err, syscall.EPIPE)
		if err := p.db.WaitWrite(); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		wantErr(t, "CloseWrite", p.db.CloseWrite(), syscall.ENOTCONN)
		p.db.Close()
		_, err = p.db.Unacked()
		wantErr(t, "Unacked after Close", err, net.ErrClosed)
	})
}

func TestUnackedWorksAfterTheFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "123")
		settle(2 * oneWay)
		mustWrite(t, p.da, "4567")
		p.c.RST(Acceptor)
		if u := unacked(t, p.da); u != 4 {
			t.Fatalf("%d unacknowledged, want 4", u)
		}
		wantRead(t, p.db, "123")
		wantReadErr(t, p.db, syscall.ECONNABORTED)
		wantReadErr(t, p.da, syscall.ECONNRESET)
	})
}

func TestCloseWithUnreadBytesMakesAnRST(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "unread")
		settle(2 * oneWay)
		p.db.Close()
		wantReadErr(t, p.da, syscall.ECONNRESET)
		if u := unacked(t, p.da); u != 0 {
			t.Fatalf("%d unacknowledged: the bytes are lost though acknowledged", u)
		}
	})
}

func TestBytesToAClosedStreamMakeAnRST(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.db, "last words")
		p.db.Close()
		mustWrite(t, p.da, "too late") // crosses the FIN
		settle(10 * oneWay)
		if got, err := readAll(p.da); got != "last words" || err != io.EOF {
			t.Fatalf("read %q, %v", got, err) // EOF, as on Linux: the FIN came before the RST
		}
		if u := unacked(t, p.da); u != 8 {
			t.Fatalf("%d unacknowledged, want 8", u)
		}
		_, err := p.da.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "TryWrite", err, syscall.ECONNRESET)
	})
}

func TestCloseSendsWhatWasWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{SendBuffer: 5000, RecvBuffer: 100})
		if n, _ := p.da.TryWrite([][]byte{make([]byte, 5000)}); n != 5000 {
			t.Fatal(n)
		}
		p.da.Close()
		if got, err := readAll(p.db); len(got) != 5000 || err != io.EOF {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		p.db.Close()
		settle(time.Second)
		if c := p.net.Conns(); len(c) != 0 {
			t.Fatalf("left over: %v", c)
		}
	})
}

func TestCloseAfterThePeersFIN(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{SendBuffer: 500, RecvBuffer: 100})
		p.db.CloseWrite()
		wantReadErr(t, p.da, io.EOF)
		if n, _ := p.da.TryWrite([][]byte{make([]byte, 500)}); n != 500 {
			t.Fatal(n)
		}
		p.da.Close()
		if got, err := readAll(p.db); len(got) != 500 || err != io.EOF {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
	})
}

func TestCloseAndResetEndEveryWait(t *testing.T) {
	for name, end := range map[string]func(*Stream) error{"Close": (*Stream).Close, "Reset": (*Stream).Reset} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t, Options{SendBuffer: 10, RecvBuffer: 10})
				if _, err := p.da.TryWrite([][]byte{make([]byte, 100)}); err != nil {
					t.Fatal(err)
				}
				settle(time.Second)
				p.da.TryWrite([][]byte{make([]byte, 100)})
				errs := make(chan error, 2)
				go func() { _, err := read(p.da, 1); errs <- err }()
				go func() { errs <- p.da.WaitWrite() }()
				synctest.Wait()
				end(p.da)
				wantErr(t, "waiting call", <-errs, net.ErrClosed)
				wantErr(t, "waiting call", <-errs, net.ErrClosed)
				wantErr(t, "Close again", p.da.Close(), net.ErrClosed)
			})
		})
	}
}

func TestReadGivesBuffersBackWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		r := &into{b: make([]byte, 10)}
		go func() {
			time.Sleep(time.Second)
			mustWrite(t, p.da, "x")
		}()
		if n, err := p.db.Read(r); n != 1 || err != nil || r.idle != 1 {
			t.Fatalf("%d, %v, idle %d times", n, err, r.idle)
		}
		mustWrite(t, p.da, "y")
		settle(oneWay)
		if n, err := p.db.Read(r); n != 1 || err != nil || r.idle != 1 {
			t.Fatalf("%d, %v, idle %d times", n, err, r.idle)
		}
	})
}

func TestDialRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{Link: Link{Delay: oneWay}})
		a := n.Host(addrA)
		n.Host(addrB)
		_, err := a.Dial(t.Context(), addrA, portB, 0, 0)
		wantErr(t, "Dial", err, syscall.ECONNREFUSED)
		if n.Now() != 2*oneWay {
			t.Errorf("refused after %v", n.Now())
		}
		_, err = a.Dial(t.Context(), addrB, portB, 0, 0)
		wantErr(t, "Dial from a foreign address", err, syscall.EADDRNOTAVAIL)
		_, err = a.Listen(portB)
		wantErr(t, "Listen on a foreign address", err, syscall.EADDRNOTAVAIL)
		if n.Stats().Refused != 1 || len(n.Conns()) != 0 {
			t.Errorf("%+v, %v", n.Stats(), n.Conns())
		}
	})
}

func TestDialHonoursItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{})
		a := n.Host(addrA) // nobody has addrB
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := a.Dial(ctx, addrA, portB, 0, 0)
		wantErr(t, "Dial", err, context.DeadlineExceeded)
		if n.Now() != 5*time.Second {
			t.Errorf("took %v", n.Now())
		}
		_, err = a.Dial(t.Context(), addrA, portB, 0, 0)
		wantErr(t, "Dial without deadline", err, syscall.ETIMEDOUT)
		if n.Now() != 35*time.Second {
			t.Errorf("took until %v", n.Now())
		}
		if len(n.Conns()) != 0 {
			t.Errorf("left over: %v", n.Conns())
		}
	})
}

func TestListenTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{})
		a := n.Host(addrA)
		l, err := a.Listen(netip.AddrPortFrom(addrA, 16385))
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.Host(addrA).Listen(l.Addr()) // another process of the same machine
		wantErr(t, "second Listen", err, syscall.EADDRINUSE)
		l.Close()
		if _, err := a.Listen(l.Addr()); err != nil {
			t.Fatal(err)
		}
		any, err := a.Listen(netip.AddrPortFrom(addrA, 0))
		if err != nil || any.Addr().Port() == 0 {
			t.Fatal(any, err)
		}
	})
}

func TestCrossingDials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{Link: Link{Delay: oneWay}})
		a, b := n.Host(addrA), n.Host(addrB)
		portA := netip.AddrPortFrom(addrA, 16385)
		la, _ := a.Listen(portA)
		lb, _ := b.Listen(portB)
		results := make(chan error, 4)
		dial := func(h *Host, from netip.Addr, to netip.AddrPort) {
			_, err := h.Dial(t.Context(), from, to, 0, 0)
			results <- err
		}
		accept := func(l transport.Listener) {
			_, err := l.Accept()
			results <- err
		}
		go dial(a, addrA, portB)
		go dial(b, addrB, portA)
		go accept(la)
		go accept(lb)
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if n.Now() != 3*oneWay || len(n.ConnsBetween(addrB, addrA)) != 2 {
			t.Errorf("%v, %v", n.Now(), n.Conns())
		}
	})
}

func TestWorksInRealTime(t *testing.T) {
	p := newPair(t, Options{Link: Link{Delay: -1}})
	defer p.net.Close()
	go func() {
		mustWrite(t, p.da, "hello")
		p.da.CloseWrite()
	}()
	if got, err := readAll(p.db); got != "hello" || err != io.EOF {
		t.Fatalf("read %q, %v", got, err)
	}
	p.net.Close()
	wantReadErr(t, p.da, syscall.ECONNABORTED)
}
