package cli

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/rds-go/rds/internal/cli/loopback"
)

// source returns the local address from which dest is reached. shared says that the address is one of
// many that would do, so that another may be tried when it is in use.
//
// Towards 127.0.0.0/8, all of which is local on Linux, any address of the network would do, and the one
// that routing picks, 127.0.0.1, is the one most likely to belong to another process: take a random one.
// Otherwise the kernel's routing decides.
func source(dest netip.Addr) (local netip.Addr, shared bool, err error) {
	if dest.Is4() && dest.IsLoopback() {
		return loopback.Random(), true, nil
	}
	local, err = routed(dest)
	return local, false, err
}

// routed asks the kernel which source address it would use: a connected UDP socket knows it, and no
// packet is sent.
func routed(dest netip.Addr) (netip.Addr, error) {
	const anyPort = 16385
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dest, anyPort)))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no local address reaches %v: %w (-I or --bind sets one)", dest, err)
	}
	defer c.Close()
	local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	if dest.Is4() {
		local = local.Unmap()
	}
	return local, nil
}
