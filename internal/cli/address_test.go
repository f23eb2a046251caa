package cli

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/rds-go/rds"
)

func TestBinding(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{in: "127.0.0.2", want: "127.0.0.2:0"},
		{in: "127.0.0.2:4000", want: "127.0.0.2:4000"},
		{in: "::1", want: "[::1]:0"},
		{in: "[::1]:65535", want: "[::1]:65535"},
		{in: "[fe80::1%eth0]:7", want: "[fe80::1%eth0]:7"},
		{in: "[::ffff:10.0.0.1]:7", want: "10.0.0.1:7"},
		{in: "127.0.0.2:65536", err: `"65536" is no RDS port`},
		{in: "127.0.0.2:rds", err: `"rds" is no RDS port`},
		{in: "4000", err: "want ADDR:PORT"},
		{in: "", err: "want ADDR:PORT"},
	} {
		got, err := binding(context.Background(), tt.in)
		switch {
		case tt.err == "":
			if want, perr := rds.ParseAddr(tt.want); err != nil || perr != nil || got != want {
				t.Errorf("%q: got %v, %v, want %v", tt.in, got, err, tt.want)
			}
		case err == nil || !strings.Contains(err.Error(), tt.err) || exitCode(err) != exitUsage:
			t.Errorf("%q: got %v, %v, want usage error with %q", tt.in, got, err, tt.err)
		}
	}
}

func TestSameFamily(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	if err := sameFamily(v4, v4); err != nil {
		t.Error(err)
	}
	if err := sameFamily(v4, v6); exitCode(err) != exitUsage {
		t.Errorf("IPv4 to IPv6: %v", err)
	}
}
