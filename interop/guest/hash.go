//go:build linux

package guest

import "math/bits"

// KernelPath returns the path a kernel picks for messages from an RDS port
// once it knows the number of paths (1, 2, 4 or 8): Jenkins' lookup3 of one
// word, spec section 12. It holds for every socket but the first one bound
// after the module was loaded, which TestMain takes out of the way.
func KernelPath(port uint16, paths int) int {
	const iv = 0xdeadbeef + 4
	a, b, c := uint32(port)+iv, uint32(iv), uint32(iv)
	mix := func(x, y uint32, k int) uint32 { return (x ^ y) - bits.RotateLeft32(y, k) }
	c = mix(c, b, 14)
	a = mix(a, c, 11)
	b = mix(b, a, 25)
	c = mix(c, b, 16)
	a = mix(a, c, 4)
	b = mix(b, a, 14)
	c = mix(c, b, 24)
	return int(c & uint32(paths-1))
}

// PortOnPath returns the first port not below from whose messages a kernel
// with 8 paths sends on this path.
func PortOnPath(path int, from uint16) uint16 {
	for port := from; ; port++ {
		if port > 1 && KernelPath(port, 8) == path {
			return port
		}
	}
}
