package engine

import "github.com/rds-go/rds/internal/buffer"

// entry is one unread message.
type entry struct {
	payload []byte
	chunk   *chunk         // where payload lies, or
	buf     *buffer.Buffer // where payload lies; both nil when it is empty
	conn    *conn          // says where it came from and whose account it is on
	at      int64          // Unix time in ns, 0 if not asked for
	sport   uint16
	again   bool // retransmitted
}

// queue is a first-in, first-out ring of unread messages. The socket's receive
// lock guards it.
type queue struct {
	ring []entry // length is a power of two
	head int
	n    int
	peak int // largest n since the queue was last empty
}

const minRing = 16

// push makes room for one more entry at the end and returns it, zero.
func (q *queue) push() *entry {
	if q.n == len(q.ring) {
		q.grow()
	}
	e := &q.ring[(q.head+q.n)&(len(q.ring)-1)]
	q.n++
	q.peak = max(q.peak, q.n)
	return e
}

func (q *queue) grow() {
	ring := make([]entry, max(2*len(q.ring), minRing))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

// front returns the first entry; there must be one.
func (q *queue) front() *entry { return &q.ring[q.head] }

// pop removes the first entry. A ring that has become much too large is given up
// once it is empty; one of the usual size stays.
func (q *queue) pop() {
	q.ring[q.head] = entry{}
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	if q.n == 0 {
		if len(q.ring) > minRing && 8*q.peak < len(q.ring) {
			q.ring, q.head = nil, 0
		}
		q.peak = 0
	}
}
