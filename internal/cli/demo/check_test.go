package demo

import (
	"math/rand/v2"
	"testing"
)

// The checker must see planted faults; otherwise a verdict without faults means nothing.
func TestFlow(t *testing.T) {
	type numbers = []uint64
	for _, tt := range []struct {
		name string
		got  numbers
		sent uint64
		want tally
	}{
		{"nothing sent", nil, 0, tally{}},
		{"all in order", numbers{0, 1, 2, 3}, 4, tally{Received: 4}},
		{"nothing came", nil, 4, tally{Lost: 4}},
		{"first lost", numbers{1, 2}, 3, tally{Received: 2, Lost: 1}},
		{"middle lost", numbers{0, 1, 4, 5}, 6, tally{Received: 4, Lost: 2}},
		{"last lost", numbers{0, 1}, 3, tally{Received: 2, Lost: 1}},
		{"double at once", numbers{0, 1, 1, 2}, 3, tally{Received: 3, Doubled: 1}},
		{"double later", numbers{0, 1, 2, 0}, 3, tally{Received: 3, Doubled: 1}},
		{"a stretch again", numbers{0, 1, 2, 1, 2, 3}, 4, tally{Received: 4, Doubled: 2}},
		{"neighbours swapped", numbers{0, 2, 1, 3}, 4, tally{Received: 4, Reordered: 1}},
		{"one late", numbers{0, 2, 3, 4, 1}, 5, tally{Received: 5, Reordered: 1}},
		{"backwards", numbers{3, 2, 1, 0}, 4, tally{Received: 4, Reordered: 3}},
		{"late and double", numbers{0, 2, 1, 1}, 3, tally{Received: 3, Reordered: 1, Doubled: 1}},
		{"a loss does not hide a double", numbers{0, 1, 1, 3}, 4, tally{Received: 3, Lost: 1, Doubled: 1}},
		{"middle of a gap comes late", numbers{0, 9, 5}, 10, tally{Received: 3, Lost: 7, Reordered: 1}},
		{"never sent", numbers{0, 1, 2}, 2, tally{Received: 3, Damaged: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f flow
			for _, n := range tt.got {
				f.take(n)
			}
			var got tally
			got.add(&f, tt.sent)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// On random histories the flow says the same as a checker that remembers everything.
func TestFlowAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var history []uint64
		sent := uint64(rnd.IntN(200))
		for n := range sent {
			switch rnd.IntN(10) {
			case 0: // lost
			case 1: // doubled
				history = append(history, n, n)
			case 2: // somewhere earlier
				history = append(history, n)
				i := rnd.IntN(len(history))
				history[i], history[len(history)-1] = history[len(history)-1], history[i]
			default:
				history = append(history, n)
			}
		}
		var f flow
		var want tally
		seen, largest := map[uint64]bool{}, int64(-1)
		for _, n := range history {
			f.take(n)
			switch {
			case seen[n]:
				want.Doubled++
			case int64(n) < largest:
				want.Reordered++
				want.Received++
			default:
				want.Received++
			}
			seen[n] = true
			largest = max(largest, int64(n))
		}
		want.Lost = sent - uint64(len(seen))
		var got tally
		got.add(&f, sent)
		if got != want {
			t.Fatalf("seed %d, history %v: got %+v, want %+v", seed, history, got, want)
		}
	}
}

// However many gaps there are, memory is bounded and no loss is forgotten.
func TestFlowBounded(t *testing.T) {
	var f flow
	const sent = 10 * maxSpans
	for n := uint64(1); n < sent; n += 2 { // every other one is lost
		f.take(n)
		if len(f.missing) > maxSpans {
			t.Fatalf("%d spans, limit %d", len(f.missing), maxSpans)
		}
	}
	if got := f.lost(sent); got != sent/2 {
		t.Errorf("%d lost, want %d", got, sent/2)
	}
}

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
		want    tally
	}{
		{"good", 0, true, plant(0, 2, 0), tally{Received: 1}},
		{"gap", 0, true, plant(0, 2, 1), tally{Received: 1, Lost: 1}},
		{"broken pattern", 0, true, broken, tally{Damaged: 1, Lost: 1}},
		{"empty", 0, true, nil, tally{Damaged: 1, Lost: 1}},
		{"for somebody else", 0, true, plant(0, 1, 0), tally{Damaged: 1, Lost: 1}},
		{"from somebody else", 1, true, plant(0, 2, 0), tally{Damaged: 1, Lost: 1}},
		{"from a stranger", 0, false, plant(0, 2, 0), tally{Damaged: 1, Lost: 1}},
		{"sender out of range", 7, true, plant(7, 2, 0), tally{Damaged: 1, Lost: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := inbox{pattern: p, self: 2, flows: make([]flow, 3)}
			in.take(tt.sender, tt.known, tt.message)
			got := in.tally(func(from uint16) uint64 {
				if from == 0 {
					return max(1, in.flows[0].next)
				}
				return 0
			})
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
