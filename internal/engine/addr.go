package engine

import (
	"net/netip"
	"syscall"
)

var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isNowhere says whether ip cannot be an endpoint: unspecified, broadcast or
// multicast.
func isNowhere(ip netip.Addr) bool {
	return !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip == broadcast4
}

// lacksZone says whether ip is a link-local IPv6 address that does not say on
// which link.
func lacksZone(ip netip.Addr) bool {
	return ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == ""
}

// checkEndpoint is the address check of bind and of sending (RDS spec section 3).
func checkEndpoint(ip netip.Addr) error {
	if isNowhere(ip) || lacksZone(ip) {
		return ErrInvalid
	}
	return nil
}

// checkConnect is the address check of connect (RDS spec section 3), with the
// errnos of the kernel, which differ from those of bind.
func checkConnect(ip netip.Addr) error {
	switch {
	case !ip.IsValid():
		return syscall.EAFNOSUPPORT
	case ip.Is4() && ip.IsUnspecified():
		return syscall.EDESTADDRREQ
	case ip.Is6() && (ip.IsUnspecified() || ip.IsMulticast()):
		return syscall.EPROTOTYPE
	}
	return checkEndpoint(ip)
}
