package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// waiter is one call that waits. It is in at most one list at a time, and a list
// that wakes it takes it out first, so that ch never holds more than one token.
type waiter struct {
	ch   chan struct{} // capacity 1
	next *waiter       // in waitList.free
}

// waitList is calls that wait for the same thing, first come first served.
// Whoever holds the lock of the state they wait for may use it.
type waitList struct {
	q    []*waiter
	free *waiter // waiters to use again, so that waiting does not allocate
}

// add appends a waiter, or puts it first if the call has waited before and lost
// a race.
func (l *waitList) add(first bool) *waiter {
	w := l.spare()
	l.q = append(l.q, w)
	if first {
		copy(l.q[1:], l.q)
		l.q[0] = w
	}
	return w
}

// spare returns a waiter that is in no list.
func (l *waitList) spare() *waiter {
	w := l.free
	if w == nil {
		return &waiter{ch: make(chan struct{}, 1)}
	}
	l.free, w.next = w.next, nil
	return w
}

// giveBack makes a waiter that is in no list and has no token a spare one.
func (l *waitList) giveBack(w *waiter) { w.next, l.free = l.free, w }

// wake wakes the call that has waited longest.
func (l *waitList) wake() {
	if len(l.q) == 0 {
		return
	}
	w := l.q[0]
	copy(l.q, l.q[1:])
	l.q[len(l.q)-1] = nil
	l.q = l.q[:len(l.q)-1]
	w.ch <- struct{}{}
}

// wakeAll wakes all.
func (l *waitList) wakeAll() {
	for i, w := range l.q {
		w.ch <- struct{}{}
		l.q[i] = nil
	}
	l.q = l.q[:0]
}

// done ends w's wait, however it ended; got says whether its token was taken
// from ch. It returns whether w had been woken: a wake-up that was not used
// must be passed on.
func (l *waitList) done(w *waiter, got bool) (woken bool) {
	woken = got
	if !got {
		woken = !l.remove(w)
		if woken {
			<-w.ch
		}
	}
	l.giveBack(w)
	return woken
}

func (l *waitList) remove(w *waiter) bool {
	for i, x := range l.q {
		if x == w {
			copy(l.q[i:], l.q[i+1:])
			l.q[len(l.q)-1] = nil
			l.q = l.q[:len(l.q)-1]
			return true
		}
	}
	return false
}

// deadline is a point in time that ends waits. Setting it applies to those that
// are under way.
type deadline struct {
	// passed is read without the lock on the way of every message.
	passed atomic.Bool

	mu    sync.Mutex
	ch    chan struct{} // closed when passed; nil until somebody waits
	timer *time.Timer
	set   uint64 // counts settings, so that a timer of an older one does nothing
}

// to sets the deadline; the zero time means none.
func (d *deadline) to(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.passed.Load() {
		d.passed.Store(false)
		d.ch = nil
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.pass()
		return
	}
	set := d.set
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.set == set {
			d.pass()
		}
	})
}

// pass makes it so; d.mu is held.
func (d *deadline) pass() {
	d.passed.Store(true)
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	close(d.ch)
}

// wait returns a channel that is closed when the deadline, as set now or later,
// has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}
