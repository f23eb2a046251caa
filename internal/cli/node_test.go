package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/rds-go/rds"
)

func TestNoNode(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.9")
	taken := fmt.Errorf("listen on %v: %w", local, os.NewSyscallError("bind", syscall.EADDRINUSE))
	err := noNode(local, &rds.OpError{Op: "node", Err: taken, Detail: "Taken by process 7.\nWays out: …"})
	if want := "cannot use 127.0.0.9: address already in use\nTaken by process 7.\nWays out: …"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	plain := &rds.OpError{Op: "node", Err: rds.ErrInvalid}
	if err := noNode(local, plain); err != error(plain) {
		t.Errorf("got %v, want %v as it is", err, plain)
	}
}

func TestTrouble(t *testing.T) {
	peer, other := netip.MustParseAddr("127.0.0.8"), netip.MustParseAddr("127.0.0.9")
	var why trouble
	e := why.events()
	says := func(want string) {
		t.Helper()
		if got := why.with(peer, "up"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	says("no connection and no refusal yet: packets may be dropped on the way")
	e.DialFailed(rds.PeerEvent{Remote: peer, Err: errors.New("refused")})
	says("cannot connect: refused")
	e.PeerUp(rds.PeerEvent{Remote: peer})
	says("up")
	e.ProtocolError(rds.PeerEvent{Remote: peer, Harmless: true})
	says("up")
	e.PeerDown(rds.PeerEvent{Remote: peer})
	says("connection lost")
	e.DialFailed(rds.PeerEvent{Remote: other, Err: errors.New("other")})
	says("connection lost")
	e.ProtocolError(rds.PeerEvent{Remote: peer, Err: errors.New("bad length")})
	says("it does not speak RDS: bad length")
}
