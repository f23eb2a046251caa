package simnet

import (
	"math"
	"time"
)

// alarm is something that will happen at a time: the arrival of the next packet
// of a pipe, a timeout of a stream. It is embedded where it belongs and can be
// set again at any time. All alarms are guarded by the lock of the Net.
type alarm struct {
	at    time.Duration // since the start of the Net
	order uint64        // alarms of one instant ring in the order in which they were set
	pos   int           // index in the heap plus one; 0 = not set
	ring  func()        // called with the lock of the Net held
}

// clock holds the alarms of a Net in a heap and drives them with one timer.
type clock struct {
	start time.Time
	heap  []*alarm
	order uint64
	timer *time.Timer
	armed time.Duration // when timer fires; never = it does not
	busy  bool          // run is ringing alarms and will set the timer afterwards
	tick  func()
}

const never = time.Duration(math.MaxInt64)

func (c *clock) init(tick func()) {
	c.start, c.armed, c.tick = time.Now(), never, tick
}

// now is the time since the start.
func (c *clock) now() time.Duration { return time.Since(c.start) }

func (a *alarm) isSet() bool { return a.pos != 0 }

// set makes a ring at the time at, whether or not it was set before.
func (c *clock) set(a *alarm, at time.Duration) {
	c.order++
	a.at, a.order = at, c.order
	if a.pos == 0 {
		c.heap = append(c.heap, a)
		a.pos = len(c.heap)
		c.up(a.pos - 1)
	} else if !c.up(a.pos - 1) {
		c.down(a.pos - 1)
	}
	c.rearm()
}

// stop takes a out of the heap. The timer is left alone: a tick that finds
// nothing due is harmless.
func (c *clock) stop(a *alarm) {
	if a.pos == 0 {
		return
	}
	i, last := a.pos-1, len(c.heap)-1
	c.swap(i, last)
	c.heap[last] = nil
	c.heap = c.heap[:last]
	a.pos = 0
	if i < last && !c.up(i) {
		c.down(i)
	}
}

// run rings every alarm that is due, in order of time, then sets the timer for
// the next.
func (c *clock) run() {
	c.armed, c.busy = never, true
	now := c.now()
	for len(c.heap) > 0 && c.heap[0].at <= now {
		a := c.heap[0]
		c.stop(a)
		a.ring()
	}
	c.busy = false
	c.rearm()
}

func (c *clock) rearm() {
	if c.busy || len(c.heap) == 0 || c.heap[0].at >= c.armed {
		return
	}
	c.armed = c.heap[0].at
	d := max(c.armed-c.now(), 0)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.tick)
	} else {
		c.timer.Reset(d)
	}
}

// close forgets every alarm.
func (c *clock) close() {
	for _, a := range c.heap {
		a.pos = 0
	}
	c.heap = nil
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *clock) less(i, j int) bool {
	a, b := c.heap[i], c.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (c *clock) swap(i, j int) {
	c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
	c.heap[i].pos, c.heap[j].pos = i+1, j+1
}

func (c *clock) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.less(i, parent) {
			break
		}
		c.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (c *clock) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(c.heap) {
			return
		}
		if child+1 < len(c.heap) && c.less(child+1, child) {
			child++
		}
		if !c.less(child, i) {
			return
		}
		c.swap(i, child)
		i = child
	}
}
