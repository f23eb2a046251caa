package engine

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// Watching a connection: while something is queued or unacknowledged on it, a
// timer looks every now and then whether it makes progress. Progress is a message
// that was acknowledged, or more bytes of the messages in front than the peer's
// TCP ever had of them: a stopped process takes the same bytes again on each new
// connection, which counts once. Without progress for Config.StallTimeout the
// peer is stalled; without progress for a socket's time to give up, the socket
// gives up on it.
//
// Sending pays one atomic load for this. The price is precision: a time is
// exceeded by up to a quarter before it is noticed.

// watch is the state of that. peer.mu guards it but for on.
type watch struct {
	// on: the timer runs, or it is never to run (a local destination).
	on    atomic.Bool
	timer *time.Timer

	since  time.Time // of the last progress seen, or when there was last nothing to do
	acked  uint64    // messages acknowledged
	stream uint64    // most bytes acknowledged by TCP since acked changed

	stalled   bool
	impatient map[*flow]struct{} // flows of sockets that give up
	waiting   int                // their calls that wait for congested ports
	herald    bool               // a herald is queued
	ended     bool               // the engine is closed
}

// watchParts is into how many parts the shortest time is divided.
const watchParts = 4

var errNotConnected = errors.New("not connected")

// attend starts the watch unless it runs. No lock may be held.
func (c *conn) attend() {
	info := c.link.Info()
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	w := &c.watch
	if w.on.Load() || w.ended {
		return
	}
	w.on.Store(true)
	_, w.acked, w.stream = progress(&info)
	w.since = time.Now()
	c.arm(w.since)
}

// arm sets the timer for the next look: after a part of the shortest time, or when
// a socket's time is over. peer.mu is held.
func (c *conn) arm(now time.Time) {
	w := &c.watch
	silent := now.Sub(w.since)
	d := c.e.cfg.StallTimeout / watchParts
	for f := range w.impatient {
		d = min(d, f.s.patience()/watchParts)
		if left := f.s.patience() - silent; left > 0 {
			d = min(d, left)
		}
	}
	d = max(d, time.Millisecond)
	c.e.ticks.Add(1)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, c.tick)
		return
	}
	w.timer.Reset(d)
}

// disarm stops the timer; peer.mu is held.
func (c *conn) disarm() {
	if t := c.watch.timer; t != nil && t.Stop() {
		c.e.ticks.Done()
	}
}

// progress is what a snapshot of a link says of it.
func progress(i *transport.LinkInfo) (outstanding int, acked, stream uint64) {
	for _, p := range i.Paths {
		outstanding += p.Queued + p.Unacked
		acked += p.Acked
		stream += p.StreamAcked
	}
	return outstanding, acked, stream
}

// tick is one look.
func (c *conn) tick() {
	defer c.e.ticks.Done()
	info := c.link.Info()
	outstanding, acked, stream := progress(&info)
	now := time.Now()

	p, w := c.peer, &c.watch
	p.mu.Lock()
	if w.ended {
		p.mu.Unlock()
		return
	}
	switch {
	case acked != w.acked:
		w.acked, w.stream = acked, stream
		c.moved(now)
	case stream > w.stream:
		w.stream = stream
		w.since = now
		c.recovered(now)
	case outstanding == 0:
		c.moved(now)
	}
	silent := now.Sub(w.since)
	if !w.stalled && silent >= c.e.cfg.StallTimeout {
		w.stalled = true
		c.e.count.stalls.Add(1)
		ev := Event{At: now, Local: c.local.addr, Remote: c.remote, Count: outstanding}
		if c.up == 0 {
			ev.Err = errNotConnected
		}
		c.tell(ev, PeerStalled)
	}
	var lost []*flow
	for f := range w.impatient {
		if !f.gone.Load() && silent >= f.s.patience() {
			c.lose(f)
			lost = append(lost, f)
		}
	}
	// What is cancelled leaves nothing by which the return of the peer could be
	// seen, and a wait for a congested port nothing by which its end could be.
	send := !w.herald && (len(lost) > 0 || outstanding == 0 && w.waiting > 0)
	w.herald = w.herald || send
	on := outstanding > 0 || w.waiting > 0 || w.herald
	if on {
		c.arm(now)
	} else {
		w.on.Store(false)
	}
	p.mu.Unlock()

	if len(lost) > 0 {
		msgs := 0
		for _, f := range lost {
			msgs += f.cancelLost(0)
		}
		c.e.count.gone.Add(1)
		c.e.count.lost.Add(uint64(msgs))
		c.e.events.emit(Event{Kind: PeerGone, Local: c.local.addr, Remote: c.remote, Count: msgs})
	}
	if send {
		// A ping from port 0 is acknowledged like a message and answered by
		// nobody (RDS spec section 14).
		c.link.Send(transport.Message{DPort: wire.PingPort, Owner: (*herald)(c)})
	}
	if !on {
		// A sender may have seen the watch on just before it was not.
		info = c.link.Info()
		if outstanding, _, _ := progress(&info); outstanding > 0 {
			c.attend()
		}
	}
}

// moved says that there was progress or is nothing to do; peer.mu is held.
func (c *conn) moved(now time.Time) {
	c.watch.since = now
	c.recovered(now)
}

// recovered ends a stall; peer.mu is held.
func (c *conn) recovered(now time.Time) {
	if c.watch.stalled {
		c.watch.stalled = false
		c.tell(Event{At: now, Local: c.local.addr, Remote: c.remote}, PeerRecovered)
	}
}

// isStalled says whether the peer is stalled on this connection.
func (c *conn) isStalled() bool {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return c.watch.stalled
}

// lose marks a flow as gone; peer.mu is held.
func (c *conn) lose(f *flow) {
	if f.gone.CompareAndSwap(false, true) {
		f.s.gone.Add(1)
	}
}

// find ends that; peer.mu is held.
func (c *conn) find(f *flow) {
	if f.gone.CompareAndSwap(true, false) {
		f.s.gone.Add(-1)
	}
}

// herald is a connection as the owner of a message that says, by being
// acknowledged, that the peer is there (again).
type herald conn

// Released implements [transport.Owner].
func (h *herald) Released(msgs, bytes int) {
	c := (*conn)(h)
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	c.watch.herald = false
	c.moved(time.Now())
	for f := range c.watch.impatient {
		c.find(f)
	}
}

// enlist enters a flow among the impatient ones, or takes it out if its socket is
// patient or closed. No lock but the flow's sendHalf.mu may be held.
func (c *conn) enlist(f *flow) {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	w := &c.watch
	if f.s.patience() == 0 || f.s.cancelled.Load() {
		delete(w.impatient, f)
		c.find(f)
		return
	}
	if w.impatient == nil {
		w.impatient = make(map[*flow]struct{})
	}
	w.impatient[f] = struct{}{}
	if !w.on.Load() || w.timer == nil || w.ended {
		return
	}
	if w.timer.Stop() {
		c.e.ticks.Done()
		c.arm(time.Now()) // by the shortest time, which may be this one
	}
}

// await notes that a call of an impatient socket begins (+1) or ends (-1) to wait for a
// congested port.
func (c *conn) await(by int) {
	c.peer.mu.Lock()
	c.watch.waiting += by
	c.peer.mu.Unlock()
	if by > 0 && !c.watch.on.Load() {
		c.attend()
	}
}
