package engine

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	one := []netip.Addr{netip.MustParseAddr(here)}
	for _, tc := range []struct {
		cfg  Config
		want string // in the error; "" means it is valid
	}{
		{Config{}, "Addrs is empty"},
		{Config{Addrs: []netip.Addr{{}}}, "cannot be the address"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("0.0.0.0")}}, "0.0.0.0"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("224.0.0.1")}}, "224.0.0.1"},
		{Config{Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}}, "fe80::1"},
		{Config{Addrs: []netip.Addr{one[0], netip.MustParseAddr("::ffff:10.0.0.1")}}, "twice"},
		{Config{Addrs: one, AllowPeers: []netip.Prefix{{}}}, "AllowPeers"},
		{Config{Addrs: one, SendBuffer: -1}, "SendBuffer"},
		{Config{Addrs: one, RecvBuffer: 1<<30 + 1}, "RecvBuffer"},
		{Config{Addrs: one, MaxMessage: -1}, "MaxMessage"},
		{Config{Addrs: one, MaxMessage: 1<<30 + 1}, "MaxMessage"},
		{Config{Addrs: one, PeerQueueLimit: -1}, "PeerQueueLimit"},
		{Config{Addrs: one, NodeQueueLimit: -1}, "NodeQueueLimit"},
		{Config{Addrs: one, MaxPeers: -1}, "MaxPeers"},
		{Config{Addrs: one, MapTimeout: -1}, "MapTimeout"},
		{Config{Addrs: one, StallTimeout: -1}, "StallTimeout"},
		{Config{Addrs: one, GiveUp: -1}, "GiveUp"},
		{Config{Addrs: one}, ""},
	} {
		e, err := New(tc.cfg)
		if err == nil {
			e.Close()
		}
		if (err == nil) != (tc.want == "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: error %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

func TestBufferSizes(t *testing.T) {
	e := newFake(t, Config{}, here)
	s := bind(t, e.Engine, here+":5")
	if s.SendBuffer() != 106496 || s.RecvBuffer() != 106496 {
		t.Errorf("S = %d, R = %d", s.SendBuffer(), s.RecvBuffer())
	}
	for _, tc := range []struct{ set, s, r int }{ // S and R are half of what getsockopt says in RDS spec section 19
		{0, 2304, 1152}, {1, 2304, 1152}, {1000, 2304, 1152}, {2304, 2304, 2304}, {2305, 2305, 2305}, {4608, 4608, 4608}, {1 << 30, 1 << 30, 1 << 30},
	} {
		if err := errors.Join(s.SetSendBuffer(tc.set), s.SetRecvBuffer(tc.set)); err != nil || s.SendBuffer() != tc.s || s.RecvBuffer() != tc.r {
			t.Errorf("set %d: S = %d, R = %d, error %v; want %d, %d", tc.set, s.SendBuffer(), s.RecvBuffer(), err, tc.s, tc.r)
		}
	}
	for _, bad := range []int{-1, 1<<30 + 1} {
		wantErr(t, "SetSendBuffer", s.SetSendBuffer(bad), ErrInvalid)
		wantErr(t, "SetRecvBuffer", s.SetRecvBuffer(bad), ErrInvalid)
	}
}

func TestBindOptions(t *testing.T) {
	e := newFake(t, Config{SendBuffer: 5000, RecvBuffer: 6000}, here)
	s, err := e.Bind(ap(here+":5"), func(s *Socket) error { return s.SetSendBuffer(7000) })
	if err != nil || s.SendBuffer() != 7000 || s.RecvBuffer() != 6000 {
		t.Errorf("socket %v, error %v", s, err)
	}
	_, err = e.Bind(ap(here+":6"), func(s *Socket) error { return s.SetSendBuffer(-1) })
	wantErr(t, "bad option", err, ErrInvalid)
	if n := len(e.Sockets()); n != 1 {
		t.Errorf("%d sockets, want 1", n)
	}
}

// TestCounterNames: the kernel's 41 in its order, then ours.
func TestCounterNames(t *testing.T) {
	e := newFake(t, Config{}, here)
	cs := e.Counters()
	if len(kernelCounters) != 41 || len(cs) < 41 {
		t.Fatalf("%d kernel counters, %d in all", len(kernelCounters), len(cs))
	}
	for i, name := range kernelCounters {
		if cs[i].Name != name {
			t.Errorf("counter %d is %s, want %s", i, cs[i].Name, name)
		}
	}
	seen := map[string]bool{}
	for _, c := range cs {
		if seen[c.Name] {
			t.Errorf("counter %s is there twice", c.Name)
		}
		seen[c.Name] = true
	}
}

// TestCounters adds up what closed and open sockets did.
func TestCounters(t *testing.T) {
	e := newFake(t, Config{}, here, here2)
	s, r := bind(t, e.Engine, here+":5"), bind(t, e.Engine, here2+":6")
	for range 3 {
		s.TrySend(r.addr, make([]byte, 100))
	}
	s.TrySend(ap(here2+":7"), nil)      // nobody
	s.TrySend(ap(here2+":0"), []byte{}) // ping
	r.TryRecv(make([]byte, 10), new(Delivery))
	s.TryRecv(nil, new(Delivery))
	check := func(when string) {
		t.Helper()
		for name, want := range map[string]uint64{
			"send_queued": 5, "copy_from_user": 300, "recv_queued": 4, "recv_delivered": 2, "copy_to_user": 10,
			"recv_bytes_added_to_sock": 300, "recv_drop_no_sock": 1, "recv_ping": 1, "send_pong": 1,
		} {
			if got := counter(e.Engine, name); got != want {
				t.Errorf("%s: %s = %d, want %d", when, name, got, want)
			}
		}
	}
	check("open")
	if got := counter(e.Engine, "recv_bytes_freed_fromsock"); got != 100 {
		t.Errorf("recv_bytes_freed_fromsock = %d, want 100", got)
	}
	s.Close()
	r.Close()
	check("closed")
	if got := counter(e.Engine, "recv_bytes_freed_fromsock"); got != 300 {
		t.Errorf("recv_bytes_freed_fromsock = %d, want 300", got)
	}
	e.to(here, there)
	if got := counter(e.Engine, "recv_drop_old_seq"); got != 3 {
		t.Errorf("recv_drop_old_seq = %d, want the link's 3", got)
	}
}

func TestInfo(t *testing.T) {
	e := newFake(t, Config{}, here2, here)
	s := bind(t, e.Engine, here2+":5")
	bind(t, e.Engine, here+":9")
	bind(t, e.Engine, here+":10")
	s.Connect(ap(there + ":7"))
	l := e.to(here2, there).holding()
	s.TrySend(netip.AddrPort{}, make([]byte, 11))
	l.handler.Deliver(inbound(5, 12))
	l.handler.RemoteMap(congest(1, 2, 3))
	got := e.Sockets()
	if len(got) != 3 || got[0].Local != ap(here+":9") || got[1].Local != ap(here+":10") {
		t.Fatalf("sockets %+v", got)
	}
	want := SocketInfo{Local: ap(here2 + ":5"), Peer: ap(there + ":7"), SendBuffer: DefaultBuffer, RecvBuffer: DefaultBuffer,
		SendBytes: 11, SendMessages: 1, RecvBytes: 12, RecvMessages: 1}
	if got[2] != want {
		t.Errorf("socket %+v, want %+v", got[2], want)
	}
	s.TrySend(ap(here+":9"), nil)
	cs := e.Connections()
	if len(cs) != 3 || cs[0].Local.String() != here || cs[0].Transport != "loopback" || cs[1].Local.String() != here2 || cs[1].Remote.String() != here && cs[1].Remote.String() != there {
		t.Fatalf("connections %+v", cs)
	}
	for _, c := range cs {
		if c.Remote.String() == there && (c.CongestedPorts != 3 || c.UnreadBytes != 12+overhead || c.Stopped) {
			t.Errorf("connection %+v", c)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		err     error
		errno   syscall.Errno
		timeout bool
	}{
		{ErrCongested, syscall.ENOBUFS, false}, {ErrAgain, syscall.EAGAIN, false}, {ErrMessageSize, syscall.EMSGSIZE, false},
		{ErrNotConnected, syscall.ENOTCONN, false}, {ErrAddrInUse, syscall.EADDRINUSE, false}, {ErrAddrNotAvail, syscall.EADDRNOTAVAIL, false},
		{ErrNotSupported, syscall.EOPNOTSUPP, false}, {ErrInvalid, syscall.EINVAL, false}, {ErrTimeout, syscall.ETIMEDOUT, true},
		{ErrClosed, syscall.EBADF, false}, {ErrNotAllowed, syscall.EACCES, false}, {ErrPeerLimit, syscall.ENOMEM, false},
		{ErrPeerGone, syscall.EHOSTUNREACH, false},
	} {
		var errno syscall.Errno
		var timeout interface{ Timeout() bool }
		if !errors.Is(tc.err, tc.errno) || !errors.As(tc.err, &errno) || errno != tc.errno {
			t.Errorf("%v is not errno %v", tc.err, tc.errno)
		}
		if !errors.As(tc.err, &timeout) || timeout.Timeout() != tc.timeout {
			t.Errorf("%v: Timeout is not %v", tc.err, tc.timeout)
		}
		if errors.Is(tc.err, os.ErrDeadlineExceeded) != tc.timeout {
			t.Errorf("%v is os.ErrDeadlineExceeded: %v", tc.err, !tc.timeout)
		}
	}
	// Limits are named.
	e := newFake(t, Config{SendBuffer: 5000, MaxMessage: 4000}, here)
	e.to(here, there).holding()
	s := bind(t, e.Engine, here+":5")
	to := ap(there + ":1")
	s.TrySend(to, make([]byte, 3000))
	s.TrySend(to, make([]byte, 3000))
	for _, tc := range []struct {
		n    int
		want []string
	}{
		{4001, []string{"4001", "Config.MaxMessage is 4000 bytes"}},
		{1, []string{"6000", "5000"}},
	} {
		err := s.TrySend(to, make([]byte, tc.n))
		for _, w := range tc.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	s.SetSendBuffer(2304)
	if err := s.TrySend(to, make([]byte, 2305)); err == nil || !strings.Contains(err.Error(), "send buffer is 2304 bytes") {
		t.Errorf("error %q does not name S", err)
	}
	s.SetLinger(time.Millisecond)
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "2 messages of 6000 bytes") {
		t.Errorf("error %q does not say what was lost", err)
	}
}
