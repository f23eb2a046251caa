package engine

import "time"

// flap tells listeners about a state of a peer that is on or off and may change
// much faster than anybody wants to hear: at most once in eventGap, and the last
// word is always the present state. peer.mu guards it.
type flap struct {
	on, off EventKind
	state   func(p *peer) (is bool, count int) // the present state and Event.Count

	told    bool
	resting bool // the last report is less than eventGap ago
	skipped int  // changes not told
	timer   *time.Timer
}

// changed says that the flap's state may have changed; p.mu is held. Of two calls at
// the same time the later one sees the state that lasts.
func (p *peer) changed(f *flap) {
	if p.ended {
		return
	}
	is, count := f.state(p)
	if f.resting {
		f.skipped++
		return
	}
	if is != f.told {
		p.tellFlap(f, is, count)
	}
}

// tellFlap reports the state and lets the flap rest; p.mu is held.
func (p *peer) tellFlap(f *flap, is bool, count int) {
	ev := Event{Kind: f.off, Remote: p.addr, Count: count, Suppressed: f.skipped}
	if is {
		ev.Kind = f.on
	}
	f.told, f.skipped, f.resting = is, 0, true
	p.e.events.emit(ev)
	p.e.ticks.Add(1)
	if f.timer == nil {
		f.timer = time.AfterFunc(eventGap, func() { p.rested(f) })
		return
	}
	f.timer.Reset(eventGap)
}

func (p *peer) rested(f *flap) {
	defer p.e.ticks.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	f.resting = false
	if p.ended {
		return
	}
	if is, count := f.state(p); is != f.told {
		p.tellFlap(f, is, count)
	}
}

// stop stops the timer; p.mu is held.
func (f *flap) stop(p *peer) {
	if f.timer != nil && f.timer.Stop() {
		p.e.ticks.Done()
	}
}
