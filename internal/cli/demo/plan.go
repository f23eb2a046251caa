package demo

import (
	"math/rand/v2"
	"time"
)

// The demo kills one connection every minPause to maxPause. The first pause is longer, so that there
// is something to kill.
const (
	firstPause = 300 * time.Millisecond
	minPause   = 40 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// manner is how a connection is killed.
type manner uint8

const (
	bySmaller manner = iota // RST by the node with the smaller address, the one that dials
	byLarger                // RST by the node with the larger address
	midFrame                // RST after a number of bytes that is not the end of a frame, by either
	manners
)

// kill is one planned murder: of one of the connections between two nodes (they have several, one a
// path) or of all.
type kill struct {
	after  time.Duration // since the one before
	victim pair
	manner manner
	// killer is the node that does it.
	killer int
	all    bool
	// draw chooses the connection, unless all.
	draw uint64
	// bytes is how much is still let through before the cut (midFrame only).
	bytes int
}

// other is the node of the pair that is not the killer.
func (k *kill) other() int { return k.victim.smaller + k.victim.larger - k.killer }

// pair is two nodes by index, which is in the order of their addresses.
type pair struct{ smaller, larger int }

// plan is the sequence of kills. It depends on the seed and nothing else.
type plan struct {
	rnd   *rand.Rand
	nodes int
	size  int
	round []manner
	began bool
}

func newPlan(seed uint64, nodes, size int) *plan {
	return &plan{rnd: rand.New(rand.NewPCG(seed, mix(seed))), nodes: nodes, size: size}
}

// next returns the next kill. Each manner comes once in a round of three.
func (p *plan) next() kill {
	if len(p.round) == 0 {
		for m := range manners {
			p.round = append(p.round, m)
		}
		p.rnd.Shuffle(len(p.round), func(i, j int) { p.round[i], p.round[j] = p.round[j], p.round[i] })
	}
	k := kill{after: minPause + time.Duration(p.rnd.Int64N(int64(maxPause-minPause))), manner: p.round[0]}
	p.round = p.round[1:]
	if !p.began {
		p.began = true
		k.after += firstPause
	}
	i := p.rnd.IntN(p.nodes)
	j := p.rnd.IntN(p.nodes - 1)
	if j >= i {
		j++
	}
	k.victim = pair{min(i, j), max(i, j)}
	switch k.manner {
	case bySmaller:
		k.killer = k.victim.smaller
	case byLarger:
		k.killer = k.victim.larger
	case midFrame:
		k.killer = i
	}
	// Idle paths are not written to, so a cut of one would wait for ever: cut all.
	k.all = p.rnd.IntN(4) == 0 || k.manner == midFrame
	k.draw = p.rnd.Uint64()
	k.bytes = 1 + p.rnd.IntN(p.size)
	return k
}
