package demo

// flow is the record of what one receiving socket got from one sending socket. It rests on the
// sender's numbers alone (0, 1, 2, …) and knows nothing of the numbers and filters of RDS, so that it
// is an independent witness.
type flow struct {
	// next is one more than the largest number received.
	next uint64
	// missing are the numbers below next that were not received: ascending, not touching.
	missing []span
	// forgotten counts missing numbers whose span was given up, because there were too many.
	forgotten uint64

	received  uint64 // good messages, doubles not counted
	doubled   uint64 // numbers that had been received before
	reordered uint64 // numbers that came after a larger one
}

// span is the numbers from lo to hi-1.
type span struct{ lo, hi uint64 }

// maxSpans bounds the memory of a flow. Beyond it the oldest gap counts as lost for good, and what
// still comes from it as doubled: the verdict is "failed" either way.
const maxSpans = 4096

// take records that a message came.
func (f *flow) take(number uint64) {
	switch {
	case number == f.next:
		f.next++
		f.received++
	case number > f.next:
		if len(f.missing) == maxSpans {
			f.forgotten += f.missing[0].hi - f.missing[0].lo
			f.missing = append(f.missing[:0], f.missing[1:]...)
		}
		f.missing = append(f.missing, span{f.next, number})
		f.next = number + 1
		f.received++
	case f.fill(number):
		f.reordered++
		f.received++
	default:
		f.doubled++
	}
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

// gaps counts the numbers below the largest received that are missing.
func (f *flow) gaps() uint64 {
	n := f.forgotten
	for _, s := range f.missing {
		n += s.hi - s.lo
	}
	return n
}

// lost counts what did not come of sent messages.
func (f *flow) lost(sent uint64) uint64 {
	if sent < f.next { // more than was sent: see invented
		return f.gaps()
	}
	return f.gaps() + sent - f.next
}

// invented counts the numbers that were never sent and yet came.
func (f *flow) invented(sent uint64) uint64 {
	if f.next <= sent {
		return 0
	}
	return f.next - sent
}

// tally is what flows add up to.
type tally struct {
	Received  uint64
	Lost      uint64
	Doubled   uint64
	Reordered uint64
	// Damaged counts messages whose content, length or sender was not what it should have been, and
	// those that nobody had sent.
	Damaged uint64
}

func (t *tally) add(f *flow, sent uint64) {
	t.Received += f.received
	t.Lost += f.lost(sent)
	t.Doubled += f.doubled
	t.Reordered += f.reordered
	t.Damaged += f.invented(sent)
}

// inbox checks what one receiving socket gets. It belongs to the goroutine that receives.
type inbox struct {
	pattern pattern
	self    uint16
	flows   []flow // by sending socket
	damaged uint64
}

// take checks and records one message that came from the socket with the given index; ok is false for
// a sender that takes no part in the demo.
func (in *inbox) take(sender uint16, ok bool, m []byte) {
	from, to, number, good := in.pattern.parse(m)
	if !ok || !good || from != sender || to != in.self || int(from) >= len(in.flows) {
		in.damaged++
		return
	}
	in.flows[from].take(number)
}

// tally adds up all flows; sent gives the number of messages that a socket has sent to this one.
func (in *inbox) tally(sent func(from uint16) uint64) tally {
	t := tally{Damaged: in.damaged}
	for from := range in.flows {
		t.add(&in.flows[from], sent(uint16(from)))
	}
	return t
}
