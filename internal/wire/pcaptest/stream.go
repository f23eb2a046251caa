package pcaptest

import "sort"

// assembler puts the TCP payload of one direction in order.
type assembler struct {
	started bool
	start   uint32 // TCP sequence number of data[0]
	data    []byte
	marks   []mark
	held    []segment // behind a gap
}

// mark says which packet brought data up to end.
type mark struct{ end, packet int }

type segment struct {
	seq     uint32
	payload []byte
}

// add takes one packet. A stream starts with its SYN or, when that was not
// captured, with the first data: an empty segment starts nothing, because a
// keepalive probe has a sequence number one too low.
func (a *assembler) add(packet int, seq uint32, syn bool, payload []byte) {
	if syn {
		seq++
		if !a.started {
			a.started, a.start = true, seq
		}
	}
	if len(payload) == 0 {
		return
	}
	if !a.started {
		a.started, a.start = true, seq
	}
	a.held = append(a.held, segment{seq, payload})
	before := len(a.data)
	for a.takeHeld() {
	}
	if len(a.data) > before {
		a.marks = append(a.marks, mark{len(a.data), packet})
	}
}

// takeHeld moves one segment which continues the data out of held; repeated
// bytes are dropped. It tells whether there was one.
func (a *assembler) takeHeld() bool {
	for i, s := range a.held {
		next := a.start + uint32(len(a.data))
		gap := int(int32(s.seq - next)) // sequence numbers wrap around
		if gap > 0 {
			continue
		}
		if again := -gap; again < len(s.payload) {
			a.data = append(a.data, s.payload[again:]...)
		}
		a.held = append(a.held[:i], a.held[i+1:]...)
		return true
	}
	return false
}

// otherStart tells whether a SYN with this number belongs to another stream.
func (a *assembler) otherStart(seq uint32) bool { return !a.started || a.start != seq+1 }

// packet is the one that brought the byte before end.
func (a *assembler) packet(end int) int {
	i := sort.Search(len(a.marks), func(i int) bool { return a.marks[i].end >= end })
	return a.marks[i].packet
}

func (a *assembler) heldBytes() int {
	n := 0
	for _, s := range a.held {
		n += len(s.payload)
	}
	return n
}
