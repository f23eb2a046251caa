package tcp

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rds-go/rds/internal/path"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// Link is one connection: the driver of a path.Connection. It implements transport.Link.
type Link struct {
	t             *Transport
	handler       transport.Handler
	reserver      transport.Reserver // the handler, if it is one
	local, remote netip.Addr

	mu     sync.Mutex
	c      *path.Connection     // guarded by mu, but for the Receivers
	lanes  [wire.MaxPaths]*lane // guarded by mu; made when first used
	held   []heldStream         // guarded by mu; wait for a path, oldest first
	timer  *time.Timer          // guarded by mu
	armed  time.Time            // guarded by mu; when the timer fires
	closed bool                 // guarded by mu
}

// heldStream is an incoming stream that is not read yet, because the path that it
// came for has one.
type heldStream struct {
	transport.Stream
	home int // that path
}

// epoch makes monotonic time cheap: time.Since reads one clock only.
var epoch = time.Now()

func newLink(t *Transport, local, remote netip.Addr) *Link {
	return &Link{t: t, local: local, remote: remote, c: path.New(t.pathConfig(local, remote))}
}

// Send queues a message and writes it at once when the path is idle.
func (l *Link) Send(m transport.Message) error {
	h := wire.Header{SPort: m.SPort, DPort: m.DPort}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	p := l.c.Path(0)
	p.Tx.Enqueue(&h, m.Payload, m.Owner, m.AckSoon)
	if p.State != path.Up {
		l.c.Want(time.Now())
		l.settle()
		return nil
	}
	ln := l.lanes[0]
	if ln.called || !ln.idle() {
		return nil // whoever writes next takes it along
	}
	if time.Since(epoch)-ln.lastWrite < inlineGap {
		ln.called = true
		ln.wake.Signal()
		return nil
	}
	ln.write(inlineRounds)
	l.settle()
	return nil
}

// Cancel forgets messages.
func (l *Link) Cancel(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.c.Paths() {
		m, b := l.c.Path(i).Tx.Cancel(owner, dport, all)
		msgs, bytes = msgs+m, bytes+b
	}
	return msgs, bytes
}

// Pending counts unacknowledged messages.
func (l *Link) Pending(owner transport.Owner, dport uint16, all bool) (msgs, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.c.Paths() {
		m, b := l.c.Path(i).Tx.Pending(owner, dport, all)
		msgs, bytes = msgs+m, bytes+b
	}
	return msgs, bytes
}

// Urge asks for early acknowledgements.
func (l *Link) Urge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.Urge(time.Now())
	l.settle()
}

// MapChanged sends the congestion map.
func (l *Link) MapChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.MapChanged()
	l.settle()
}

// Resume lets paused readers go on.
func (l *Link) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.lanes {
		if ln != nil {
			ln.goOn()
		}
	}
}

// Info describes the link.
func (l *Link) Info() transport.LinkInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	peer := l.c.Peer()
	info := transport.LinkInfo{Local: l.local, Remote: l.remote, Transport: "tcp",
		Own: peer.Kind == path.KindOwn, Known: peer.Kind != path.KindUnknown}
	for i := range l.c.Paths() {
		p := l.c.Path(i)
		q := transport.PathInfo{State: p.State.String(), NextTx: p.Tx.NextSeq(), NextRx: p.Done() + 1,
			Queued: p.Tx.Unsent(), Unacked: p.Tx.Unacked(), Resets: p.Resets, Retransmissions: p.Tx.Retransmissions}
		q.QueuedBytes, q.UnackedBytes = p.Tx.Bytes()
		q.Acked = p.Tx.Acked
		if ln := l.lanes[i]; ln != nil {
			q.DroppedDuplicates = ln.duplicates.Load()
			if ln.stream != nil {
				q.LocalPort, q.RemotePort = ln.stream.LocalAddr().Port(), ln.stream.RemoteAddr().Port()
				written := p.Tx.Written()
				if outq, err := ln.stream.Unacked(); err == nil {
					q.StreamAcked = written - min(written, uint64(outq))
				}
			}
		}
		info.Paths = append(info.Paths, q)
	}
	return info
}

// incoming takes an accepted stream.
func (l *Link) incoming(s transport.Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		s.Close()
		return
	}
	admission, i := l.c.Incoming(time.Now(), s.RemoteAddr().Port())
	switch admission {
	case path.Adopt:
		l.t.streams.Add(1)
		l.attach(i, s, true)
	case path.Hold:
		l.t.streams.Add(1)
		l.held = append(l.held, heldStream{s, i})
	case path.Refuse:
		s.Close()
		if !l.c.Smaller() {
			l.event(transport.Event{Kind: transport.EventRefused, Path: i, Err: errHeld})
		}
	}
	l.settle()
}

// attach gives path i its stream. mu is held.
func (l *Link) attach(i int, s transport.Stream, counted bool) {
	ln := l.lanes[i]
	if ln == nil {
		ln = newLane(l, i)
		l.lanes[i] = ln
	}
	ln.stream, ln.broken, ln.full, ln.called, ln.counted = s, false, false, false, counted
	l.t.wg.Add(2)
	go ln.reader(s)
	go ln.writer(s)
}

// dial makes one attempt to connect path i.
func (l *Link) dial(i, attempt int) {
	defer l.t.wg.Done()
	select {
	case <-l.t.started:
	case <-l.t.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(l.t.ctx, l.t.cfg.DialTimeout)
	defer cancel()
	s, err := l.t.cfg.Network.Dial(ctx, l.local, netip.AddrPortFrom(l.remote, l.t.cfg.Port), i, attempt)
	l.mu.Lock()
	defer l.mu.Unlock()
	use := l.c.Dialed(time.Now(), i, err == nil)
	switch {
	case use:
		l.attach(i, s, false)
	case err == nil:
		s.Close()
	case !l.closed:
		l.event(transport.Event{Kind: transport.EventDialFailed, Path: i, Err: err})
	}
	l.settle()
}

// settle does what the connection wants done after an event. mu is held; it may
// be given up and taken again in between.
func (l *Link) settle() {
	for {
		for i := range l.c.Paths() {
			l.c.Path(i).Tx.TakeReleases(func(r path.Release) { r.Owner.Released(r.Msgs, r.Bytes) })
		}
		if l.c.Quiet() {
			break
		}
		actions, events := l.c.Take()
		var write uint8
		for _, e := range events {
			l.report(e)
		}
		for _, a := range actions {
			if a.Kind == path.ActWrite {
				write |= 1 << a.Path
				continue
			}
			l.do(a)
		}
		// Last, since writing gives up the lock, and actions is lent until then.
		for i := 0; write != 0; i, write = i+1, write>>1 {
			if ln := l.lanes[i]; write&1 != 0 && ln != nil && ln.idle() {
				ln.write(inlineRounds)
			}
		}
	}
	l.arm()
}

// do carries out one action. mu is held and kept.
func (l *Link) do(a path.Action) {
	ln := l.lanes[a.Path]
	switch a.Kind {
	case path.ActDial:
		l.t.wg.Add(1)
		go l.dial(a.Path, a.Attempt)
	case path.ActHangUp:
		if ln != nil && ln.stream != nil {
			ln.stream.CloseWrite()
		}
	case path.ActAbandon:
		if ln != nil && ln.stream != nil {
			ln.stream.Close()
			ln.goOn()
		}
	case path.ActPromote:
		k := slices.IndexFunc(l.held, func(h heldStream) bool { return h.home == a.From })
		s := l.held[k].Stream
		l.held = slices.Delete(l.held, k, k+1)
		l.attach(a.Path, s, true)
	case path.ActSample:
		if ln != nil && ln.stream != nil {
			ln.sample()
		}
	}
}

// arm sets the timer. mu is held.
func (l *Link) arm() {
	next := l.c.Next()
	if next.IsZero() || !l.armed.IsZero() && !next.Before(l.armed) {
		return
	}
	l.armed = next
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(next), l.tick)
		return
	}
	l.timer.Reset(time.Until(next))
}

func (l *Link) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = time.Time{}
	if l.closed && !l.streaming() {
		return
	}
	l.c.Tick(time.Now())
	l.settle()
}

// streaming says that some path still has a stream. mu is held.
func (l *Link) streaming() bool {
	for _, ln := range l.lanes {
		if ln != nil && ln.stream != nil {
			return true
		}
	}
	return false
}

// report passes an event of the connection on. mu is held.
func (l *Link) report(e path.Event) {
	ev := transport.Event{Path: e.Path, Count: e.Count, Own: e.Own}
	switch e.Kind {
	case path.EventUp:
		ev.Kind = transport.EventUp
	case path.EventDown:
		ev.Kind = transport.EventDown
		if ln := l.lanes[e.Path]; ln != nil {
			ev.Err = ln.why
		}
	case path.EventPeerRestarted:
		ev.Kind = transport.EventPeerRestarted
	case path.EventPeerKnown:
		ev.Kind = transport.EventPeerKnown
	case path.EventPingLimit:
		ev.Kind = transport.EventPingLimit
	case path.EventOddSequence:
		ev.Kind, ev.Err, ev.Harmless = transport.EventProtocol, errOddSequence, true
	}
	l.event(ev)
}

// reserve asks for room for a payload of n bytes.
func (l *Link) reserve(n int) bool { return l.reserver == nil || l.reserver.Reserve(n) }

// unreserve gives it back. mu is not held.
func (l *Link) unreserve(n int) {
	if l.reserver != nil {
		l.reserver.Unreserve(n)
	}
}

func (l *Link) event(e transport.Event) {
	e.At = time.Now()
	l.handler.Event(e)
}

// shut begins the orderly end of the link.
func (l *Link) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, ln := range l.lanes {
		if ln != nil {
			ln.goOn()
		}
	}
	// What was delivered must be acknowledged before the FIN, or an own peer keeps it for ever. The
	// application may close between the delivery of a message and the end of its batch.
	for _, ln := range l.lanes {
		for ln != nil && ln.stream != nil && (ln.batch.Load() || ln.writing) {
			ln.wake.Wait()
		}
	}
	l.c.AckNow(time.Now())
	l.settle()
	l.c.Close(time.Now())
	for _, s := range l.held {
		s.Close()
	}
	l.t.streams.Add(-int64(len(l.held)))
	l.held = nil
	l.settle()
	if !l.streaming() {
		l.stopTimer()
	}
}

// kill ends what the orderly end left over.
func (l *Link) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.lanes {
		if ln != nil && ln.stream != nil {
			ln.stream.Close()
			ln.goOn()
		}
	}
}

func (l *Link) stopTimer() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
