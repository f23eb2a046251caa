//go:build linux

package guest

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// arrival is a frame, or the end of a connection, seen by a scripted peer.
type arrival struct {
	path int
	Frame
	err error
}

// scripted is a peer that speaks RDS/TCP by hand.
type scripted struct {
	t     *testing.T
	conns map[int]*net.TCPConn
	in    chan arrival
}

func newScripted(t *testing.T) *scripted {
	// Large enough that no reader ever has to wait for a test that ended.
	s := &scripted{t: t, conns: map[int]*net.TCPConn{}, in: make(chan arrival, 4096)}
	t.Cleanup(func() {
		for _, c := range s.conns {
			c.Close()
		}
	})
	return s
}

// add starts reading a connection.
func (s *scripted) add(path int, c *net.TCPConn) {
	c.SetDeadline(time.Now().Add(2 * Patience))
	s.conns[path] = c
	go func() {
		for {
			f, err := ReadFrame(c)
			s.in <- arrival{path, f, err}
			if err != nil {
				return
			}
		}
	}()
}

func (s *scripted) write(path int, frames ...Frame) {
	s.t.Helper()
	if err := WriteFrames(s.conns[path], frames...); err != nil {
		s.t.Fatalf("path %d: %v", path, err)
	}
}

// until reads frames until done says so, and answers nothing by itself.
func (s *scripted) until(what string, done func(arrival) bool) {
	s.t.Helper()
	deadline := time.After(Patience)
	for {
		select {
		case a := <-s.in:
			if a.err != nil {
				s.t.Fatalf("path %d ended while waiting for %s: %v", a.path, what, a.err)
			}
			s.t.Logf("path %d: %v", a.path, a.Frame)
			if done(a) {
				return
			}
		case <-deadline:
			s.t.Fatalf("no %s", what)
		}
	}
}

func accept(t *testing.T, l *net.TCPListener) *net.TCPConn {
	t.Helper()
	l.SetDeadline(time.Now().Add(Patience))
	c, err := l.AcceptTCP()
	if err != nil {
		t.Fatalf("the kernel does not dial: %v", err)
	}
	return c
}

func listen(t *testing.T, p *Pair, side Side, v6 bool) *net.TCPListener {
	t.Helper()
	p.Free(side)
	l, err := p.ListenTCP(side, netip.AddrPortFrom(p.Addr(side, v6), Port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// waitAcked waits until the kernel has nothing unacknowledged of this socket.
func waitAcked(t *testing.T, s *Socket) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, q := range []func() ([]MessageInfo, error){s.SendQueue, s.RetransQueue} {
			msgs, err := q()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				if m.Local == s.Addr() {
					left++
				}
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages of %v are still unacknowledged", left, s.Addr())
		}
	}
}

// exchange plays the acceptor's part on path 0 of a connection that the kernel
// in A dialled: map, probe, answers; then one message each way.
func exchange(t *testing.T, p *Pair, s *scripted, k *Socket, v6 bool, first []byte) {
	t.Helper()
	const port = 6000
	ext := HandshakeExt(1, 0x1234567)
	s.write(0, EmptyMap(), Probe(1, ext))
	seq := uint64(2)
	var sawMap, sawPong, sawData bool
	s.until("map, pong and data", func(a arrival) bool {
		switch {
		case a.IsMap():
			sawMap = true
		case a.IsProbe():
			if n := a.AnnouncedPaths(); n != 8 {
				t.Errorf("probe announces %d paths", n)
			}
			s.write(0, Pong(seq, ext))
			seq++
		case a.IsPong():
			sawPong = true
			if n := a.AnnouncedPaths(); n != 8 {
				t.Errorf("pong announces %d paths", n)
			}
		case a.Sport == k.Addr().Port() && a.Dport == port && string(a.Data) == string(first):
			sawData = true
		default:
			t.Errorf("unexpected frame %v", a.Frame)
		}
		return sawMap && sawPong && (sawData || first == nil)
	})
	answer := pattern(3000, 5)
	s.write(0, Frame{Seq: seq, Sport: port, Dport: k.Addr().Port(), Data: answer})
	expect(t, k, answer, netip.AddrPortFrom(p.Addr(B, v6), port))
	waitAcked(t, k)
}

// The kernel in A dials a listener of this process in B, where the kernel's
// own was killed.
func TestScriptedAcceptor(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(map[bool]string{false: "v4", true: "v6"}[v6], func(t *testing.T) {
			p := NewPair(t)
			l := listen(t, p, B, v6)
			k := p.KernelSocketAt(t, A, netip.AddrPortFrom(p.Addr(A, v6), path0Port))
			first := pattern(1234, 1)
			if err := k.Send(first, netip.AddrPortFrom(p.Addr(B, v6), 6000), Patience); err != nil {
				t.Fatal(err)
			}
			c := accept(t, l)
			from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
			if from.Addr().Unmap() != p.Addr(A, v6) {
				t.Errorf("dialled from %v", from)
			}
			if Kernel7() && from.Port()%8 != 0 {
				t.Errorf("7.x dials path 0 from port %d", from.Port())
			}
			s := newScripted(t)
			s.add(0, c)
			exchange(t, p, s, k, v6, first)
		})
	}
}

// A connection from the larger address carries nothing; it makes the kernel
// dial back and is closed.
func TestScriptedLargerWakes(t *testing.T) {
	p := NewPair(t)
	l := listen(t, p, B, false)
	k := p.KernelSocket(t, A, path0Port)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	wake, err := p.DialPath(ctx, B, 0, false)
	if err != nil {
		t.Logf("the kernel refuses at once: %v", err)
	} else {
		defer wake.Close()
	}
	c := accept(t, l)
	if wake != nil {
		wake.SetDeadline(time.Now().Add(Patience))
		if n, err := wake.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes on the larger side's connection", n)
		} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Error("the kernel keeps the larger side's connection")
		}
		wake.Close()
	}
	s := newScripted(t)
	s.add(0, c)
	exchange(t, p, s, k, false, nil)
}

// A peer in A dials the kernel in B the way the spec recommends (section 20,
// 13): eight paths from ports congruent to the path, data on all of them.
func TestScriptedDialler(t *testing.T) {
	p := NewPair(t)
	listen(t, p, A, false)
	k := p.KernelSocket(t, B, path0Port)
	const port = 6100
	here := netip.AddrPortFrom(p.Addr(A, false), port)
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
	defer cancel()
	s := newScripted(t)
	dial := func(path int) {
		t.Helper()
		c, err := p.DialPath(ctx, A, path, false)
		if err != nil {
			t.Fatalf("path %d: %v", path, err)
		}
		if got := c.LocalAddr().(*net.TCPAddr).Port % 8; got != path {
			t.Fatalf("path %d: port is congruent to %d", path, got)
		}
		s.add(path, c)
	}
	dial(0)
	ext := HandshakeExt(8, 0x7654321)
	s.write(0, EmptyMap(), Probe(1, ext))
	seq := uint64(2)
	var sawProbe, sawPong bool
	s.until("probe and pong", func(a arrival) bool {
		switch {
		case a.IsProbe():
			sawProbe = true
			s.write(0, Pong(seq, ext))
			seq++
		case a.IsPong():
			sawPong = true
		}
		return sawProbe && sawPong
	})
	for path := 1; path < 8; path++ {
		dial(path)
	}
	got := map[byte]bool{}
	for path := range 8 {
		n := uint64(1)
		if path == 0 {
			n = seq
		}
		s.write(path, Frame{Seq: n, Sport: port, Dport: path0Port, Data: []byte{byte(path)}})
	}
	for range 8 {
		m, err := recvData(k, Patience)
		if err != nil {
			t.Fatalf("data came on paths %v only: %v", got, err)
		}
		if m.From != here || len(m.Data) != 1 || got[m.Data[0]] {
			t.Fatalf("got %v from %v after %v", m.Data, m.From, got)
		}
		got[m.Data[0]] = true
	}
	// The kernel answers from one socket for each path.
	answer := pattern(20000, 8)
	var socks []*Socket
	want := map[uint16]int{}
	for path := range 8 {
		from := PortOnPath(path, 5300)
		want[from] = path
		sock := p.KernelSocket(t, B, from)
		if err := sock.Send(answer, here, Patience); err != nil {
			t.Fatal(err)
		}
		socks = append(socks, sock)
	}
	s.until("a message of the kernel on each path", func(a arrival) bool {
		if a.IsMap() {
			return false
		}
		path, ok := want[a.Sport]
		if !ok || a.Dport != port || string(a.Data) != string(answer) {
			t.Errorf("unexpected frame %v", a.Frame)
		} else if a.path != path {
			t.Errorf("port %d: path %d, want %d", a.Sport, a.path, path)
		}
		delete(want, a.Sport)
		return len(want) == 0
	})
	for _, sock := range socks {
		waitAcked(t, sock)
	}
}
