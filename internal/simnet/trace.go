package simnet

import (
	"fmt"
	"time"
)

// EventKind says what happened to a connection.
type EventKind uint8

const (
	EventSYN         EventKind = iota + 1 // From sent a SYN
	EventSYNACK                           // From sent a SYN-ACK
	EventRefused                          // From's machine has no listener there and sent an RST
	EventEstablished                      // the end From is connected
	EventData                             // N bytes from From arrived; Seq is their offset
	EventFIN                              // From's FIN arrived; Seq is its offset
	EventRST                              // From's RST arrived, or From's machine sent one for a stream that it does not know
	EventDrop                             // a packet from From was lost
	EventTimeout                          // the end From gave up
	EventClosed                           // the end From ended in good order
)

var kindNames = [...]string{
	EventSYN: "SYN", EventSYNACK: "SYN-ACK", EventRefused: "refused", EventEstablished: "established",
	EventData: "data", EventFIN: "FIN", EventRST: "RST", EventDrop: "drop", EventTimeout: "timeout", EventClosed: "closed",
}

func (k EventKind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something that happened to a connection, for Options.Trace.
type Event struct {
	At   time.Duration // since the Net was made
	Kind EventKind
	Conn *Conn
	From Side
	Seq  int64
	N    int
}

// String writes e as one line of a trace: "1.5ms #3 dialer data 0+52".
func (e Event) String() string {
	s := fmt.Sprintf("%v #%d %v %v", e.At, e.Conn.id, e.From, e.Kind)
	switch e.Kind {
	case EventData, EventDrop:
		s += fmt.Sprintf(" %d+%d", e.Seq, e.N)
	case EventFIN:
		s += fmt.Sprintf(" %d", e.Seq)
	}
	return s
}

func (n *Net) trace(e Event) {
	if f := n.opts.Trace; f != nil {
		e.At = n.clock.now()
		f(e)
	}
}
