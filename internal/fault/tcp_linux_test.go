package fault_test

import (
	"bytes"
	"io"
	"net/netip"
	"syscall"
	"testing"

	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// TestOverRealTCP breaks sockets of the operating system in every way.
func TestOverRealTCP(t *testing.T) {
	n := fault.Wrap(&tcp.OSNetwork{}, fault.Options{})
	local := netip.MustParseAddr("127.0.0.1")
	l, err := n.Listen(netip.AddrPortFrom(local, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect := func(t *testing.T) (a *fault.Stream, b transport.Stream) {
		s, err := n.Dial(t.Context(), local, l.Addr(), 5, 0)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(); b.Close() })
		return s.(*fault.Stream), b
	}
	message := bytes.Repeat([]byte("frame "), 100)

	t.Run("reset", func(t *testing.T) {
		a, b := connect(t)
		waiting := make(chan error)
		go func() { _, err := readAll(a); waiting <- err }()
		if !a.Break() {
			t.Fatal("not reset")
		}
		wantInjected(t, "waiting Read", <-waiting, fault.Reset)
		_, err := readAll(b)
		wantErr(t, "the peer's Read", err, syscall.ECONNRESET)
		if u, err := a.Unacked(); u != 0 || err != nil {
			t.Fatal(u, err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		a, b := connect(t)
		a.CutAfter(50)
		err := write(a, message)
		wantInjected(t, "write", err, fault.Cut)
		got, err := readAll(b)
		wantErr(t, "the peer's Read", err, syscall.ECONNRESET)
		if !bytes.Equal(got, message[:len(got)]) || len(got) > 50 {
			t.Fatalf("the peer got %d bytes: %q", len(got), got)
		}
	})
	t.Run("fin", func(t *testing.T) {
		a, b := connect(t)
		if err := write(a, message); err != nil {
			t.Fatal(err)
		}
		if !a.Finish() {
			t.Fatal("no FIN")
		}
		wantInjected(t, "write", write(a, message), fault.FIN)
		if got, err := readAll(b); !bytes.Equal(got, message) || err != io.EOF {
			t.Fatalf("the peer read %q, %v", got, err)
		}
	})
}
