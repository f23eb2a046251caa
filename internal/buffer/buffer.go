// Package buffer lends out pooled byte buffers by size class and counts them.
//
// Messages rest in such buffers on both sides of a node: on the way out until
// they are acknowledged, on the way in until they are received. A buffer has one
// owner at a time; who owns it calls Release exactly once.
package buffer

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Size classes are powers of two and the steps half-way between them (×1.5), so that at most a third of
// a buffer is unused. The smallest is 512 bytes, the largest pooled one 2 MiB;
// larger buffers are made to measure and left to the garbage collector.
const (
	minShift = 9
	maxShift = 21
	classes  = 2 * (maxShift - minShift + 1)
)

// Buffer is a pooled byte buffer.
type Buffer struct {
	// B is the whole buffer; its length is at least the size asked for.
	B     []byte
	class int8
}

var (
	pools [classes]sync.Pool
	live  atomic.Int64
)

// classOf returns the class for size n and its buffer size; -1 when n is larger than any.
func classOf(n int) (int, int) {
	if n <= 1<<minShift {
		return 0, 1 << minShift
	}
	shift := bits.Len(uint(n - 1)) // smallest power of two ≥ n is 1<<shift
	if shift > maxShift {
		return -1, n
	}
	if half := 3 << (shift - 2); n <= half {
		return 2*(shift-1-minShift) + 1, half
	}
	return 2 * (shift - minShift), 1 << shift
}

// Get returns a buffer of at least n bytes. Its content is arbitrary.
func Get(n int) *Buffer {
	live.Add(1)
	class, size := classOf(n)
	if class < 0 {
		return &Buffer{B: make([]byte, size), class: -1}
	}
	if b, ok := pools[class].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{B: make([]byte, size), class: int8(class)}
}

// Release gives the buffer back. The caller must not touch it afterwards.
func (b *Buffer) Release() {
	live.Add(-1)
	if b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// Live returns the number of buffers lent out and not yet released, for leak
// checks and statistics.
func Live() int64 { return live.Load() }
