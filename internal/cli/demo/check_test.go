package demo

import (
	"testing"

	"github.com/rds-go/rds/internal/cli/witness"
)

func TestInbox(t *testing.T) {
	p := pattern{seed: 1, size: 100}
	plant := func(from, to uint16, number uint64) []byte { return p.append(nil, from, to, number) }
	broken := plant(0, 2, 0)
	broken[len(broken)-1] ^= 1
	for _, tt := range []struct {
		name    string
		sender  uint16
		known   bool
		message []byte
		want    witness.Tally
	}{
		{"good", 0, true, plant(0, 2, 0), witness.Tally{Received: 1}},
		{"gap", 0, true, plant(0, 2, 1), witness.Tally{Received: 1, Lost: 1}},
		{"broken pattern", 0, true, broken, witness.Tally{Damaged: 1, Lost: 1}},
		{"empty", 0, true, nil, witness.Tally{Damaged: 1, Lost: 1}},
		{"for somebody else", 0, true, plant(0, 1, 0), witness.Tally{Damaged: 1, Lost: 1}},
		{"from somebody else", 1, true, plant(0, 2, 0), witness.Tally{Damaged: 1, Lost: 1}},
		{"from a stranger", 0, false, plant(0, 2, 0), witness.Tally{Damaged: 1, Lost: 1}},
		{"sender out of range", 7, true, plant(7, 2, 0), witness.Tally{Damaged: 1, Lost: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inbox{pattern: p, self: 2, flows: make([]witness.Flow, 3)}
			in.take(tt.sender, tt.known, tt.message)
			got := in.tally(func(from uint16) uint64 {
				if from == 0 {
					return max(1, in.flows[0].Next())
				}
				return 0
			})
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
