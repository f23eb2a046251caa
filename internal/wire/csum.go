package wire

import (
	"encoding/binary"
	"math/bits"
)

// Sum is the checksum that belongs into h_csum: the complement of the
// one's-complement sum over the header's 24 words with h_csum taken as 0
// (RFC 1071, RDS spec section 8).
//
// It is never 0, because 0 in h_csum says "no checksum". One's-complement
// arithmetic has two zeros, 0x0000 and 0xffff, and a sum comes out the same
// whichever of them is added; so where the complement would be 0x0000, Sum
// gives 0xffff, as UDP does. A receiver that adds up all words, checksum
// included, gets 0xffff for either.
func (v HeaderView) Sum() uint16 {
	// Subtracting in one's complement is adding the complement: the stored
	// checksum drops out without a copy of the header.
	sum := fold(uint64(v.sum()) + uint64(^v.Csum()))
	if sum == 0xffff {
		return 0xffff
	}
	return ^sum
}

// CsumOK tells whether the checksum is absent (0) or correct.
func (v HeaderView) CsumOK() bool {
	return v.Csum() == 0 || v.sum() == 0xffff
}

// Seal stores [HeaderView.Sum] in h_csum. It must come after every other
// change of the header.
func (v HeaderView) Seal() { v.SetCsum(v.Sum()) }

// sum is the one's-complement sum over all 24 words. It adds eight bytes at a
// time with end-around carry: 2^64, 2^32 and 2^16 are all 1 modulo 0xffff, so
// folding gives what adding the words one by one gives. It is 0 only when the
// header is zero all over.
func (v HeaderView) sum() uint16 {
	b := v[:HeaderLen:HeaderLen] // one bounds check for all
	sum, carry := bits.Add64(binary.BigEndian.Uint64(b[0:8]), binary.BigEndian.Uint64(b[8:16]), 0)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[16:24]), carry)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[24:32]), carry)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[32:40]), carry)
	sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(b[40:48]), carry)
	return fold(sum>>32 + sum&0xffff_ffff + carry)
}

// fold adds the four words of n in one's complement.
func fold(n uint64) uint16 {
	n = n>>32 + n&0xffff_ffff
	n = n>>16 + n&0xffff
	n = n>>16 + n&0xffff
	n = n>>16 + n&0xffff
	return uint16(n)
}
