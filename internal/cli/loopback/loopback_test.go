package loopback

import (
	"net/netip"
	"testing"
)

func TestRandom(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for range 1000 {
		a := Random()
		if b := a.As4(); b[0] != 127 || b[1] == 0 || b[3] == 0 || b[3] == 255 {
			t.Fatalf("got %v", a)
		}
		seen[a] = true
	}
	if len(seen) < 900 {
		t.Errorf("%d different addresses in 1000", len(seen))
	}
}
