package witness

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
		want Tally
	}{
		{"nothing sent", nil, 0, Tally{}},
		{"all in order", numbers{0, 1, 2, 3}, 4, Tally{Received: 4}},
		{"nothing came", nil, 4, Tally{Lost: 4}},
		{"first lost", numbers{1, 2}, 3, Tally{Received: 2, Lost: 1}},
		{"middle lost", numbers{0, 1, 4, 5}, 6, Tally{Received: 4, Lost: 2}},
		{"last lost", numbers{0, 1}, 3, Tally{Received: 2, Lost: 1}},
		{"double at once", numbers{0, 1, 1, 2}, 3, Tally{Received: 3, Doubled: 1}},
		{"double later", numbers{0, 1, 2, 0}, 3, Tally{Received: 3, Doubled: 1}},
		{"one late", numbers{0, 2, 3, 4, 1}, 5, Tally{Received: 5, Reordered: 1}},
		{"a stretch again", numbers{0, 1, 2, 1, 2, 3}, 4, Tally{Received: 4, Doubled: 2}},
		{"neighbours swapped", numbers{0, 2, 1, 3}, 4, Tally{Received: 4, Reordered: 1}},
		{"backwards", numbers{3, 2, 1, 0}, 4, Tally{Received: 4, Reordered: 3}},
		{"late and double", numbers{0, 2, 1, 1}, 3, Tally{Received: 3, Reordered: 1, Doubled: 1}},
		{"a loss does not hide a double", numbers{0, 1, 1, 3}, 4, Tally{Received: 3, Lost: 1, Doubled: 1}},
		{"middle of a gap comes late", numbers{0, 9, 5}, 10, Tally{Received: 3, Lost: 7, Reordered: 1}},
		{"never sent", numbers{0, 1, 2}, 2, Tally{Received: 3, Damaged: 1}},
		{"never sent, and a loss", numbers{0, 2, 3}, 3, Tally{Received: 3, Lost: 1, Damaged: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f Flow
			seen := map[uint64]bool{}
			for _, n := range tt.got {
				if fresh := f.Take(n); fresh == seen[n] {
					t.Errorf("Take(%d) = %v", n, fresh)
				}
				seen[n] = true
			}
			var got Tally
			got.Add(&f, tt.sent)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if clean := tt.want == (Tally{Received: tt.want.Received}); got.Clean() != clean {
				t.Errorf("Clean() = %v for %+v", got.Clean(), got)
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
		var f Flow
		var want Tally
		seen, largest := map[uint64]bool{}, int64(-1)
		for _, n := range history {
			f.Take(n)
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
		var got Tally
		got.Add(&f, sent)
		if got != want {
			t.Fatalf("seed %d, history %v: got %+v, want %+v", seed, history, got, want)
		}
	}
}

// However many gaps there are, memory is bounded and no loss is forgotten.
func TestFlowBounded(t *testing.T) {
	var f Flow
	const sent = 10 * maxSpans
	for n := uint64(1); n < sent; n += 2 { // every other one is lost
		f.Take(n)
		if len(f.missing) > maxSpans {
			t.Fatalf("%d spans, limit %d", len(f.missing), maxSpans)
		}
	}
	if got := f.Lost(sent); got != sent/2 {
		t.Errorf("%d lost, want %d", got, sent/2)
	}
}
