package simnet

import (
	"math"
	"time"
)

// Chaos adds random faults to connections, drawn from Options.Seed. Probabilities lie in [0, 1]; 0 = never.
type Chaos struct {
	// ShortWrite is the probability that a TryWrite takes only some of the bytes that
	// would fit, at least one.
	ShortWrite float64
	// Stall is the probability that a packet finds the receiving stack busy, for up to
	// MaxStall; what comes behind it waits as well.
	Stall float64
	// MaxStall is the longest stall; each is drawn evenly. 0 = 100 ms.
	MaxStall time.Duration
	// Cut is the probability that a connection is cut, in one direction, of a way and at an offset
	// drawn at random.
	Cut float64
	// CutBytes is the mean of the (exponentially distributed) offsets of cuts. 0 = 16 KiB.
	CutBytes int64
	// Silent includes cuts after which everything is swallowed: they take a UserTimeout or a
	// KeepAlive to be noticed.
	Silent bool
}

func (ch Chaos) check() {
	for _, p := range []float64{ch.ShortWrite, ch.Stall, ch.Cut} {
		if !(p >= 0 && p <= 1) {
			panic("simnet: Chaos with a probability outside [0, 1]")
		}
	}
	if ch.CutBytes < 0 || ch.MaxStall < 0 {
		panic("simnet: Chaos with a negative CutBytes or MaxStall")
	}
}

// plan draws the fate of a new connection.
func (ch Chaos) plan(c *Conn) {
	p := &c.pipes[Dialer]
	if !p.chance(ch.Cut) {
		return
	}
	mean := float64(ch.CutBytes)
	if mean == 0 {
		mean = 16 << 10
	}
	ways := int64(numCutHow)
	if !ch.Silent {
		ways-- // CutSilent is the last
	}
	f := &c.flows[p.draw(2)]
	f.cutHow = CutHow(p.draw(ways))
	f.cutAt = int64(-mean * math.Log(1-float64(p.draw(1<<53))/(1<<53)))
}

// delay returns for how long a packet finds the receiving stack busy.
func (ch Chaos) delay(p *pipe) time.Duration {
	if !p.chance(ch.Stall) {
		return 0
	}
	longest := ch.MaxStall
	if longest == 0 {
		longest = 100 * time.Millisecond
	}
	return time.Duration(p.draw(int64(longest)))
}

// shorten returns how many of n bytes a TryWrite may take.
func (ch Chaos) shorten(p *pipe, n int64) int64 {
	if p.chance(ch.ShortWrite) {
		return 1 + p.draw(n)
	}
	return n
}
