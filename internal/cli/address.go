package cli

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/rds-go/rds"
)

// lookupTimeout bounds a name lookup.
const lookupTimeout = 5 * time.Second

// resolve returns the IP address that host, an address or a name, stands for.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, usagef("%q is neither an IP address nor a known name: %w", host, err)
	}
	return ips[0].Unmap(), nil
}

// endpoint parses HOST:PORT; what says in errors what the argument is.
func endpoint(ctx context.Context, what, s string) (rds.Addr, error) {
	host, service, err := net.SplitHostPort(s)
	if err != nil {
		return rds.Addr{}, usagef("%s %q: want ADDR:PORT or [IPv6]:PORT", what, s)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return rds.Addr{}, usagef("%s %q: %q is no RDS port: want 0 to 65535", what, s, service)
	}
	ip, err := resolve(ctx, host)
	if err != nil {
		return rds.Addr{}, err
	}
	return rds.AddrFrom(ip, uint16(port)), nil
}

// binding parses ADDR or ADDR:PORT, where no port means that any will do.
func binding(ctx context.Context, s string) (rds.Addr, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return rds.AddrFrom(ip, 0), nil
	}
	return endpoint(ctx, "--bind", s)
}

// family names the address family of ip.
func family(ip netip.Addr) string {
	if ip.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// sameFamily is an error unless messages can go from local to dest.
func sameFamily(local, dest netip.Addr) error {
	if local.Is4() != dest.Is4() {
		return usagef("%v is %s and %v is %s: RDS has no way between them", local, family(local), dest, family(dest))
	}
	return nil
}
