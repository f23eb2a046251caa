// Package loopback picks addresses of 127.0.0.0/8 for nodes that need one of
// their own. On Linux all of that network is local, without any set-up.
package loopback

import (
	"math/rand/v2"
	"net/netip"
)

// Random returns an address at random. It is outside of 127.0.0.0/16, where people and distributions
// put things by hand, and does not end in 0 or 255.
func Random() netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
}

// Tries is how many random addresses one should try when the first are in use. With 16 million to
// choose from, a second collision already means that something else is wrong.
const Tries = 8
