package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// CongMap is the congestion map of one address, as it travels: one bit for
// each RDS port, set while the port is congested. Port p is bit p&7 of byte
// p>>3, least significant bit first, on every machine (RDS spec section 5).
//
// It has no lock and no atomics; who shares it, guards it.
type CongMap [MapLen]byte

// ParseMap is a window on the payload of a map frame, not a copy. The error
// wraps [ErrMapLen]: a map of any other length is to be ignored.
func ParseMap(payload []byte) (*CongMap, error) {
	if len(payload) != MapLen {
		return nil, fmt.Errorf("wire: map of %d bytes, want %d: %w", len(payload), MapLen, ErrMapLen)
	}
	return (*CongMap)(payload), nil
}

// Set marks port as congested.
func (m *CongMap) Set(port uint16) { m[port>>3] |= 1 << (port & 7) }

// Clear marks port as not congested.
func (m *CongMap) Clear(port uint16) { m[port>>3] &^= 1 << (port & 7) }

// Has tells whether port is congested.
func (m *CongMap) Has(port uint16) bool { return m[port>>3]&(1<<(port&7)) != 0 }

// Diff calls f for each port whose bit differs between m and old, in ascending
// order, with the bit in m. A nil old is a map without congestion. Neither map
// may change meanwhile.
func (m *CongMap) Diff(old *CongMap, f func(port uint16, congested bool)) {
	for i := 0; i < MapLen; i += 8 {
		// Little-endian puts the first byte's first bit lowest, so that a bit's
		// place in the word is the port's distance from the word's first port.
		now := binary.LittleEndian.Uint64(m[i:])
		diff := now
		if old != nil {
			diff ^= binary.LittleEndian.Uint64(old[i:])
		}
		for ; diff != 0; diff &= diff - 1 {
			bit := bits.TrailingZeros64(diff)
			f(uint16(i<<3+bit), now>>bit&1 != 0)
		}
	}
}

// MonitorBit is the bit for port in the 64-bit mask of a congestion
// notification (RDS spec section 5).
func MonitorBit(port uint16) uint64 { return 1 << (port % 64) }
