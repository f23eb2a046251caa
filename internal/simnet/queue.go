package simnet

import "sync"

// blockSize is the unit in which the bytes of a flow are held. Idle flows hold none.
const blockSize = 16 << 10

type block [blockSize]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// byteQueue holds a window [base, end) of a byte stream, addressed by offsets from
// the stream's start. A byte is copied in once by the sender and out once by the
// receiver: what is sent, in flight, received or read is a matter of offsets.
type byteQueue struct {
	base, end int64 // base is where the first block begins
	blocks    []*block
}

// append copies p to the end.
func (q *byteQueue) append(p []byte) {
	for len(p) > 0 {
		at := q.end - q.base
		if at == int64(len(q.blocks))*blockSize {
			q.blocks = append(q.blocks, blocks.Get().(*block))
		}
		n := copy(q.blocks[at/blockSize][at%blockSize:], p)
		p = p[n:]
		q.end += int64(n)
	}
}

// at returns the longest contiguous piece of [from, to).
func (q *byteQueue) at(from, to int64) []byte {
	at := from - q.base
	b := q.blocks[at/blockSize][at%blockSize:]
	if int64(len(b)) > to-from {
		b = b[:to-from]
	}
	return b
}

// trim forgets everything before the offset low.
func (q *byteQueue) trim(low int64) {
	for len(q.blocks) > 0 && (q.base+blockSize <= low || low >= q.end) {
		blocks.Put(q.blocks[0])
		q.blocks[0] = nil
		q.blocks = q.blocks[1:]
		q.base += blockSize
	}
	if len(q.blocks) == 0 {
		q.base, q.blocks = q.end, nil
	}
}
