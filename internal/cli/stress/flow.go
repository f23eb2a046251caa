package stress

// flow is the record of what one task got from one task of the other side: requests
// and answers together, by the numbers that their sender gave them (0, 1, 2, …).
// It knows nothing of the numbers and filters of RDS, so that it is an
// independent witness.
type flow struct {
	// next is one more than the largest number received.
	next uint64
	// missing are the numbers below next that were not received: ascending, not touching.
	missing []span
	// forgotten counts missing numbers whose span was given up, because there were too many.
	forgotten uint64

	received  uint64 // doubles not counted
	doubled   uint64 // numbers that had been received before
	reordered uint64 // numbers that came after a larger one
}

// span is the numbers from lo to hi-1.
type span struct{ lo, hi uint64 }

// maxSpans bounds the memory of a flow. Beyond it the oldest gap counts as lost for good, and what
// still comes from it as doubled: the run has failed either way.
const maxSpans = 1024

// take records that a message came. It returns false for one that had come before.
func (f *flow) take(number uint64) (fresh bool) {
	switch {
	case number == f.next:
		f.next++
	case number > f.next:
		if len(f.missing) == maxSpans {
			f.forgotten += f.missing[0].hi - f.missing[0].lo
			f.missing = append(f.missing[:0], f.missing[1:]...)
		}
		f.missing = append(f.missing, span{f.next, number})
		f.next = number + 1
	case f.fill(number):
		f.reordered++
	default:
		f.doubled++
		return false
	}
	f.received++
	return true
}

// fill takes number out of the missing ones; false when it is none of them.
func (f *flow) fill(number uint64) bool {
	for i, s := range f.missing {
		if number < s.lo || number >= s.hi {
			continue
		}
		var rest []span
		if s.lo < number {
			rest = append(rest, span{s.lo, number})
		}
		if number+1 < s.hi {
			rest = append(rest, span{number + 1, s.hi})
		}
		f.missing = append(f.missing[:i], append(rest, f.missing[i+1:]...)...)
		return true
	}
	return false
}

// lost counts what did not come of sent messages.
func (f *flow) lost(sent uint64) uint64 {
	n := f.forgotten
	for _, s := range f.missing {
		n += s.hi - s.lo
	}
	return n + max(sent, f.next) - f.next
}

// invented counts the numbers that were never sent and yet came.
func (f *flow) invented(sent uint64) uint64 { return max(sent, f.next) - sent }

// Tally is what the flows of one side add up to.
type Tally struct {
	// Received counts messages, doubles not counted.
	Received  uint64 `json:"received"`
	Lost      uint64 `json:"lost"`
	Doubled   uint64 `json:"doubled"`
	Reordered uint64 `json:"reordered"`
	// Damaged counts messages whose content or length was not what it should have
	// been, and those that nobody had sent.
	Damaged uint64 `json:"damaged"`
}

func (t *Tally) add(f *flow, sent uint64) {
	t.Received += f.received
	t.Lost += f.lost(sent)
	t.Doubled += f.doubled
	t.Reordered += f.reordered
	t.Damaged += f.invented(sent)
}

// Clean says that nothing is wrong.
func (t Tally) Clean() bool {
	return t.Lost == 0 && t.Doubled == 0 && t.Reordered == 0 && t.Damaged == 0
}
