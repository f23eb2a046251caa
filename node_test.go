package rds

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rds-go/rds/internal/engine"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simPair makes two nodes on a simulated network, 10 ms apart.
func simPair(t *testing.T, cfg Config) (a, b *Node) {
	t.Helper()
	n := simnet.New(simnet.Options{})
	t.Cleanup(n.Close)
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	n.SetLink(one, two, simnet.Link{Delay: 10 * time.Millisecond})
	for _, x := range []struct {
		addr netip.Addr
		node **Node
	}{{one, &a}, {two, &b}} {
		c := cfg
		c.Addrs = []netip.Addr{x.addr}
		var err error
		if *x.node, err = seam.New[*Node](c, n.Host(x.addr)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*x.node).Close() })
	}
	return a, b
}

func mustBind(t testing.TB, n *Node, port uint16, opts ...SocketOption) *Socket {
	t.Helper()
	s, err := n.Bind(AddrFrom(n.Addrs()[0], port), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTwoNodes goes once through everything between two nodes.
func TestTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a, b := simPair(t, Config{Events: SlogEvents(logger)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, r := mustBind(t, a, 4000), mustBind(t, b, 5000, WithRecvBuffer(10000), WithTimestamps(), WithSendBuffer(5000))
		if r.RecvBuffer() != 10000 || r.SendBuffer() != 5000 {
			t.Errorf("options: R = %d, S = %d", r.RecvBuffer(), r.SendBuffer())
		}
		if n, err := s.SendBatch(ctx, []Message{{Addr: r.Addr(), Payload: []byte("one")}, {Addr: r.Addr(), Payload: []byte("second")}, {Addr: r.Addr()}}); n != 3 || err != nil {
			t.Fatalf("SendBatch = %d, %v", n, err)
		}
		if m, n := s.Pending(r.Addr()); m != 3 || n != 9 {
			t.Errorf("%d messages of %d bytes pending, want 3 of 9", m, n)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if m, n := s.PendingAll(); m != 0 || n != 0 {
			t.Errorf("%d messages of %d bytes pending after Flush", m, n)
		}
		var one [3]byte
		ms := []Message{{Payload: one[:]}, {Payload: make([]byte, 3)}, {}, {}}
		if n, err := r.RecvBatch(ctx, ms); n != 3 || err != nil {
			t.Fatalf("RecvBatch = %d, %v", n, err)
		}
		for i, want := range []string{"one", "sec", ""} {
			m := ms[i]
			if string(m.Payload) != want || m.Truncated != (i == 1) || m.Len != []int{3, 6, 0}[i] || m.Addr != s.Addr() || m.Time.IsZero() {
				t.Errorf("message %d: %+v", i, m)
			}
		}
		if d, err := a.Ping(ctx, netip.Addr{}, b.Addrs()[0]); err != nil || d < 20*time.Millisecond || d > 100*time.Millisecond {
			t.Errorf("ping over 10 ms each way: %v, %v", d, err)
		}

		// Congestion, over the wire.
		for range 11 {
			if err := s.Send(ctx, r.Addr(), make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if err := s.TrySend(r.Addr(), nil); !errors.Is(err, ErrCongested) || !errors.Is(err, syscall.ENOBUFS) {
			t.Errorf("send to a congested port: %v", err)
		}
		if c := a.Connections(); len(c) != 1 || c[0].CongestedPorts != 1 || c[0].Transport != "tcp" || !c[0].Own {
			t.Errorf("connections %+v", c)
		}
		if i := b.Sockets(); len(i) != 1 || !i[0].Congested || i[0].RecvBytes != 11000 || i[0].RecvMessages != 11 || i[0].Local != r.Addr() {
			t.Errorf("sockets %+v", i)
		}
		sent := make(chan error, 1)
		go func() { sent <- s.Send(ctx, r.Addr(), nil) }()
		synctest.Wait()
		for i := range 7 {
			if _, _, err := r.Recv(ctx, nil); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		if err := <-sent; err != nil {
			t.Errorf("blocked sender: %v", err)
		}
		if got := a.Stat("cong_send_blocked"); got != 1 {
			t.Errorf("cong_send_blocked = %d", got)
		}
		if a.Stats()[0].Name != "conn_reset" || a.Stat("no such counter") != 0 {
			t.Error("counters")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("closing again: %v", err)
		}
		synctest.Wait()
		b.Close()
		for _, want := range []string{"rds peer up", "rds peer known", "own=true", "peer=10.0.0.2", "rds path up", "rds peer down"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log does not say %q:\n%s", want, log.String())
			}
		}
	})
}

// TestAllowPeersOverTheWire: a stranger's connection is refused, and sending to one
// fails.
func TestAllowPeersOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var refused []PeerEvent
		a, b := simPair(t, Config{
			AllowPeers: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")},
			Events:     &Events{Refused: func(ev PeerEvent) { mu.Lock(); refused = append(refused, ev); mu.Unlock() }},
		})
		s, r := mustBind(t, a, 4000), mustBind(t, b, 4000)
		if err := s.Send(t.Context(), r.Addr(), nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Send(t.Context(), s.Addr(), nil); !errors.Is(err, ErrNotAllowed) || !errors.Is(err, syscall.EACCES) {
			t.Errorf("send to a stranger: %v", err)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(refused) < 5 || len(refused) > 11 || !errors.Is(refused[0].Err, ErrNotAllowed) || refused[0].Remote != a.Addrs()[0] {
			t.Errorf("%d Refused events in 10 s, want about one a second: %+v", len(refused), refused)
		}
	})
}

// TestPacketConn uses a Socket as net.PacketConn and net.Conn.
func TestPacketConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := simPair(t, Config{})
		s, r := mustBind(t, a, 4000), mustBind(t, b, 5000)
		var pc net.PacketConn = s
		to := r.Addr()
		for _, addr := range []net.Addr{to, &to} {
			if n, err := pc.WriteTo([]byte("ping"), addr); n != 4 || err != nil {
				t.Fatalf("WriteTo = %d, %v", n, err)
			}
		}
		for _, bad := range []net.Addr{nil, &net.UDPAddr{}, Addr{}, (*Addr)(nil)} {
			if _, err := pc.WriteTo(nil, bad); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNotConnected) {
				t.Errorf("WriteTo %#v: %v", bad, err)
			}
		}
		buf := make([]byte, 10)
		n, from, err := r.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "ping" || from != net.Addr(s.Addr()) {
			t.Errorf("ReadFrom: %q from %v, %v", buf[:n], from, err)
		}
		if n, err := r.Read(buf); n != 4 || err != nil {
			t.Errorf("Read = %d, %v", n, err)
		}
		if _, err := r.Write(nil); !errors.Is(err, ErrNotConnected) || r.RemoteAddr() != nil {
			t.Errorf("Write when not connected: %v", err)
		}
		if err := r.Connect(Addr{}); !errors.Is(err, syscall.EAFNOSUPPORT) {
			t.Errorf("connect to nothing: %v", err)
		}
		r.Connect(from.(Addr))
		if n, err := r.Write([]byte("pong")); n != 4 || err != nil || r.RemoteAddr() != from {
			t.Errorf("Write = %d, %v", n, err)
		}
		if n, _, err := pc.ReadFrom(buf); n != 4 || err != nil {
			t.Errorf("ReadFrom = %d, %v", n, err)
		}
		begun := time.Now()
		pc.SetReadDeadline(begun.Add(time.Second))
		_, _, err = pc.ReadFrom(buf)
		var ne net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, syscall.ETIMEDOUT) || !errors.As(err, &ne) || !ne.Timeout() || time.Since(begun) != time.Second {
			t.Errorf("deadline: %v after %v", err, time.Since(begun))
		}
		if _, _, err := s.TryRecv(buf); !errors.Is(err, syscall.EAGAIN) || !errors.As(err, &ne) || ne.Timeout() {
			t.Errorf("TryRecv: %v", err)
		}
		pc.SetDeadline(time.Time{})
		go func() { time.Sleep(time.Second); pc.Close() }()
		if _, _, err := pc.ReadFrom(buf); !errors.Is(err, net.ErrClosed) || !errors.Is(err, syscall.EBADF) {
			t.Errorf("closed meanwhile: %v", err)
		}
		for what, err := range map[string]error{
			"Close": pc.Close(), "SetDeadline": pc.SetDeadline(time.Now()), "SetReadDeadline": s.SetReadDeadline(time.Now()),
			"SetWriteDeadline": s.SetWriteDeadline(time.Now()),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
		if pc.LocalAddr() != net.Addr(s.Addr()) {
			t.Errorf("LocalAddr %v", pc.LocalAddr())
		}
	})
}

func TestErrorsSayWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := simPair(t, Config{})
		s := mustBind(t, a, 4000, WithSendBuffer(5000), WithLinger(time.Hour))
		s.SetLinger(0)
		to := Addr{netip.MustParseAddr("10.0.0.2"), 7}
		for _, tc := range []struct {
			err  error
			is   error
			text string
		}{
			{s.TrySend(to, make([]byte, 5001)), ErrMessageSize, "rds: send 10.0.0.1:4000 -> 10.0.0.2:7: message too long: 5001 bytes, but the socket's send buffer is 5000 bytes"},
			{s.SetSendBuffer(-1), ErrInvalid, "rds: set send buffer 10.0.0.1:4000: invalid argument"},
			{s.SetRecvBuffer(-1), ErrInvalid, "rds: set receive buffer 10.0.0.1:4000: invalid argument"},
			{func() error { _, err := a.Bind(s.Addr()); return err }(), ErrAddrInUse, "rds: bind 10.0.0.1:4000: address in use"},
			{func() error { _, err := a.Ping(t.Context(), to.IP, to.IP); return err }(), ErrAddrNotAvail, "rds: ping 10.0.0.2:0 -> 10.0.0.2:0: not an address of this node"},
			{func() error { _, err := seam.New[*Node](Config{MinBackoff: -1}, nil); return err }(), ErrInvalid, "Config.MinBackoff"},
			{func() error { _, err := NewNode(Config{MinBackoff: time.Hour}); return err }(), ErrInvalid, "MaxBackoff"},
			{func() error { _, err := NewNode(Config{MaxPings: -1}); return err }(), ErrInvalid, "Config.MaxPings"},
			{func() error { _, err := NewNode(Config{MaxConns: -1}); return err }(), ErrInvalid, "Config.MaxConns"},
			{func() error { _, err := NewNode(Config{}); return err }(), ErrInvalid, "Config.Addrs"},
		} {
			var op *OpError
			if !errors.Is(tc.err, tc.is) || !errors.As(tc.err, &op) || !strings.Contains(tc.err.Error(), tc.text) {
				t.Errorf("error %q, want %q", tc.err, tc.text)
			}
		}
		s.Connect(to) // errors of sending without an address name the connected one
		for _, err := range []error{s.TrySend(Addr{}, make([]byte, 5001)), s.Send(t.Context(), Addr{}, make([]byte, 5001)), func() error { _, err := s.Write(make([]byte, 5001)); return err }()} {
			if !strings.Contains(err.Error(), " -> 10.0.0.2:7: message too long") {
				t.Errorf("error %q", err)
			}
		}
		e := &OpError{Op: "x", Err: ErrAgain, Detail: "more"}
		if e.Error() != "rds: x: would block\nmore" || !e.Temporary() || e.Timeout() {
			t.Errorf("%q", e)
		}
	})
}

// TestEventsAreComplete: every function of Events is reached by its kind, and by
// both sides of Join.
func TestEventsAreComplete(t *testing.T) {
	record := func(got *[]string) *Events {
		e := &Events{}
		v := reflect.ValueOf(e).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			v.Field(i).Set(reflect.ValueOf(func(ev PeerEvent) { *got = append(*got, name) }))
		}
		return e
	}
	var first, second []string
	listen := record(&first).Join(record(&second)).listener()
	n := reflect.TypeFor[Events]().NumField()
	for k := engine.PeerUp; k <= engine.PingLimit; k++ {
		listen(engine.Event{Kind: k})
	}
	seen := map[string]bool{}
	for _, name := range first {
		seen[name] = true
	}
	if len(seen) != n || len(first) != n || !reflect.DeepEqual(first, second) {
		t.Errorf("events %v and %v, want each of %d once", first, second, n)
	}
	only := &Events{}
	if only.Join(nil) != only || (*Events)(nil).Join(only) != only {
		t.Error("Join with nil")
	}
	only.Join(&Events{}).listener()(engine.Event{Kind: engine.PeerUp}) // nobody listens
	SlogEvents(slog.New(slog.DiscardHandler)).listener()(engine.Event{Kind: engine.QueueLimit, Err: ErrAgain, Count: 1, Suppressed: 1, Own: true, Harmless: true})
	ev := PeerEvent{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2"), Err: ErrAgain, Count: 1, Suppressed: 2, Own: true, Harmless: true}
	if got := len(ev.attrs()); got != 8 {
		t.Errorf("%d attributes: %v", got, ev.attrs())
	}
}
