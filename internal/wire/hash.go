package wire

import "math/bits"

// PathHash is the hash that spreads sockets over paths: the messages of the
// socket bound to port travel on path PathHash(port, seed) & (n-1) of n. It is
// the one-word hash of Bob Jenkins' lookup3 (RDS spec section 12). It is local
// to the sender: a receiver neither knows nor checks it. Kernels use seed 0
// for every socket but the first one bound after the module was loaded.
func PathHash(port uint16, seed uint32) uint32 {
	iv := seed + 0xdeadbeef + 4 // 4 is lookup3's "length": one word of four bytes
	a, b, c := uint32(port)+iv, iv, iv
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
