package demo

import (
	"testing"
	"time"
)

func TestPlanIsReproducible(t *testing.T) {
	a, b, other := newPlan(5, 4, 1024), newPlan(5, 4, 1024), newPlan(6, 4, 1024)
	same := true
	for i := range 100 {
		k := a.next()
		if again := b.next(); k != again {
			t.Fatalf("kill %d: %+v and %+v under the same seed", i, k, again)
		}
		if k != other.next() {
			same = false
		}
	}
	if same {
		t.Error("the plan does not depend on the seed")
	}
}

// In two seconds every manner comes several times, and in a longer run every pair is hit.
func TestPlanReachesEverything(t *testing.T) {
	const nodes = 4
	for seed := range uint64(50) {
		p := newPlan(seed, nodes, 1024)
		var at time.Duration
		count := map[manner]int{}
		pairs := map[pair]bool{}
		killers := map[int]bool{}
		for at < 20*time.Second {
			k := p.next()
			at += k.after
			if at < 2*time.Second {
				count[k.manner]++
			}
			pairs[k.victim] = true
			killers[k.killer] = true
			if k.victim.smaller >= k.victim.larger || k.victim.larger >= nodes {
				t.Fatalf("seed %d: no pair: %+v", seed, k)
			}
			want := k.killer
			switch k.manner {
			case bySmaller:
				want = k.victim.smaller
			case byLarger:
				want = k.victim.larger
			}
			if k.killer != want || (pair{min(k.killer, k.other()), max(k.killer, k.other())}) != k.victim {
				t.Fatalf("seed %d: the wrong one kills: %+v", seed, k)
			}
		}
		for m := range manners {
			if count[m] < 2 {
				t.Errorf("seed %d: manner %d comes %d times in two seconds", seed, m, count[m])
			}
		}
		if len(pairs) != nodes*(nodes-1)/2 || len(killers) != nodes {
			t.Errorf("seed %d: %d pairs hit, %d killers", seed, len(pairs), len(killers))
		}
	}
}
