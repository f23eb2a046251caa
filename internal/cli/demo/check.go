package demo

import "github.com/rds-go/rds/internal/cli/witness"

// inbox checks what one receiving socket gets. It belongs to the goroutine that receives.
type inbox struct {
	pattern pattern
	self    uint16
	flows   []witness.Flow // by sending socket
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
	in.flows[from].Take(number)
}

// tally adds up all flows; sent gives the number of messages that a socket has sent to this one.
func (in *inbox) tally(sent func(from uint16) uint64) witness.Tally {
	t := witness.Tally{Damaged: in.damaged}
	for from := range in.flows {
		t.Add(&in.flows[from], sent(uint16(from)))
	}
	return t
}
