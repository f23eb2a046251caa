package path

import (
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/wire"
)

// MapChanged says that the congestion map of the local address changed: it goes out on path 0, or
// on another path that is up when 0 is not.
func (c *Connection) MapChanged() {
	for i, p := range c.paths {
		if p.State == Up {
			p.mapDue = true
			c.act(ActWrite, i)
			return
		}
	}
}

// TakeMapDue says whether a congestion map is to be put into Tx of path i before the next Gather.
func (c *Connection) TakeMapDue(i int) bool {
	p := c.path(i)
	due := p.mapDue && p.State == Up
	p.mapDue = false
	return due
}

// Writable says that path i has something to write now.
func (c *Connection) Writable(now time.Time, i int) bool {
	p := c.path(i)
	return p.State == Up && (p.Tx.Writable() || p.mapDue || c.ackNow(now, p))
}

func (c *Connection) ackNow(now time.Time, p *Path) bool {
	return p.ackOwed && p.mode == ackSeq && !now.Before(p.ackDue)
}

// Gather lends the bytes to be written next on path i; see Sender.Gather.
func (c *Connection) Gather(now time.Time, i int, iov [][]byte, limit int) [][]byte {
	p := c.path(i)
	if p.State != Up {
		return iov[:0]
	}
	var st Stamp
	if p.mode == ackSeq {
		// Not before the peer said on this stream who it is: numbers of its former life mean nothing to it.
		st = Stamp{Ack: p.rxDone, Own: true, Csum: c.peer.Features&wire.FeatureCsum != 0}
	}
	if c.ackNow(now, p) && p.Tx.Unsent() == 0 {
		h := wire.Header{Ack: p.rxDone}
		b := buffer.Get(wire.HeaderLen)
		h.Put(b.B)
		if st.Csum {
			wire.HeaderView(b.B).Seal()
		}
		p.Tx.PutControl(b, wire.HeaderLen)
		p.ackOwed = false
	}
	return p.Tx.Gather(iov, limit, st)
}

// Wrote says how many of the gathered bytes the stream of path i took.
func (c *Connection) Wrote(now time.Time, i, n int) {
	p := c.path(i)
	p.Tx.Wrote(n)
	if p.Tx.said && p.Tx.ack == p.rxDone {
		// It rode on the data. Not before it is on the wire: what was gathered may be cancelled.
		p.ackOwed = false
	}
	if p.heardAck != 0 {
		// The acknowledgement may have come before the write that it is for had returned.
		p.Tx.AckSeq(p.heardAck)
	}
	if p.Tx.Unsent() == 0 {
		p.pongs = 0
	}
	if p.mode == ackTCP && p.Tx.Unacked() > 0 && p.sampleAt.IsZero() {
		c.scheduleSample(now, p, true)
	}
}

// Broken says that a write on path i failed: the stream is to be read to its end.
func (c *Connection) Broken(now time.Time, i int) {
	if p := c.path(i); p.State == Up {
		c.hangUp(now, i)
	}
}

// scheduleSample sets the time of the next question to TCP. progress says that the
// last one brought news.
func (c *Connection) scheduleSample(now time.Time, p *Path, progress bool) {
	switch {
	case p.Tx.Urgent() || !p.checkEnd.IsZero():
		p.sampleIn = sampleUrgent
	case progress:
		p.sampleIn = sampleRelaxed
	default:
		p.sampleIn = min(2*max(p.sampleIn, sampleRelaxed), sampleSlackest)
	}
	p.sampleAt = now.Add(p.sampleIn)
}

// Urge asks for acknowledgements as early as they can be had.
func (c *Connection) Urge(now time.Time) {
	for _, p := range c.paths {
		p.Tx.MarkUrgent()
		if p.mode == ackTCP && p.Tx.Unacked() > 0 {
			c.scheduleSample(now, p, true)
		}
	}
}

// WantsSample says that an owner waits for what TCP may have acknowledged by now.
func (c *Connection) WantsSample(i int) bool {
	p := c.path(i)
	return p.mode == ackTCP && p.Tx.Urgent() && p.Tx.Unacked() > 0
}

// Sampled says that of the first written bytes of the stream of path i, outq were not acknowledged by
// TCP. written must have been read (Tx.Written) before TCP was asked.
func (c *Connection) Sampled(now time.Time, i int, written uint64, outq int) {
	p := c.path(i)
	acked := written - min(written, uint64(max(outq, 0)))
	if !p.checkEnd.IsZero() && p.Tx.ctlDone >= p.checkCtl && acked >= p.Tx.ctlEnd {
		c.alive(now, i)
	}
	before := p.Tx.Unacked()
	if p.mode == ackTCP {
		p.Tx.AckBytes(acked)
	}
	if p.State == Down {
		return
	}
	p.sampleAt = time.Time{}
	if p.mode == ackTCP && p.Tx.Unacked() > 0 || !p.checkEnd.IsZero() {
		c.scheduleSample(now, p, p.Tx.Unacked() != before)
	}
}

// Heard says that a frame arrived on path i: the peer took the stream. It is called by the reader
// for the first frame of each stream.
func (c *Connection) Heard(i int) {
	p := c.path(i)
	p.heard, c.met = true, true
	p.attempt, p.backoff = 0, 0
	p.kernelAt = time.Time{}
	if p.mode == ackNone && c.peer.Kind != KindOwn {
		p.kernelAt = p.upAt.Add(kernelAfter)
	}
}

// Control processes a handshake message or a ping. It is called by the reader of path i.
func (c *Connection) Control(now time.Time, i int, class Class, v wire.HeaderView) Verdict {
	p := c.path(i)
	if class == ClassProbe || class == ClassPong {
		c.learn(now, p, v)
	}
	verdict := p.Rx.Accept(v.Seq(), v.Flags())
	switch verdict {
	case Duplicate:
		return verdict
	case AcceptRestart:
		c.restart(p)
		c.doubt(i)
	case AcceptOdd:
		c.events = append(c.events, Event{Kind: EventOddSequence, Path: i})
	}
	p.rxDone = p.Rx.Last()
	c.owe(now, i, false)
	h := wire.Header{SPort: wire.PingPort, DPort: v.SPort()}
	switch class {
	case ClassPing:
		// Sender port 0 gets no answer (RDS spec section 14), nor does who asks faster than it reads.
		if v.SPort() == 0 || c.cfg.DisablePing || c.tooManyPongs(i) {
			return verdict
		}
	case ClassProbe:
		h.Ext = c.cfg.Handshake.Area()
		if c.tooManyPongs(i) {
			return verdict
		}
	case ClassPong:
		c.pong()
		return verdict
	}
	p.pongs++
	c.Counts.Pings++
	c.Counts.Pongs++
	p.Tx.Enqueue(&h, nil, nil, false)
	c.act(ActWrite, i)
	return verdict
}

// tooManyPongs bounds what a flood of pings can make us hold, unsent and unacknowledged.
func (c *Connection) tooManyPongs(i int) bool {
	p := c.path(i)
	if p.pongs < c.cfg.MaxPongs && p.Tx.Unsent()+p.Tx.Unacked() < 64*c.cfg.MaxPongs {
		return false
	}
	c.events = append(c.events, Event{Kind: EventPingLimit, Path: i})
	return true
}

// pong handles the first answer to a probe of this process: the peer knows us now.
func (c *Connection) pong() {
	if c.ponged {
		return
	}
	c.ponged = true
	if c.cfg.Handshake.Generation != 0 && c.peer.Kind == KindKernel {
		// Our GEN_NUM made the kernel number anew; its pong was the last of the old
		// numbers (RDS spec section 11).
		c.epoch++
	}
}

// doubt forgets that the peer was one of ours: it sent what no own node sends, and may never
// introduce itself.
func (c *Connection) doubt(i int) {
	p := c.path(i)
	if c.peer.Kind == KindOwn && !p.Rx.own {
		c.peer = Peer{}
		p.kernelAt = p.upAt.Add(kernelAfter)
	}
}

// learn takes in what a handshake message says of the peer.
func (c *Connection) learn(now time.Time, p *Path, v wire.HeaderView) {
	peer := peerOf(wire.ParseHandshake((*[wire.ExtLen]byte)(v.Ext())))
	if restarted(&c.peer, &peer) && !p.restarted {
		c.restart(p)
		p.Rx.forget()
	}
	if peer.Generation == 0 {
		peer.Generation = c.peer.Generation
	}
	if peer.NPaths == 0 {
		peer.NPaths = max(c.peer.NPaths, 1)
	}
	known := c.peer.Kind == peer.Kind
	c.peer = peer
	for _, q := range c.paths {
		if q == p || q.mode == ackNone {
			c.setMode(now, q)
		}
	}
	p.Rx.own = peer.Kind == KindOwn
	p.Rx.csum = p.Rx.own && peer.Features&wire.FeatureCsum != 0
	if !known {
		c.events = append(c.events, Event{Kind: EventPeerKnown, Own: peer.Kind == KindOwn})
	}
}

func (c *Connection) setMode(now time.Time, p *Path) {
	p.kernelAt = time.Time{}
	if c.peer.Kind == KindOwn {
		p.mode = ackSeq
		return
	}
	p.mode = ackTCP
	if p.sampleAt.IsZero() {
		p.sampleAt = now
	}
}

// restart handles a new life of the peer, seen by the reader of p: its numbers start anew, on all paths.
// The filter of p is the reader's affair.
func (c *Connection) restart(p *Path) {
	if p.restarted {
		return // one stream, one life
	}
	p.restarted = true
	c.epoch++
	p.Rx.epoch = c.epoch
	again := 0
	for _, q := range c.paths {
		again += q.Tx.Again()
		q.rxDone = 0
	}
	c.events = append(c.events, Event{Kind: EventPeerRestarted, Count: again})
}

// Restarted says that the filter of path i accepted a number that shows a restart of the peer, or (odd) one that no peer should send.
func (c *Connection) Restarted(i int, verdict Verdict) {
	switch verdict {
	case AcceptRestart:
		c.restart(c.path(i))
		c.doubt(i)
	case AcceptOdd:
		c.events = append(c.events, Event{Kind: EventOddSequence, Path: i})
	}
}

// Batch ends a batch of frames read from path i: everything up to the filter's last
// number is delivered; ack is the largest h_ack seen; numbered says that there were numbered frames,
// soon that one of them asked for an acknowledgement at once. It is called by the reader.
func (c *Connection) Batch(now time.Time, i int, ack uint64, numbered, soon bool) {
	p := c.path(i)
	if ack != 0 && p.mode == ackSeq {
		p.heardAck = max(p.heardAck, ack)
		p.Tx.AckSeq(ack)
	}
	p.rxDone = p.Rx.Last()
	c.syncEpoch(p)
	if numbered {
		c.owe(now, i, soon)
	}
}

// owe notes that the peer is to be told what was delivered on path i.
func (c *Connection) owe(now time.Time, i int, soon bool) {
	p := c.path(i)
	if p.mode != ackSeq && c.peer.Kind != KindOwn {
		return
	}
	if !p.ackOwed {
		p.ackOwed, p.ackTimer = true, true
		p.ackDue = now.Add(c.cfg.MaxAckDelay)
	}
	if soon && p.ackTimer {
		p.ackDue, p.ackTimer = now, false
		c.act(ActWrite, i)
	}
}

// AckNow makes the acknowledgements that are owed due now.
func (c *Connection) AckNow(now time.Time) {
	for i, p := range c.paths {
		if p.ackOwed && p.State == Up {
			p.ackDue, p.ackTimer = now, false
			c.act(ActWrite, i)
		}
	}
}

// Tick lets time pass.
func (c *Connection) Tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	for i, p := range c.paths {
		if due(p.retryAt) {
			p.retryAt = time.Time{}
			if c.smaller || p.Tx.Wanted() {
				c.dial(now, i)
			}
		}
		if due(p.kernelAt) {
			c.unnamed(now, i)
		}
		if due(p.checkEnd) {
			// The old stream did not answer: its successor may have the path once it is drained.
			c.hangUp(now, i)
		}
		if due(p.drainEnd) {
			p.drainEnd = now.Add(DrainLimit)
			// What a paused reader has not read may have been acknowledged to a kernel by our TCP: keep it.
			// An own peer sends it again.
			if !p.paused || p.mode == ackSeq {
				c.act(ActAbandon, i)
			}
		}
		if due(p.sampleAt) {
			p.sampleAt = time.Time{}
			c.act(ActSample, i)
		}
		if p.ackTimer && c.ackNow(now, p) {
			p.ackTimer = false
			c.act(ActWrite, i)
		}
	}
}

// unnamed decides about a stream on which the peer has not said in time what it is.
func (c *Connection) unnamed(now time.Time, i int) {
	p := c.path(i)
	p.kernelAt = time.Time{}
	switch {
	case p.mode != ackNone:
	case p.paused:
		// We do not read: its probe may lie there.
		p.kernelAt = now.Add(kernelAfter)
	case p.heard || c.peer.Kind == KindKernel:
		p.mode = ackTCP
		p.sampleAt = now
	case p.State == Up && i == 0:
		// Not a byte: a process that hangs, or a stream that a kernel holds (defect D27). What its
		// TCP acknowledges nobody may ever read: try another one.
		c.hangUp(now, i)
	}
}

// Paused says that the reader of path i waits for room in the node, or reads on.
func (c *Connection) Paused(i int, paused bool) { c.path(i).paused = paused }

// Next returns when Tick must be called next; zero: not before another event.
func (c *Connection) Next() time.Time {
	var next time.Time
	early := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, p := range c.paths {
		early(p.retryAt)
		early(p.kernelAt)
		early(p.checkEnd)
		early(p.drainEnd)
		early(p.sampleAt)
		if p.ackTimer && p.ackOwed && p.mode == ackSeq && p.State == Up {
			early(p.ackDue)
		}
	}
	return next
}
