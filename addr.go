package rds

import (
	"fmt"
	"net/netip"
)

// Addr is an RDS endpoint: an IP address and an RDS port. RDS ports have
// nothing to do with those of TCP or UDP; each IP address has 65536 of its own
// (RDS spec section 2).
//
// Addr is comparable and implements [net.Addr] by value. Its zero value is no
// endpoint. IPv4 addresses are kept in their 4-byte form: use [AddrFrom] or
// [ParseAddr], which see to it, when two Addrs are to be compared.
type Addr struct {
	// IP is the address of a node. A link-local IPv6 address carries its zone.
	IP netip.Addr
	// Port is the RDS port. 0 is the ping port as a destination and "choose
	// for me" to [Node.Bind]; 1 is reserved for handshakes.
	Port uint16
}

// AddrFrom returns the endpoint of ip and port. An IPv4 address in IPv6 form
// (::ffff:10.0.0.1) becomes an IPv4 address.
func AddrFrom(ip netip.Addr, port uint16) Addr { return Addr{ip.Unmap(), port} }

// ParseAddr parses "IP:PORT", with an IPv6 address in brackets:
// "10.0.0.1:4000", "[fd00::1]:4000", "[fe80::1%eth0]:4000".
func ParseAddr(s string) (Addr, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return Addr{}, fmt.Errorf("rds: address %q: want IP:PORT or [IPv6]:PORT: %w", s, err)
	}
	return addrOf(ap), nil
}

// Network returns "rds".
func (a Addr) Network() string { return "rds" }

// String returns the form that [ParseAddr] takes, or "-" for the zero value.
func (a Addr) String() string {
	if !a.IP.IsValid() {
		return "-"
	}
	return netip.AddrPortFrom(a.IP, a.Port).String()
}

// IsValid says whether a has an IP address.
func (a Addr) IsValid() bool { return a.IP.IsValid() }

// MarshalText implements [encoding.TextMarshaler]; the zero value is empty.
func (a Addr) MarshalText() ([]byte, error) {
	if !a.IP.IsValid() {
		return []byte{}, nil
	}
	return netip.AddrPortFrom(a.IP, a.Port).MarshalText()
}

// UnmarshalText implements [encoding.TextUnmarshaler]; it takes what
// [ParseAddr] takes, and nothing for the zero value.
func (a *Addr) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = Addr{}
		return nil
	}
	v, err := ParseAddr(string(text))
	if err == nil {
		*a = v
	}
	return err
}

func addrOf(ap netip.AddrPort) Addr { return Addr{ap.Addr().Unmap(), ap.Port()} }

func (a Addr) addrPort() netip.AddrPort { return netip.AddrPortFrom(a.IP, a.Port) }
