package simnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

func TestSourcePortsAreTakenFromFixedGroups(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{}) // path 0, attempt 0: 32776
		dial := func(path, attempt int, want uint16) *Stream {
			t.Helper()
			s, err := p.a.Dial(t.Context(), addrA, portB, path, attempt)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.LocalAddr().Port(); got != want || int(got)%8 != path {
				t.Fatalf("path %d attempt %d: port %d, want %d", path, attempt, got, want)
			}
			return s.(*Stream)
		}
		if got := p.da.LocalAddr().Port(); got != 32776 {
			t.Fatalf("port %d", got)
		}
		dial(0, 0, 32784) // in use: the next group
		dial(7, 0, 32783)
		s := dial(3, 9, 32776+72+3)
		dial(0, portGroups, 32792) // the groups begin again, and three are taken
		// What our side closed first stays in TIME_WAIT, and so does its port.
		s.Close()
		for _, c := range p.net.Conns() {
			c.Stream(Acceptor).Close()
		}
		settle(time.Second)
		dial(3, 9, 32776+80+3).Reset()
		settle(61 * time.Second)
		dial(3, 9, 32776+72+3)
		// Another remote address: the same port.
		other := netip.MustParseAddr("10.0.0.3")
		if _, err := p.net.Host(other).Listen(netip.AddrPortFrom(other, 1)); err != nil {
			t.Fatal(err)
		}
		o, err := p.a.Dial(t.Context(), addrA, netip.AddrPortFrom(other, 1), 3, 9)
		if err != nil || o.LocalAddr().Port() != 32776+72+3 {
			t.Fatal(o, err)
		}
		_, err = p.a.Dial(t.Context(), addrA, portB, 8, 0)
		wantErr(t, "Dial for path 8", err, syscall.EINVAL)
	})
}

func TestSYNClearsAStaleConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		stale, old := p.db, p.c
		p.a.Kill(PowerOff)
		_, err := p.a.Dial(t.Context(), addrA, portB, 0, 0)
		wantErr(t, "Dial of a dead process", err, syscall.ENETDOWN)
		p.a = p.net.Host(addrA)
		start := p.net.Now()
		p.dial(t)
		if d := p.net.Now() - start; d != 5*oneWay { // challenge, RST and SYN, SYN-ACK, ACK
			t.Errorf("took %v", d)
		}
		if p.c == old || p.c.Addr(Dialer) != old.Addr(Dialer) {
			t.Fatal("not the same four-tuple")
		}
		wantReadErr(t, stale, syscall.ECONNRESET)
		mustWrite(t, p.da, "new")
		settle(oneWay)
		wantRead(t, p.db, "new")
		if s := p.net.Stats(); s.Challenges != 1 || s.RSTs != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSYNIsWelcomeInTimeWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		first := p.c.Addr(Dialer)
		p.db.Close() // the accepting side closes first and has to remember
		wantReadErr(t, p.da, io.EOF)
		p.da.Close()
		settle(time.Second)
		start := p.net.Now()
		p.dial(t)
		if p.c.Addr(Dialer) != first {
			t.Fatalf("dialled from %v", p.c.Addr(Dialer))
		}
		if d := p.net.Now() - start; d != 3*oneWay {
			t.Errorf("took %v", d)
		}
	})
}

func TestKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		t.Log("exit: FIN after what was written")
		p := newPair(t, Options{})
		mustWrite(t, p.da, "last words")
		p.a.Kill(Exit)
		wantReadErr(t, p.da, syscall.ECONNABORTED)
		if got, err := readAll(p.db); got != "last words" || err != io.EOF {
			t.Fatal(got, err)
		}
		if err := p.da.Close(); err != nil {
			t.Fatal(err)
		}

		t.Log("exit with unread bytes: RST")
		p = newPair(t, Options{})
		mustWrite(t, p.da, "unread")
		settle(2 * oneWay)
		p.b.Kill(Exit)
		wantReadErr(t, p.da, syscall.ECONNRESET)
		_, err := p.l.Accept()
		wantErr(t, "Accept", err, net.ErrClosed)
		_, err = p.a.Dial(t.Context(), addrA, portB, 0, 0)
		wantErr(t, "Dial", err, syscall.ECONNREFUSED)
		_, err = p.b.Listen(portB)
		wantErr(t, "Listen of a dead process", err, syscall.ENETDOWN)
		if _, err := p.net.Host(addrB).Listen(portB); err != nil {
			t.Fatal(err)
		}

		t.Log("abort: RST")
		p = newPair(t, Options{})
		p.a.Kill(Abort)
		wantReadErr(t, p.db, syscall.ECONNRESET)

		t.Log("power off: silence, then RST from the successor")
		p = newPair(t, Options{})
		p.a.Kill(PowerOff)
		start := p.net.Now()
		mustWrite(t, p.db, "x")
		settle(10 * time.Second)
		p.net.Host(addrA)
		wantReadErr(t, p.db, syscall.ECONNRESET)
		if d := p.net.Now() - start; d < 10*time.Second || d > 26*time.Second {
			t.Errorf("after %v", d)
		}

		t.Log("power off: silence for ever")
		p = newPair(t, Options{})
		p.a.Kill(PowerOff)
		start = p.net.Now()
		wantReadErr(t, p.db, syscall.ETIMEDOUT)
		if d := p.net.Now() - start; d < 25*time.Second || d > 30*time.Second {
			t.Errorf("keepalive took %v", d)
		}
		if c := p.net.Conns(); len(c) != 0 {
			t.Errorf("left over: %v", c)
		}
	})
}

func TestBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{})
		a, b := n.Host(addrA), n.Host(addrB)
		l, err := b.ListenBacklog(portB, 1)
		if err != nil {
			t.Fatal(err)
		}
		first, err := a.Dial(t.Context(), addrA, portB, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		go func() { _, err := a.Dial(t.Context(), addrA, portB, 1, 0); errs <- err }()
		settle(500 * time.Millisecond)
		if l.Backlogged() != 1 {
			t.Fatalf("%d in the backlog", l.Backlogged())
		}
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil { // its second SYN
			t.Fatal(err)
		}
		if d := n.Now(); d < time.Second || d > time.Second+10*time.Millisecond {
			t.Errorf("took %v", d)
		}
		settle(time.Second)
		l.Close() // resets what nobody accepted
		for _, c := range n.Conns() {
			if c.Addr(Dialer) != first.LocalAddr() {
				wantReadErr(t, c.Stream(Dialer), syscall.ECONNRESET)
			}
		}
		if !n.Conns()[0].Established() {
			t.Error("closing the listener ended an accepted stream")
		}
	})
}

func TestAcceptErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{})
		a, b := n.Host(addrA), n.Host(addrB)
		l, _ := b.Listen(portB)
		errs := make(chan error)
		go func() {
			for {
				_, err := l.Accept()
				errs <- err
				if err == nil || errors.Is(err, net.ErrClosed) {
					return
				}
			}
		}()
		settle(time.Second)
		l.(*Listener).FailAccept(syscall.EMFILE, 2)
		wantErr(t, "Accept", <-errs, syscall.EMFILE)
		wantErr(t, "Accept", <-errs, syscall.EMFILE)
		if _, err := a.Dial(t.Context(), addrA, portB, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	})
}

func TestHostsWithSeveralAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := New(Options{})
		six := netip.MustParseAddr("fd00::1")
		n.SetLinkFrom(addrA, six, Link{Delay: time.Second}) // before either exists
		n.Partition(addrB, six)
		n.Heal(addrB, six)
		h := n.Host(addrA, six)
		n.Host(addrB)
		l, err := h.Listen(netip.AddrPortFrom(six, 5))
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Dial(t.Context(), addrA, l.Addr(), 0, 0)
		wantErr(t, "Dial between families", err, syscall.EINVAL)
		start := n.Now()
		s, err := h.Dial(t.Context(), six, l.Addr(), 0, 0)
		if err != nil || s.LocalAddr().Addr() != six {
			t.Fatal(s, err)
		}
		if d := n.Now() - start; d != 2*time.Second { // the link from the machine to itself
			t.Errorf("took %v", d)
		}
		defer func() {
			if recover() == nil {
				t.Error("overlapping hosts were made")
			}
		}()
		n.Host(six)
	})
}
