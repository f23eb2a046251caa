package engine

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

const (
	here    = "10.0.0.1"
	here2   = "10.0.0.3"
	there   = "10.0.0.2"
	nowhere = "10.0.0.77" // nobody is there
)

// TestSendAccounting has the observed rows of RDS spec section 19 for S, and their
// neighbours.
func TestSendAccounting(t *testing.T) {
	type step struct {
		do   string // "send N", "send N to PORT", "ack N", "cancel PORT"
		want error
	}
	for _, tc := range []struct {
		name  string
		s     int
		steps []step
	}{
		{"overshoots by one message", 5000, []step{
			{"send 2000", nil}, {"send 2000", nil}, {"send 2000", nil}, {"send 2000", ErrAgain}, {"send 2000", ErrAgain},
		}},
		{"old value is compared", 5000, []step{
			{"send 4999", nil}, {"send 5000", nil}, {"send 1", ErrAgain},
		}},
		{"exactly full", 5000, []step{{"send 5000", nil}, {"send 1", ErrAgain}}},
		{"larger than S", 5000, []step{{"send 5001", ErrMessageSize}, {"send 5000", nil}}},
		{"larger than S comes before full", 5000, []step{{"send 5000", nil}, {"send 5001", ErrMessageSize}}},
		{"empty message is refused when full", 5000, []step{{"send 5000", nil}, {"send 0", ErrAgain}}},
		{"empty message takes no room", 5000, []step{{"send 0", nil}, {"send 4999", nil}, {"send 0", nil}, {"send 1", nil}, {"send 0", ErrAgain}}},
		{"another destination, same account", 5000, []step{{"send 5000", nil}, {"send 1 to 3101", ErrAgain}}},
		{"acknowledgement makes room", 5000, []step{{"send 2000", nil}, {"send 3000", nil}, {"send 1", ErrAgain}, {"ack 1", nil}, {"send 1", nil}}},
		{"overshoot must go first", 5000, []step{
			{"send 2000", nil}, {"send 2000", nil}, {"send 5000", nil}, {"ack 1", nil}, {"send 1", ErrAgain}, {"ack 1", nil}, {"send 1", ErrAgain}, {"ack 1", nil}, {"send 1", nil},
		}},
		{"cancel of another port changes nothing", 5000, []step{{"send 5000", nil}, {"cancel 3101", nil}, {"send 1", ErrAgain}}},
		{"cancel makes room", 5000, []step{{"send 5000", nil}, {"cancel 3100", nil}, {"send 1", nil}}},
		{"default S", 0, []step{{"send 106497", ErrMessageSize}, {"send 106496", nil}, {"send 1", ErrAgain}}},
		{"1 MiB", 2000000, []step{{"send 1048577", ErrMessageSize}, {"send 1048576", nil}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newFake(t, Config{SendBuffer: tc.s}, here)
			l := e.to(here, nowhere).holding()
			s := bind(t, e.Engine, here+":3000")
			for i, st := range tc.steps {
				var n, port int
				var err error
				if k, _ := fmt.Sscanf(st.do, "send %d to %d", &n, &port); k == 0 {
					if k, _ := fmt.Sscanf(st.do, "ack %d", &n); k == 1 {
						l.ack(n)
					} else {
						fmt.Sscanf(st.do, "cancel %d", &port)
						s.Cancel(netip.AddrPortFrom(l.remote, uint16(port)))
					}
				} else {
					if k == 1 {
						port = 3100
					}
					err = s.TrySend(netip.AddrPortFrom(l.remote, uint16(port)), make([]byte, n))
				}
				wantErr(t, fmt.Sprintf("step %d, %s", i, st.do), err, st.want)
			}
			msgs, bytes := s.PendingAll()
			if m, b := l.Pending(s, 0, true); m != msgs || b != bytes {
				t.Errorf("account says %d messages of %d bytes, link %d of %d", msgs, bytes, m, b)
			}
		})
	}
}

// TestEmptyMessagesAreBounded: they take no room, but not without end.
func TestEmptyMessagesAreBounded(t *testing.T) {
	e := newFake(t, Config{SendBuffer: 2304}, here)
	l := e.to(here, nowhere).holding()
	s := bind(t, e.Engine, here+":3000")
	to := ap(nowhere + ":1")
	for i := range 2304 {
		if err := s.TrySend(to, nil); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	wantErr(t, "one more", s.TrySend(to, nil), ErrAgain)
	l.ack(1)
	wantErr(t, "after an acknowledgement", s.TrySend(to, nil), nil)
}

func TestSendErrors(t *testing.T) {
	e := newFake(t, Config{AllowPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/16")}},
		here, "fd00::1")
	v4, v6 := bind(t, e.Engine, here+":3000"), bind(t, e.Engine, "[fd00::1]:3000")
	big := make([]byte, wire.MaxMessage+1)
	for _, tc := range []struct {
		s    *Socket
		to   string
		n    int
		want error
	}{
		{v4, "0.0.0.0:5", 1, ErrInvalid},
		{v4, "255.255.255.255:5", 1, ErrInvalid},
		{v4, "224.0.0.1:5", 1, ErrInvalid},
		{v4, "[fd00::2]:5", 1, ErrNotSupported},
		{v6, "10.0.0.2:5", 1, ErrNotSupported},
		{v6, "[::]:5", 1, ErrInvalid},
		{v6, "[ff02::1]:5", 1, ErrInvalid},
		{v6, "[fe80::1]:5", 1, ErrInvalid}, // no scope
		{v4, "10.0.0.2:5", len(big), ErrMessageSize},
		{v4, "0.0.0.0:5", len(big), ErrInvalid},        // the address is checked first,
		{v4, "[fd00::2]:5", len(big), ErrNotSupported}, // then the family,
		{v4, "192.0.2.1:5", len(big), ErrMessageSize},  // then the size, then the rest
		{v4, "192.0.2.1:5", 1, ErrNotAllowed},
		{v4, "10.0.0.2:0", 5, nil}, // a ping
		{v4, "10.0.0.2:1", 5, nil},
		{v4, "[::ffff:10.0.0.2]:5", 5, nil},
		{v6, "[fd00::2]:5", 5, nil},
	} {
		for range 2 { // the second time the connection is known
			wantErr(t, fmt.Sprintf("%v -> %s, %d bytes", tc.s.addr, tc.to, tc.n), tc.s.TrySend(ap(tc.to), big[:tc.n]), tc.want)
		}
	}
	wantErr(t, "not connected", v4.TrySend(netip.AddrPort{}, nil), ErrNotConnected)
	v4.Close()
	wantErr(t, "closed", v4.TrySend(ap("10.0.0.2:5"), nil), ErrClosed)
	wantErr(t, "closed, no address", v4.TrySend(netip.AddrPort{}, nil), ErrClosed)
	wantErr(t, "closed, bad address", v4.Send(context.Background(), ap("0.0.0.0:5"), nil), ErrClosed)
}

func TestConnect(t *testing.T) {
	e := newFake(t, Config{}, here, "fd00::1")
	for _, tc := range []struct {
		to   netip.AddrPort
		want error
	}{
		{ap("0.0.0.0:1"), syscall.EDESTADDRREQ},
		{ap("224.0.0.1:1"), ErrInvalid},
		{ap("255.255.255.255:1"), ErrInvalid},
		{ap("[::]:1"), syscall.EPROTOTYPE},
		{ap("[ff02::1]:1"), syscall.EPROTOTYPE},
		{ap("[fe80::1]:1"), ErrInvalid},
		{netip.AddrPort{}, syscall.EAFNOSUPPORT},
		{ap("10.0.0.2:0"), nil},
		{ap("10.0.0.1:5"), nil},
		{ap("[fd00::9]:5"), nil}, // the family is not looked at here
		{ap("10.0.0.2:4001"), nil},
	} {
		s := bind(t, e.Engine, here+":0")
		err := s.Connect(tc.to)
		wantErr(t, "connect "+tc.to.String(), err, tc.want)
		if got := s.Peer(); (err == nil) != (got.IsValid() && got == tc.to) {
			t.Errorf("connect %v: peer is %v", tc.to, got)
		}
	}

	s := bind(t, e.Engine, here+":0")
	l := e.to(here, there).holding()
	s.Connect(ap(there + ":4000"))
	s.Connect(ap(there + ":4001")) // may be changed
	wantErr(t, "send on a connected socket", s.TrySend(netip.AddrPort{}, []byte("x")), nil)
	if got := l.sent(); len(got) != 1 || got[0].DPort != 4001 {
		t.Errorf("sent %v, want one message to port 4001", got)
	}
	s.Connect(ap("[fd00::9]:5"))
	wantErr(t, "send to a connected address of another family", s.TrySend(netip.AddrPort{}, nil), ErrNotSupported)
}

// TestAckSoon: more than half of S unacknowledged asks for early acknowledgements.
func TestAckSoon(t *testing.T) {
	e := newFake(t, Config{SendBuffer: 4000}, here)
	l := e.to(here, nowhere).holding()
	s := bind(t, e.Engine, here+":3000")
	for range 4 {
		wantErr(t, "send", s.TrySend(ap(nowhere+":1"), make([]byte, 1000)), nil)
	}
	for i, want := range []bool{false, false, true, true} {
		if got := l.sent()[i].AckSoon; got != want {
			t.Errorf("message %d: AckSoon = %v, want %v", i, got, want)
		}
	}
}

func TestPendingAndCancel(t *testing.T) {
	e := newFake(t, Config{}, here)
	l1, l2 := e.to(here, there).holding(), e.to(here, nowhere).holding()
	s, other := bind(t, e.Engine, here+":3000"), bind(t, e.Engine, here+":3001")
	for _, to := range []string{there + ":10", there + ":10", there + ":11", nowhere + ":10"} {
		wantErr(t, "send", s.TrySend(ap(to), make([]byte, 100)), nil)
		wantErr(t, "send", other.TrySend(ap(to), make([]byte, 7)), nil)
	}
	check := func(what string, gotM, gotB, m, b int) {
		t.Helper()
		if gotM != m || gotB != b {
			t.Errorf("%s: %d messages of %d bytes, want %d of %d", what, gotM, gotB, m, b)
		}
	}
	m, b := s.Pending(ap(there + ":10"))
	check("pending of one address", m, b, 2, 200)
	m, b = s.Pending(ap("10.0.0.99:10"))
	check("pending of an unknown address", m, b, 0, 0)
	m, b = s.PendingAll()
	check("pending of all", m, b, 4, 400)
	if n := s.Cancel(ap(there + ":10")); n != 2 {
		t.Errorf("Cancel = %d, want 2", n)
	}
	if n := s.Cancel(netip.AddrPort{}); n != 0 {
		t.Errorf("Cancel of no address = %d, want 0", n)
	}
	m, b = s.PendingAll()
	check("pending after cancel", m, b, 2, 200)
	if n := s.CancelAll(); n != 2 {
		t.Errorf("CancelAll = %d, want 2", n)
	}
	m, b = s.PendingAll()
	check("pending after cancelling all", m, b, 0, 0)
	if got := len(l1.sent()) + len(l2.sent()); got != 4 {
		t.Errorf("%d messages of the other socket left, want 4", got)
	}
}

// TestSendOnClosedTransport gives the bytes back.
func TestSendOnClosedTransport(t *testing.T) {
	e := newFake(t, Config{}, here)
	s := bind(t, e.Engine, here+":3000")
	wantErr(t, "send", s.TrySend(ap(there+":1"), []byte("x")), nil)
	e.t.Close(0)
	wantErr(t, "send on a closed link", s.TrySend(ap(there+":1"), []byte("x")), ErrClosed)
	wantErr(t, "send on a new link", s.TrySend(ap(nowhere+":1"), []byte("x")), ErrClosed)
	if m, b := s.PendingAll(); m != 0 || b != 0 {
		t.Errorf("%d messages of %d bytes in the account, want none", m, b)
	}
}
