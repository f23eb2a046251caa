package stress

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var r ring[int]
	var model []int
	for step := range 10000 {
		// Grows and shrinks in turns.
		if grow := step/500%2 == 0; len(model) == 0 || (rnd.IntN(3) > 0) == grow {
			r.push(step)
			model = append(model, step)
		} else {
			i := rnd.IntN(len(model)) * rnd.IntN(2) // the first, or any
			if got := r.remove(i); got != model[i] {
				t.Fatalf("step %d: remove(%d) = %d, want %d", step, i, got, model[i])
			}
			model = slices.Delete(model, i, i+1)
		}
		if r.len() != len(model) {
			t.Fatalf("step %d: length %d, want %d", step, r.len(), len(model))
		}
		for i, want := range model {
			if got := *r.at(i); got != want {
				t.Fatalf("step %d: at(%d) = %d, want %d", step, i, got, want)
			}
		}
	}
}
