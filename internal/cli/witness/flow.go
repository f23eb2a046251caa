// Package witness judges what a receiver got from a sender by the numbers that the
// sender gave its messages: lost, doubled, reordered. It knows nothing of the numbers
// and filters of RDS, so that it is an independent witness of what they do.
package witness

// Flow is the record of what one receiver got from one sender, by the numbers that the sender
// gave its messages (0, 1, 2, …). The zero value is ready for the first.
type Flow struct {
	// next is one more than the largest number received.
	next uint64
	// missing are the numbers below next that were not received: ascending, not touching.
	missing []span
	// forgotten counts missing numbers whose span was given up, because there were too many.
	forgotten uint64

	Received  uint64 // messages, doubles not counted
	Doubled   uint64 // numbers that had been received before
	Reordered uint64 // numbers that came after a larger one
}

// span is the numbers from lo to hi-1.
type span struct{ lo, hi uint64 }

// maxSpans bounds the memory of a flow. Beyond it the oldest gap counts as lost for good, and what
// still comes from it as doubled: the run has failed either way.
const maxSpans = 4096

// Take records that a message came. It returns false for one that had come before.
func (f *Flow) Take(number uint64) (fresh bool) {
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
		f.Reordered++
	default:
		f.Doubled++
		return false
	}
	f.Received++
	return true
}

// fill takes number out of the missing ones; false when it is none of them.
func (f *Flow) fill(number uint64) bool {
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

// Next is one more than the largest number received.
func (f *Flow) Next() uint64 { return f.next }

// Gaps counts the numbers below the largest received that are missing.
func (f *Flow) Gaps() uint64 {
	n := f.forgotten
	for _, s := range f.missing {
		n += s.hi - s.lo
	}
	return n
}

// Lost counts what did not come of sent messages.
func (f *Flow) Lost(sent uint64) uint64 { return f.Gaps() + max(sent, f.next) - f.next }

// Invented counts the numbers that were never sent and yet came.
func (f *Flow) Invented(sent uint64) uint64 { return max(sent, f.next) - sent }

// Tally is what flows add up to.
type Tally struct {
	// Received counts messages, doubles not counted.
	Received  uint64 `json:"received"`
	Lost      uint64 `json:"lost"`
	Doubled   uint64 `json:"doubled"`
	Reordered uint64 `json:"reordered"`
	// Damaged counts messages whose content, length or sender was not what it should have been, and
	// those that nobody had sent.
	Damaged uint64 `json:"damaged"`
}

// Add adds what the flow got of sent messages.
func (t *Tally) Add(f *Flow, sent uint64) {
	t.Received += f.Received
	t.Lost += f.Lost(sent)
	t.Doubled += f.Doubled
	t.Reordered += f.Reordered
	t.Damaged += f.Invented(sent)
}

// Clean says that nothing is wrong.
func (t Tally) Clean() bool {
	return t.Lost == 0 && t.Doubled == 0 && t.Reordered == 0 && t.Damaged == 0
}
