package path

import (
	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/wire"
)

// Sender is the outgoing half of a path. One queue is both the send queue and the
// retransmission store:
//
//	head                 next                tail
//	 |  written, not      | being written,    |
//	 |  acknowledged      | or not yet begun  |
//
// The way of a message: Enqueue copies it to the tail; Gather numbers it and
// lends its bytes for one write; Wrote moves next past it; AckSeq or AckBytes pops
// it from the head; Down moves next back to the head, so that what was
// unacknowledged goes again.
//
// A number is given when a message first goes on the wire, not when it is
// queued. So a probe can be put before what is still unnumbered, and
// cancelled messages leave no gap.
type Sender struct {
	q    ring
	next int    // index of the first entry not completely written
	part uint32 // bytes of the entry at next that are written
	fly  int    // entries lent by the present Gather, from next on

	// What the frames of the present Gather say in h_ack, and how many of its bytes go before the
	// first header that says it; said: one such header was begun to be written.
	ack   uint64
	ackAt int
	said  bool

	seq   uint64 // last number given
	wrote uint64 // bytes written to the present stream
	acked uint64 // of these, acknowledged by the peer's TCP

	fill      *chunk // chunk being filled
	chunkSize int

	ctl     []*buffer.Buffer // control frames (map, ack) to go next, whole or partly written
	ctlLen  []int
	ctlPart int    // bytes of ctl[0] written
	ctlPut  int    // control frames queued so far
	ctlDone int    // of these, completely written or dropped, when one was last written
	ctlEnd  uint64 // stream offset behind the last one written
	ctlFly  int    // control frames lent by the present Gather

	released []Release

	unsent       int // live entries not completely written
	owned        int // live entries of sockets
	urgent       int // live entries whose owner wants them acknowledged early
	urged        int // entries at the head for which somebody waits; see MarkUrgent
	queuedBytes  int // payload bytes of live entries not completely written
	unackedBytes int // payload bytes of written entries

	// Retransmissions counts messages that went on the wire again.
	Retransmissions uint64
	// Acked counts messages that were acknowledged.
	Acked uint64
}

// Release tells what leaves the account of a socket.
type Release struct {
	Owner       Owner
	Msgs, Bytes int
}

// Enqueue copies a message to the end of the queue.
func (s *Sender) Enqueue(h *wire.Header, payload []byte, owner Owner, ackSoon bool) {
	e := s.q.push()
	s.store(e, h, payload)
	e.owner = owner
	if owner != nil {
		s.owned++
	}
	if ackSoon {
		e.flags |= entryAckSoon
		s.urgent++
	}
	s.unsent++
	s.queuedBytes += len(payload)
}

// EnqueueProbe puts a probe before everything that has no number yet: behind the
// retransmissions, whose numbers are lower (RDS spec section 11), and before new messages.
func (s *Sender) EnqueueProbe(h *wire.Header) {
	i := s.next
	for i < s.q.n && (s.q.at(i).seq != 0 || s.q.at(i).n == 0 || i < s.next+s.fly) {
		i++
	}
	e := s.q.insert(i)
	s.store(e, h, nil)
	e.flags = entryProbe
	s.unsent++
}

// HasProbe says that a probe of ours is queued or unacknowledged.
func (s *Sender) HasProbe() bool {
	for i := range s.q.n {
		if e := s.q.at(i); e.n > 0 && e.flags&entryProbe != 0 {
			return true
		}
	}
	return false
}

// store builds the frame of an entry.
func (s *Sender) store(e *entry, h *wire.Header, payload []byte) {
	n := wire.HeaderLen + len(payload)
	c := s.fill
	switch {
	case n >= ownChunk:
		c = &chunk{buf: buffer.Get(n)}
	case c == nil || c.used+n > len(c.buf.B):
		if c != nil {
			s.chunkSize = min(2*s.chunkSize, maxChunk)
			c.drop()
		} else {
			s.chunkSize = minChunk
		}
		c = &chunk{buf: buffer.Get(max(s.chunkSize, n)), live: 1}
		s.fill = c
	}
	*e = entry{chunk: c, off: uint32(c.used), n: uint32(n)}
	c.used += n
	c.live++
	h.Len = uint32(len(payload))
	h.Put(c.buf.B[e.off:])
	copy(c.buf.B[int(e.off)+wire.HeaderLen:], payload)
}

// Wanted says that a socket waits for the acknowledgement of a message. Probes and pongs alone are
// not worth a connection.
func (s *Sender) Wanted() bool { return s.owned > 0 }

// Writable says that Gather would return something.
func (s *Sender) Writable() bool { return s.unsent > 0 || len(s.ctl) > 0 || s.part > 0 }

// Unsent counts the messages that are not completely written.
func (s *Sender) Unsent() int { return s.unsent }

// Unacked counts the messages that are written and not acknowledged.
func (s *Sender) Unacked() int { return s.next }

// Urgent says that an owner waits for the acknowledgement of a message.
func (s *Sender) Urgent() bool { return s.urgent > 0 || s.urged > 0 }

// NextSeq is the number that the next new message will get.
func (s *Sender) NextSeq() uint64 { return s.seq + 1 }

// Bytes returns the payload bytes not yet written, and written but not acknowledged.
func (s *Sender) Bytes() (queued, unacked int) { return s.queuedBytes, s.unackedBytes }

// PutControl queues a control frame (a congestion map, a pure acknowledgement) to
// go at the next message boundary, ahead of all messages. It takes the buffer over.
func (s *Sender) PutControl(b *buffer.Buffer, n int) {
	s.ctl = append(s.ctl, b)
	s.ctlLen = append(s.ctlLen, n)
	s.ctlPut++
}

// Stamp is what every frame says at the moment when it goes on the wire.
type Stamp struct {
	Ack  uint64 // h_ack
	Own  bool   // the peer is one of ours: say ACK_REQUIRED where it is wanted
	Csum bool   // set h_csum
}

// Gather lends the bytes to be written next: at most limit bytes (but at least one frame) in at most
// cap(iov) pieces. They stay untouched until Wrote is called, which must happen exactly once, before
// any other Gather or Down.
func (s *Sender) Gather(iov [][]byte, limit int, st Stamp) [][]byte {
	iov = iov[:0]
	i, start := s.next, limit
	s.ack, s.ackAt, s.said = st.Ack, -1, false
	if s.part > 0 {
		// The rest of a frame comes first: its beginning is on the wire.
		rest := s.q.at(i).frame()[s.part:]
		iov = append(iov, rest)
		limit -= len(rest)
		i++
	}
	skip := s.ctlPart
	for s.ctlFly = 0; s.ctlFly < len(s.ctl) && len(iov) < cap(iov); s.ctlFly++ {
		b := s.ctl[s.ctlFly].B[skip:s.ctlLen[s.ctlFly]]
		iov = append(iov, b)
		limit -= len(b)
		skip = 0
	}
	var last *chunk // chunk of the last piece, while it may be extended
	var lastEnd uint32
	for ; i < s.q.n && limit > 0; i++ {
		e := s.q.at(i)
		if e.n == 0 {
			continue
		}
		extend := last == e.chunk && lastEnd == e.off
		if !extend && len(iov) == cap(iov) {
			break
		}
		if s.ackAt < 0 {
			s.ackAt = start - limit
		}
		s.stamp(e, st)
		if extend {
			k := len(iov) - 1
			iov[k] = iov[k][:len(iov[k])+int(e.n)]
		} else {
			iov = append(iov, e.frame())
		}
		last, lastEnd = e.chunk, e.off+e.n
		limit -= int(e.n)
	}
	s.fly = i - s.next
	return iov
}

// stamp completes the header of a frame that is about to be written.
func (s *Sender) stamp(e *entry, st Stamp) {
	if e.seq == 0 {
		s.seq++
		e.seq = s.seq
	}
	v := wire.HeaderView(e.frame())
	v.SetSeq(e.seq)
	v.SetAck(st.Ack)
	var f wire.Flags
	if e.flags&entryRetransmit != 0 {
		f |= wire.FlagRetransmitted
	}
	if e.flags&entryAckSoon != 0 && st.Own {
		// Only between own nodes: kernels never set it on TCP.
		f |= wire.FlagAckRequired
	}
	v.SetFlags(f)
	if st.Csum {
		v.Seal()
	} else {
		v.SetCsum(0)
	}
}

// Wrote says how many of the gathered bytes the stream took.
func (s *Sender) Wrote(n int) {
	s.said = s.ackAt >= 0 && n > s.ackAt
	ctl := s.ctlFly
	s.fly, s.ctlFly = 0, 0
	s.wrote += uint64(n)
	if s.part > 0 {
		n = s.wroteEntry(n)
	}
	for ; n > 0 && s.part == 0 && ctl > 0; ctl-- {
		rest := s.ctlLen[0] - s.ctlPart
		if n < rest {
			s.ctlPart += n
			return
		}
		n -= rest
		s.popControl()
		s.ctlDone, s.ctlEnd = s.ctlPut-len(s.ctl), s.wrote-uint64(n)
	}
	for n > 0 {
		n = s.wroteEntry(n)
	}
	// Entries cancelled before they were begun take no bytes.
	for s.part == 0 && s.next < s.q.n && s.q.at(s.next).n == 0 {
		s.q.at(s.next).end = s.wrote
		s.next++
	}
	s.popDone()
}

// wroteEntry accounts n written bytes to the entry at next and returns what is left.
func (s *Sender) wroteEntry(n int) int {
	e := s.q.at(s.next)
	rest := int(e.n - s.part)
	if n < rest {
		s.part += uint32(n)
		return 0
	}
	n -= rest
	s.part = 0
	e.end = s.wrote - uint64(n)
	if e.n > 0 {
		s.unsent--
		size := int(e.n) - wire.HeaderLen
		s.queuedBytes -= size
		s.unackedBytes += size
		if e.flags&entryRetransmit != 0 {
			s.Retransmissions++
		}
	}
	s.next++
	return n
}

func (s *Sender) popControl() {
	s.ctl[0].Release()
	s.ctl = append(s.ctl[:0], s.ctl[1:]...)
	s.ctlLen = append(s.ctlLen[:0], s.ctlLen[1:]...)
	s.ctlPart = 0
}

// Written returns the bytes handed to the stream since Up. To be read before the
// stream is asked for its unacknowledged bytes, never after: so what another
// goroutine writes meanwhile can only make the acknowledged part look smaller.
func (s *Sender) Written() uint64 { return s.wrote }

// AckBytes says that the peer's TCP acknowledged the first n bytes of the stream.
func (s *Sender) AckBytes(n uint64) {
	n = min(n, s.wrote)
	if n <= s.acked {
		return
	}
	s.acked = n
	for s.next > 0 && s.q.at(0).end <= n {
		s.popAcked()
	}
	s.settle()
}

// AckSeq says that the peer put everything up to number seq into its sockets' queues.
func (s *Sender) AckSeq(seq uint64) {
	for s.next > 0 && s.q.at(0).seq <= seq {
		s.popAcked()
	}
	s.settle()
}

// popDone pops entries at the head that need no acknowledgement.
func (s *Sender) popDone() {
	for s.next > 0 && s.q.at(0).n == 0 {
		s.pop()
	}
	s.settle()
}

func (s *Sender) popAcked() {
	e := s.q.at(0)
	if e.n > 0 {
		size := int(e.n) - wire.HeaderLen
		s.unackedBytes -= size
		s.Acked++
		s.uncount(e)
		if e.owner != nil {
			s.owned--
			s.release(e.owner, size)
		}
		e.free()
	}
	s.pop()
}

func (s *Sender) pop() {
	s.q.pop()
	s.next--
	if s.urged > 0 {
		s.urged--
	}
}

// uncount takes the entry's wish for an early acknowledgement back.
func (s *Sender) uncount(e *entry) {
	if e.flags&entryAckSoon != 0 {
		e.flags &^= entryAckSoon
		s.urgent--
	}
}

func (s *Sender) release(o Owner, bytes int) {
	if k := len(s.released); k > 0 && s.released[k-1].Owner == o {
		s.released[k-1].Msgs++
		s.released[k-1].Bytes += bytes
		return
	}
	s.released = append(s.released, Release{o, 1, bytes})
}

// TakeReleases calls f for each owner whose messages were acknowledged since the last call.
func (s *Sender) TakeReleases(f func(Release)) {
	for i, r := range s.released {
		f(r)
		s.released[i] = Release{}
	}
	s.released = s.released[:0]
	if cap(s.released) > 64 {
		s.released = nil
	}
}

// settle gives the chunk being filled back when the queue is empty.
func (s *Sender) settle() {
	s.urged = min(s.urged, s.q.n)
	if s.q.n == 0 && s.fill != nil {
		s.fill.drop()
		s.fill = nil
	}
}

// Up starts a new stream.
func (s *Sender) Up() { s.wrote, s.acked, s.ctlEnd = 0, 0, 0 }

// Down says that the stream is gone. Everything unacknowledged goes back to the
// front of the queue in order, and what was begun will carry RETRANSMITTED. It returns how many
// messages of sockets that are. Unacknowledged probes are dropped with dropProbes: the next stream brings a fresh one.
func (s *Sender) Down(dropProbes bool) (again int) {
	for len(s.ctl) > 0 {
		s.popControl()
	}
	for i := range s.q.n {
		e := s.q.at(i)
		begun := i < s.next || i == s.next && s.part > 0
		if e.n == 0 {
			continue
		}
		size := int(e.n) - wire.HeaderLen
		if i < s.next {
			s.unackedBytes -= size
			s.queuedBytes += size
			s.unsent++
		}
		if e.flags&entryCancelled != 0 || dropProbes && e.flags&entryProbe != 0 {
			s.queuedBytes -= size
			s.unsent--
			s.uncount(e)
			e.free()
			continue
		}
		if begun {
			e.flags |= entryRetransmit
			if e.owner != nil {
				again++
			}
		}
	}
	s.next, s.part = 0, 0
	s.q.filter(func(e *entry) bool { return e.n > 0 })
	s.settle()
	return again
}

// Again counts the messages of sockets that were begun on an earlier stream and are not acknowledged.
func (s *Sender) Again() (n int) {
	for i := range s.q.n {
		if e := s.q.at(i); e.owner != nil && e.flags&entryRetransmit != 0 {
			n++
		}
	}
	return n
}

// Cancel takes the live messages of owner to dport (any port with all) out of the accounts.
func (s *Sender) Cancel(owner Owner, dport uint16, all bool) (msgs, bytes int) {
	for i := range s.q.n {
		e := s.q.at(i)
		if e.owner != owner || e.n == 0 || !all && wire.HeaderView(e.frame()).DPort() != dport {
			continue
		}
		size := int(e.n) - wire.HeaderLen
		msgs++
		bytes += size
		s.uncount(e)
		e.owner = nil
		s.owned--
		e.flags |= entryCancelled
		if i >= s.next+s.fly && !(i == s.next && s.part > 0) {
			// Not begun, not lent: its bytes can go at once.
			s.unsent--
			s.queuedBytes -= size
			e.free()
		}
	}
	if s.fly == 0 && s.part == 0 {
		s.dropDead()
	}
	return msgs, bytes
}

// dropDead removes entries without bytes from the unwritten part of the queue, so that a socket
// that queues and cancels for ever towards a dead peer does not make it grow.
func (s *Sender) dropDead() {
	i := 0
	s.q.filter(func(e *entry) bool {
		written := i < s.next
		i++
		return written || e.n > 0
	})
	s.popDone()
}

// Pending counts the live messages of owner to dport (any port with all).
func (s *Sender) Pending(owner Owner, dport uint16, all bool) (msgs, bytes int) {
	for i := range s.q.n {
		e := s.q.at(i)
		if e.n > 0 && e.owner == owner && (all || wire.HeaderView(e.frame()).DPort() == dport) {
			msgs++
			bytes += int(e.n) - wire.HeaderLen
		}
	}
	return msgs, bytes
}

// MarkUrgent makes everything that is queued and unacknowledged now count as messages whose owner waits.
func (s *Sender) MarkUrgent() { s.urged = s.q.n }
