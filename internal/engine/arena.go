package engine

import (
	"sync"

	"github.com/rds-go/rds/internal/buffer"
)

// Sizes of chunks, in bytes. A socket keeps one of keepChunk at most while it has
// nothing unread.
const (
	minChunk  = 1 << 10
	keepChunk = 2 << 10
	maxChunk  = 64 << 10
)

// smallMax is the largest payload that is copied to an arena, in bytes; a larger
// one has a buffer of its own.
const smallMax = 2 << 10

// arena holds the small payloads of one socket's receive queue, packed into
// chunks in the order of their arrival. As they leave in about the same order, a
// chunk is given back soon after its last payload was. Chunks grow as the queue
// does. The socket's receive lock guards it.
type arena struct {
	cur  *chunk // where the next payload goes; nil when there is none
	next int    // size of the next chunk
}

// chunk is a buffer of several payloads.
type chunk struct {
	buf  *buffer.Buffer
	used int // bytes taken from the front
	live int // payloads not freed
}

var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// put copies p to the arena.
func (a *arena) put(p []byte) ([]byte, *chunk) {
	c := a.cur
	if c == nil || len(c.buf.B)-c.used < len(p) {
		c = a.grow(len(p))
	}
	at := c.used
	c.used += len(p)
	c.live++
	to := c.buf.B[at:c.used:c.used]
	copy(to, p)
	return to, c
}

// grow begins a new chunk, for at least n bytes.
func (a *arena) grow(n int) *chunk {
	if a.cur != nil && a.cur.live == 0 {
		a.cur.release()
	}
	size := min(max(a.next, minChunk), maxChunk)
	a.next = 2 * size
	c := chunkPool.Get().(*chunk)
	c.buf = buffer.Get(max(size, n))
	a.cur = c
	return c
}

// free gives up one payload of c.
func (a *arena) free(c *chunk) {
	c.live--
	switch {
	case c.live > 0:
	case c != a.cur:
		c.release()
	case len(c.buf.B) <= keepChunk:
		c.used = 0 // begin again at the front, which is in the cache
	default:
		a.next = len(c.buf.B) / 2
		a.cur = nil
		c.release()
	}
}

// close gives up the current chunk; others go with their last payload.
func (a *arena) close() {
	if a.cur != nil && a.cur.live == 0 {
		a.cur.release()
	}
	a.cur = nil
}

func (c *chunk) release() {
	c.buf.Release()
	*c = chunk{}
	chunkPool.Put(c)
}
