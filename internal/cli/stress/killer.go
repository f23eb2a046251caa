package stress

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rds-go/rds/internal/fault"
)

// Killer kills connections at random.
type Killer struct {
	// Network is where the connections are.
	Network *fault.Network
	// Every is the mean time between two kills: each pause is between half of it and one and
	// a half. Positive.
	Every time.Duration
	// Kernel says whether the other side is known to be a kernel. A kernel forgets what TCP has acknowledged, so
	// that a reset loses what was received and not yet read (see package fault): there
	// connections are ended with a FIN in the middle of the stream instead.
	Kernel func() bool
}

// firstKill is how long there are no kills at the beginning, so that there is something to kill.
const firstKill = 300 * time.Millisecond

// Run kills until ctx ends.
func (k *Killer) Run(ctx context.Context) {
	pause := firstKill
	for {
		pause += k.Every/2 + rand.N(k.Every+1)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			k.kill(rand.IntN(4), rand.IntN(1<<16))
		}
		pause = 0
	}
}

// kill kills one connection, or all of them, in one of four manners.
func (k *Killer) kill(manner, draw int) {
	live := k.Network.Streams()
	if len(live) == 0 {
		return
	}
	victim := live[draw%len(live)]
	switch {
	case k.Kernel():
		victim.Finish()
	case manner == 0:
		k.Network.Reset(nil)
	case manner == 1:
		// In mid-frame. Idle paths are not written to, so a cut of one would wait for ever: cut all.
		k.Network.Cut(nil, 1+draw)
	default:
		victim.Break()
	}
}

// Killed returns how many connections were killed until now. A cut counts when it happens.
func (k *Killer) Killed() uint64 {
	return k.Network.Count(fault.Reset) + k.Network.Count(fault.Cut) + k.Network.Count(fault.FIN)
}
