package engine

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// EventKind says what happened. The root package documents the kinds for users.
type EventKind uint8

const (
	PeerUp EventKind = iota + 1
	PeerDown
	PathUp
	PathDown
	PeerRestarted
	PeerKnown
	ProtocolError
	Refused
	DialFailed
	QueueLimit
	QueueResumed
	StateFailed
	PeerStalled
	PeerRecovered
	PeerGone
	PeerCongested
	PeerClear
	PingLimit
)

// Event is one thing that happened in the background.
type Event struct {
	Kind          EventKind
	At            time.Time
	Local, Remote netip.Addr
	Path          int
	Err           error
	Count         int
	Own, Harmless bool
	Suppressed    int
}

// eventQueue is how many events wait for a slow listener.
const eventQueue = 1024

// dispatcher calls the listener, from one goroutine, in the order in which events
// were emitted. Emitting never waits: what does not fit is counted.
type dispatcher struct {
	listener func(Event)
	lost     atomic.Uint64
	ended    chan struct{}

	mu     sync.Mutex // orders emitting and closing
	ch     chan Event // closed by close
	closed bool
}

// newDispatcher starts the goroutine, unless nobody listens.
func newDispatcher(listener func(Event)) *dispatcher {
	d := &dispatcher{listener: listener}
	if listener != nil {
		d.ch = make(chan Event, eventQueue)
		d.ended = make(chan struct{})
		go d.run()
	}
	return d
}

func (d *dispatcher) run() {
	defer close(d.ended)
	for ev := range d.ch {
		d.listener(ev)
	}
}

// emit queues ev for the listener. It may be called with locks held.
func (d *dispatcher) emit(ev Event) {
	if d.listener == nil {
		return
	}
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	select {
	case d.ch <- ev:
	default:
		d.lost.Add(1)
	}
}

// close lets the listener have what is queued and waits for it.
func (d *dispatcher) close() {
	if d.listener == nil {
		return
	}
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.ch)
	}
	d.mu.Unlock()
	<-d.ended
}

// limiter thins out the kinds of events that a peer can cause again and again, to
// one a second of each kind. The lock of whoever has it guards it.
type limiter struct {
	kinds map[EventKind]*limited
}

type limited struct {
	last       time.Time
	suppressed int
}

// eventGap is the time between two reported events of one kind of one peer.
const eventGap = time.Second

// admit says whether ev is to be reported, and fills in how many were not.
func (l *limiter) admit(ev *Event) bool {
	switch ev.Kind {
	case ProtocolError, Refused, DialFailed, PingLimit:
	default:
		return true
	}
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	k := l.kinds[ev.Kind]
	if k == nil {
		if l.kinds == nil {
			l.kinds = make(map[EventKind]*limited)
		}
		k = new(limited)
		l.kinds[ev.Kind] = k
	} else if since := ev.At.Sub(k.last); since >= 0 && since < eventGap {
		k.suppressed++
		return false
	}
	ev.Suppressed, k.suppressed, k.last = k.suppressed, 0, ev.At
	return true
}
