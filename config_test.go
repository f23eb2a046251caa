package rds

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestConfigCheck: what is wrong with a Config, by the name of the field.
func TestConfigCheck(t *testing.T) {
	one := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for _, tc := range []struct {
		cfg  Config
		want string
	}{
		{Config{Addrs: one, MinBackoff: -1}, "MinBackoff"},
		{Config{Addrs: one, MaxBackoff: -1}, "MaxBackoff"},
		{Config{Addrs: one, MinBackoff: time.Minute}, "greater than MaxBackoff"},
		{Config{Addrs: one, UserTimeout: -1}, "UserTimeout"},
		{Config{Addrs: one, MaxPings: -1}, "MaxPings"},
		{Config{Addrs: one, MaxConns: -1}, "MaxConns"},
		{Config{Addrs: one, StallTimeout: -1}, "StallTimeout"},
		{Config{Addrs: one, GiveUp: -1}, "GiveUp"},
		{Config{}, "Addrs"},
	} {
		n, err := NewNode(tc.cfg)
		if err == nil {
			n.Close()
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want something about %s", tc.cfg, err, tc.want)
		}
	}
}

// TestMaxConnsLeavesDescriptors for connecting to others.
func TestMaxConnsLeavesDescriptors(t *testing.T) {
	var c Config
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if n := uint64(c.MaxConns); n < 1 || n > 65536 || n > max(descriptorLimit()/2, 1) {
		t.Errorf("MaxConns is %d by default, with %d descriptors", n, descriptorLimit())
	}
	c = Config{MaxConns: 1 << 20}
	if err := c.check(); err != nil || c.MaxConns != 1<<20 {
		t.Errorf("MaxConns became %d, %v", c.MaxConns, err)
	}
}
