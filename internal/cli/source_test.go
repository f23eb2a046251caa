package cli

import (
	"net/netip"
	"testing"
)

func TestSource(t *testing.T) {
	dest := netip.MustParseAddr("127.0.0.1")
	if local, shared, err := source(dest); err != nil || !shared || !local.IsLoopback() || local == dest {
		t.Errorf("source(%v) = %v, %v, %v", dest, local, shared, err)
	}

	v6 := netip.IPv6Loopback()
	local, shared, err := source(v6)
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	if local != v6 || shared {
		t.Errorf("source(%v) = %v, %v", v6, local, shared)
	}
}

// An address without route is an error that says how to go on.
func TestSourceUnroutable(t *testing.T) {
	if local, _, err := source(netip.MustParseAddr("ff02::1%no-such-interface")); err == nil {
		t.Errorf("got %v", local)
	}
}
