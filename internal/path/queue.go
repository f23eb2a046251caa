package path

import "github.com/rds-go/rds/internal/buffer"

// Chunk sizes: a queue that just became busy starts small, so that a node with
// thousands of peers and one message for each stays small too; a queue that
// keeps filling doubles up to the size one write can take at once.
const (
	minChunk = 4 << 10
	maxChunk = 64 << 10
	// Frames from this size on get a buffer of their own.
	ownChunk = 16 << 10
)

// Owner is the socket that a message came from; see transport.Owner.
type Owner interface {
	Released(msgs, bytes int)
}

// chunk is a buffer that holds the frames of consecutive entries, so that many
// messages leave with one element of a vector.
type chunk struct {
	buf  *buffer.Buffer
	used int
	live int // entries that still need it, plus one while it is being filled
}

func (c *chunk) drop() {
	if c.live--; c.live == 0 {
		c.buf.Release()
		c.buf = nil
	}
}

// entry is one numbered message in the send queue: header and payload, ready for
// the wire.
type entry struct {
	chunk  *chunk
	off, n uint32 // where in the chunk; n = 0: cancelled before it was begun
	seq    uint64 // 0 until first put on the wire
	end    uint64 // stream offset behind the last byte, once written
	owner  Owner
	flags  entryFlags
}

type entryFlags uint8

const (
	entryRetransmit entryFlags = 1 << iota // goes with RETRANSMITTED
	entryCancelled                         // out of the accounts; never sent again
	entryProbe                             // a probe of ours
	entryAckSoon                           // the owner wants it acknowledged early
)

func (e *entry) frame() []byte { return e.chunk.buf.B[e.off : e.off+e.n] }

// free lets go of the entry's bytes.
func (e *entry) free() {
	if e.chunk != nil {
		e.chunk.drop()
		e.chunk = nil
	}
	e.n = 0
	e.owner = nil
}

// ring is a growing circular queue of entries.
type ring struct {
	e    []entry // length is zero or a power of two
	head int
	n    int
}

func (r *ring) at(i int) *entry { return &r.e[(r.head+i)&(len(r.e)-1)] }

func (r *ring) push() *entry {
	if r.n == len(r.e) {
		r.resize(max(16, 2*len(r.e)))
	}
	r.n++
	return r.at(r.n - 1)
}

func (r *ring) pop() {
	*r.at(0) = entry{}
	r.head = (r.head + 1) & (len(r.e) - 1)
	r.n--
	if r.n == 0 && len(r.e) > 1024 {
		// A burst is over: do not keep its size for ever.
		r.e, r.head = nil, 0
	}
}

// insert makes room for an entry at index i.
func (r *ring) insert(i int) *entry {
	r.push()
	for j := r.n - 1; j > i; j-- {
		*r.at(j) = *r.at(j - 1)
	}
	*r.at(i) = entry{}
	return r.at(i)
}

// filter keeps the entries for which keep is true, in order.
func (r *ring) filter(keep func(*entry) bool) {
	k := 0
	for i := range r.n {
		if e := r.at(i); keep(e) {
			if k != i {
				*r.at(k) = *e
			}
			k++
		}
	}
	for i := k; i < r.n; i++ {
		*r.at(i) = entry{}
	}
	r.n = k
}

func (r *ring) resize(size int) {
	e := make([]entry, size)
	for i := range r.n {
		e[i] = *r.at(i)
	}
	r.e, r.head = e, 0
}
