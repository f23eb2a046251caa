package rds

import (
	"encoding/json"
	"net"
	"net/netip"
	"testing"
)

func TestParseAddr(t *testing.T) {
	for _, tc := range []struct {
		in, out string // out "": an error
	}{
		{"10.0.0.1:4000", "10.0.0.1:4000"},
		{"[fd00::1]:4000", "[fd00::1]:4000"},
		{"[fe80::1%eth0]:65535", "[fe80::1%eth0]:65535"},
		{"[::ffff:10.0.0.1]:0", "10.0.0.1:0"},
		{"10.0.0.1", ""},
		{"10.0.0.1:65536", ""},
		{"fd00::1:4000", ""},
		{"host:1", ""},
		{"", ""},
	} {
		a, err := ParseAddr(tc.in)
		if (err != nil) != (tc.out == "") || err == nil && a.String() != tc.out {
			t.Errorf("ParseAddr(%q) = %v, error %v; want %q", tc.in, a, err, tc.out)
		}
		if err == nil {
			text, _ := json.Marshal(a)
			var back Addr
			if err := json.Unmarshal(text, &back); err != nil || back != a {
				t.Errorf("%v became %s and %v, error %v", a, text, back, err)
			}
		}
	}
	if _, err := ParseAddr("nonsense"); err == nil || err.Error() == "" {
		t.Error("no error")
	}
}

func TestAddr(t *testing.T) {
	var a net.Addr = AddrFrom(netip.MustParseAddr("::ffff:10.0.0.1"), 7)
	if a.Network() != "rds" || a.String() != "10.0.0.1:7" || a != (Addr{netip.MustParseAddr("10.0.0.1"), 7}) {
		t.Errorf("%v %v", a.Network(), a)
	}
	var zero Addr
	text, err := zero.MarshalText()
	if zero.IsValid() || zero.String() != "-" || err != nil || len(text) != 0 {
		t.Errorf("zero value: valid %v, %q, text %q, error %v", zero.IsValid(), zero, text, err)
	}
	b := Addr{netip.MustParseAddr("10.0.0.1"), 7}
	if err := b.UnmarshalText(nil); err != nil || b != zero {
		t.Errorf("%v, error %v", b, err)
	}
	if err := b.UnmarshalText([]byte("x")); err == nil {
		t.Error("no error")
	}
}
