package rds

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/rds-go/rds/internal/engine"
)

// Events are functions that are told what happens in the background of a node:
// logging, metrics and the like listen here. A nil function is skipped. They
// are called one after the other, in order, from a goroutine of the node that
// does nothing else, with no lock held. They should return soon: while one
// runs, up to 1024 events wait, and those beyond are lost and counted (counter
// events_lost). They must not call [Node.Close].
type Events struct {
	// PeerUp: the first path of a connection came up.
	PeerUp func(PeerEvent)
	// PeerDown: the last path of a connection that was up is down. Err says
	// why; nil when the peer closed in good order. Count is the number of
	// unacknowledged messages that will be sent again.
	PeerDown func(PeerEvent)
	// PathUp and PathDown: the same for each path (TCP connection) of a
	// connection.
	PathUp, PathDown func(PeerEvent)
	// PeerRestarted: the peer's process or kernel was started anew. Count
	// messages that were unacknowledged will be sent again, now to the new one.
	PeerRestarted func(PeerEvent)
	// PeerKnown: the peer introduced itself; Own says whether it runs this
	// implementation, otherwise it is a kernel.
	PeerKnown func(PeerEvent)
	// ProtocolError: the peer sent what no RDS peer may send; Err says what.
	// Its connection was dropped, unless Harmless.
	ProtocolError func(PeerEvent)
	// Refused: somebody's attempt to connect was turned away; Err says why.
	Refused func(PeerEvent)
	// DialFailed: an attempt to connect failed; Err says why. Attempts go on
	// while messages wait.
	DialFailed func(PeerEvent)
	// PeerStalled: there is something for the peer, and it has made no progress
	// with it for Config.StallTimeout: it does not answer, keeps its TCP window
	// shut, or cannot be reached (Err says so then). Count is the number of
	// messages queued and unacknowledged. PeerRecovered: it makes progress
	// again, or nothing is left to be sent.
	PeerStalled, PeerRecovered func(PeerEvent)
	// PeerGone: sockets gave up on the peer ([Socket.SetGiveUp]); Count of
	// their messages were cancelled.
	PeerGone func(PeerEvent)
	// PeerCongested: a port of the peer is congested, and none was before. Count
	// is the number of congested ports. PeerClear: none is any more.
	PeerCongested, PeerClear func(PeerEvent)
	// PingLimit: Config.MaxPings answers to the peer's pings wait to be sent,
	// and one more ping was not answered.
	PingLimit func(PeerEvent)
	// QueueLimit: the peer's unread messages reached a limit and the peer is
	// not read any more for now. Count is the number of bytes that they occupy.
	QueueLimit func(PeerEvent)
	// QueueResumed: the peer is read again.
	QueueResumed func(PeerEvent)
	// StateFailed: the file in Config.StateDir could not be written; Err says
	// why. There are no addresses in this event.
	StateFailed func(PeerEvent)
}

// PeerEvent describes one event. Which fields mean something is said at the
// functions of [Events].
type PeerEvent struct {
	// At is when it happened.
	At time.Time
	// Local and Remote are the addresses of the connection; Local is the zero
	// value where there is none yet.
	Local, Remote netip.Addr
	// Path is the number of the path, from 0.
	Path int
	// Err is the reason.
	Err error
	// Count is a number of messages or bytes.
	Count int
	// Own: the peer runs this implementation and is not a kernel.
	Own bool
	// Harmless: the connection was kept.
	Harmless bool
	// Suppressed is the number of like events that were not reported since the
	// last one. ProtocolError, Refused, DialFailed and PingLimit are reported at
	// most once a second for each connection, and Refused at most once a second
	// for all strangers together. QueueLimit and QueueResumed together, and
	// PeerCongested and PeerClear together, are reported at most once a second
	// for each peer; the last report is always the present state.
	Suppressed int
}

func (e *Events) pick(k engine.EventKind) func(PeerEvent) {
	switch k {
	case engine.PeerUp:
		return e.PeerUp
	case engine.PeerDown:
		return e.PeerDown
	case engine.PathUp:
		return e.PathUp
	case engine.PathDown:
		return e.PathDown
	case engine.PeerRestarted:
		return e.PeerRestarted
	case engine.PeerKnown:
		return e.PeerKnown
	case engine.ProtocolError:
		return e.ProtocolError
	case engine.Refused:
		return e.Refused
	case engine.DialFailed:
		return e.DialFailed
	case engine.QueueLimit:
		return e.QueueLimit
	case engine.QueueResumed:
		return e.QueueResumed
	case engine.StateFailed:
		return e.StateFailed
	case engine.PeerStalled:
		return e.PeerStalled
	case engine.PeerRecovered:
		return e.PeerRecovered
	case engine.PeerGone:
		return e.PeerGone
	case engine.PeerCongested:
		return e.PeerCongested
	case engine.PeerClear:
		return e.PeerClear
	case engine.PingLimit:
		return e.PingLimit
	}
	return nil
}

// listener is nil for nil Events, so that a node without listeners has no
// goroutine for them.
func (e *Events) listener() func(engine.Event) {
	if e == nil {
		return nil
	}
	events := *e
	return func(ev engine.Event) {
		if f := events.pick(ev.Kind); f != nil {
			f(PeerEvent{
				At: ev.At, Local: ev.Local, Remote: ev.Remote, Path: ev.Path, Err: ev.Err, Count: ev.Count,
				Own: ev.Own, Harmless: ev.Harmless, Suppressed: ev.Suppressed,
			})
		}
	}
}

// Join returns Events that call those of e and then those of other. Either may
// be nil.
func (e *Events) Join(other *Events) *Events {
	if e == nil {
		return other
	}
	if other == nil {
		return e
	}
	both := func(a, b func(PeerEvent)) func(PeerEvent) {
		if a == nil {
			return b
		}
		if b == nil {
			return a
		}
		return func(ev PeerEvent) { a(ev); b(ev) }
	}
	return &Events{
		PeerUp:        both(e.PeerUp, other.PeerUp),
		PeerDown:      both(e.PeerDown, other.PeerDown),
		PathUp:        both(e.PathUp, other.PathUp),
		PathDown:      both(e.PathDown, other.PathDown),
		PeerRestarted: both(e.PeerRestarted, other.PeerRestarted),
		PeerKnown:     both(e.PeerKnown, other.PeerKnown),
		ProtocolError: both(e.ProtocolError, other.ProtocolError),
		Refused:       both(e.Refused, other.Refused),
		DialFailed:    both(e.DialFailed, other.DialFailed),
		QueueLimit:    both(e.QueueLimit, other.QueueLimit),
		QueueResumed:  both(e.QueueResumed, other.QueueResumed),
		StateFailed:   both(e.StateFailed, other.StateFailed),
		PeerStalled:   both(e.PeerStalled, other.PeerStalled),
		PeerRecovered: both(e.PeerRecovered, other.PeerRecovered),
		PeerGone:      both(e.PeerGone, other.PeerGone),
		PeerCongested: both(e.PeerCongested, other.PeerCongested),
		PeerClear:     both(e.PeerClear, other.PeerClear),
		PingLimit:     both(e.PingLimit, other.PingLimit),
	}
}

// SlogEvents returns Events that write to l: peers coming, going and restarting
// at level Info, paths and failed attempts to connect at Debug, the rest at
// Warn. nil means [slog.Default].
func SlogEvents(l *slog.Logger) *Events {
	if l == nil {
		l = slog.Default()
	}
	to := func(level slog.Level, msg string) func(PeerEvent) {
		return func(ev PeerEvent) { l.LogAttrs(context.Background(), level, msg, ev.attrs()...) }
	}
	return &Events{
		PeerUp:        to(slog.LevelInfo, "rds peer up"),
		PeerDown:      to(slog.LevelInfo, "rds peer down"),
		PathUp:        to(slog.LevelDebug, "rds path up"),
		PathDown:      to(slog.LevelDebug, "rds path down"),
		PeerRestarted: to(slog.LevelInfo, "rds peer restarted"),
		PeerKnown:     to(slog.LevelInfo, "rds peer known"),
		ProtocolError: to(slog.LevelWarn, "rds protocol error"),
		Refused:       to(slog.LevelWarn, "rds connection refused by us"),
		DialFailed:    to(slog.LevelDebug, "rds connect failed"),
		QueueLimit:    to(slog.LevelWarn, "rds queue limit reached, peer not read for now"),
		QueueResumed:  to(slog.LevelInfo, "rds peer read again"),
		StateFailed:   to(slog.LevelWarn, "rds state file not written"),
		PeerStalled:   to(slog.LevelWarn, "rds peer stalled"),
		PeerRecovered: to(slog.LevelInfo, "rds peer recovered"),
		PeerGone:      to(slog.LevelWarn, "rds peer given up"),
		PeerCongested: to(slog.LevelDebug, "rds peer congested"),
		PeerClear:     to(slog.LevelDebug, "rds peer not congested"),
		PingLimit:     to(slog.LevelWarn, "rds pings not answered"),
	}
}

func (ev PeerEvent) attrs() []slog.Attr {
	var a []slog.Attr
	if ev.Local.IsValid() {
		a = append(a, slog.String("local", ev.Local.String()))
	}
	if ev.Remote.IsValid() {
		a = append(a, slog.String("peer", ev.Remote.String()), slog.Int("path", ev.Path))
	}
	if ev.Err != nil {
		a = append(a, slog.Any("err", ev.Err))
	}
	if ev.Count != 0 {
		a = append(a, slog.Int("count", ev.Count))
	}
	if ev.Own {
		a = append(a, slog.Bool("own", true))
	}
	if ev.Harmless {
		a = append(a, slog.Bool("harmless", true))
	}
	if ev.Suppressed != 0 {
		a = append(a, slog.Int("suppressed", ev.Suppressed))
	}
	return a
}
