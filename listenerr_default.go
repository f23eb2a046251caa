//go:build !linux

package rds

import "net/netip"

// listenerOn does not know here who listens.
func listenerOn(netip.AddrPort) string { return "" }
