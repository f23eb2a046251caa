package tcp

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/path"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// The way of a frame on a path:
//
//  1. reader reads what the stream has, many frames at once, into a pooled buffer that
//     it holds only while there is something in it. The rest of a large
//     payload is read straight into the buffer in which the socket will keep it.
//  2. frame tells messages from maps, acknowledgements, pings and handshake messages;
//     messages pass the duplicate filter and go to the engine.
//  3. endBatch tells the connection once per read what was delivered and acknowledged.
//  4. At the end of the stream everything that had arrived is processed; then finish
//     takes the last acknowledgement from TCP, closes the stream and reports its end.

const (
	readBuffer = 64 << 10
	// largePayload: from this size on a payload gets its own buffer.
	largePayload = 16 << 10
	// firstStep is the largest such buffer that a header alone brings about, growth by what factor it grows
	// when it is full: whoever wants us to hold a megabyte must have sent an eighth of it, or as much as
	// that in one message before.
	firstStep = 128 << 10
	growth    = 8
)

var (
	errOddSequence = errors.New("message with an old number that is not marked as retransmitted")
	errPayloadLen  = errors.New("message longer than the limit")
	errChecksum    = errors.New("header checksum is wrong: the stream is out of step")
)

// lentMax is how many small messages are delivered together at most.
const lentMax = 64

var lents = sync.Pool{New: func() any { return new([lentMax]transport.Inbound) }}

// reading is the state of one reader. It belongs to its goroutine.
type reading struct {
	ln     *lane
	stream transport.Stream
	rx     *path.Receiver
	buf    *buffer.Buffer // nil while there is nothing to hold
	r, w   int            // unparsed bytes are buf.B[r:w]

	large  *buffer.Buffer // the large payload being read, or the beginning of it
	head   wire.Header    // of it
	got    int            // bytes of it
	proven int            // largest payload that arrived completely

	vec [2][]byte

	many  transport.BatchHandler      // nil when the handler takes one at a time
	lent  *[lentMax]transport.Inbound // small messages to be delivered together; nil when there are none
	lents int

	heard    bool   // the first frame was reported
	ack      uint64 // largest h_ack of the batch
	numbered bool   // the batch had numbered frames
	soon     bool   // one of them wants to be acknowledged at once
	full     bool   // the node has no room for more of this peer's messages
	refused  bool   // nor for the large one that is next in buf
	err      error  // protocol error: the end of the stream
}

// Buffers says where the next bytes go.
func (rd *reading) Buffers() [][]byte {
	switch {
	case rd.buf == nil:
		rd.buf = buffer.Get(readBuffer)
		rd.r, rd.w = 0, 0
	case len(rd.buf.B) < readBuffer:
		rd.move(readBuffer)
	case rd.r > 0:
		rd.w = copy(rd.buf.B, rd.buf.B[rd.r:rd.w])
		rd.r = 0
	}
	if rd.large != nil {
		if len(rd.large.B) < int(rd.head.Len) {
			rd.vec[0] = rd.large.B[rd.got:]
			return rd.vec[:1]
		}
		rd.vec[0], rd.vec[1] = rd.large.B[rd.got:rd.head.Len], rd.buf.B[rd.w:]
		return rd.vec[:]
	}
	rd.vec[0] = rd.buf.B[rd.w:]
	return rd.vec[:1]
}

// Idle gives the buffer back while the stream waits. The beginning of a frame is kept in one of its size,
// so that half a header does not cost a whole read buffer.
func (rd *reading) Idle() {
	switch {
	case rd.buf == nil:
	case rd.r == rd.w:
		rd.buf.Release()
		rd.buf = nil
	case len(rd.buf.B) == readBuffer:
		rd.move(rd.w - rd.r)
	}
}

// move puts what is unparsed into a buffer of size bytes.
func (rd *reading) move(size int) {
	b := buffer.Get(size)
	rd.w = copy(b.B, rd.buf.B[rd.r:rd.w])
	rd.r = 0
	rd.buf.Release()
	rd.buf = b
}

// reader reads the stream to its end.
func (ln *lane) reader(stream transport.Stream) {
	defer ln.l.t.wg.Done()
	rd := &reading{ln: ln, stream: stream}
	rd.many, _ = ln.l.handler.(transport.BatchHandler)
	ln.l.mu.Lock()
	rd.rx = &ln.l.c.Path(ln.i).Rx
	ln.l.mu.Unlock()
	err := rd.run()
	if rd.buf != nil {
		rd.buf.Release()
	}
	if rd.large != nil {
		rd.large.Release() // a message that was cut off comes again
		ln.l.unreserve(int(rd.head.Len))
	}
	ln.finish(stream, err)
}

func (rd *reading) run() error {
	for {
		n, err := rd.stream.Read(rd)
		rd.ln.batch.Store(true)
		rd.filled(n)
		rd.take()
		for rd.refused && rd.err == nil {
			if !rd.wait() {
				return errClosed
			}
			rd.ln.batch.Store(true)
			rd.take()
		}
		if rd.err != nil {
			return rd.err
		}
		if err != nil {
			if err == io.EOF && (rd.large != nil || rd.r != rd.w) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if rd.full && !rd.wait() {
			return errClosed
		}
	}
}

// take processes what is in the buffer, as one batch.
func (rd *reading) take() {
	rd.refused = false
	rd.parse()
	rd.endBatch()
	rd.ln.endOfBatch()
}

// wait pauses until the node has room again. It returns false when the transport is closed.
func (rd *reading) wait() bool {
	rd.full = false
	ln := rd.ln
	ln.l.mu.Lock()
	ln.l.c.Paused(ln.i, true)
	closed := ln.l.closed
	ln.l.mu.Unlock()
	if !closed {
		<-ln.resume
	}
	ln.l.mu.Lock()
	ln.l.c.Paused(ln.i, false)
	closed = ln.l.closed
	ln.l.mu.Unlock()
	return !closed
}

// filled accounts n bytes that were read.
func (rd *reading) filled(n int) {
	if rd.large != nil {
		k := min(n, int(rd.head.Len)-rd.got)
		rd.got += k
		n -= k
		switch rd.got {
		case int(rd.head.Len):
			b, h := rd.large, rd.head
			rd.large = nil
			rd.proven = max(rd.proven, rd.got)
			// Noted again: batches may have ended since the header was read.
			rd.soon = rd.soon || h.Flags&wire.FlagAckRequired != 0
			rd.deliver(transport.Inbound{SPort: h.SPort, DPort: h.DPort, Payload: b.B[:h.Len], Buf: b,
				Seq: h.Seq, Retransmitted: h.Flags&wire.FlagRetransmitted != 0, Reserved: true})
		case len(rd.large.B):
			b := rd.large
			rd.large = buffer.Get(min(int(rd.head.Len), growth*rd.got))
			copy(rd.large.B, b.B)
			b.Release()
		}
	}
	rd.w += n
}

// parse processes the complete frames in the buffer.
func (rd *reading) parse() {
	if rd.buf == nil {
		return
	}
	for rd.err == nil && rd.large == nil && !rd.refused && rd.w-rd.r >= wire.HeaderLen {
		v := wire.HeaderView(rd.buf.B[rd.r : rd.r+wire.HeaderLen])
		size := int(v.Len())
		if size < 0 || size > rd.ln.l.t.cfg.MaxMessage && !(v.Flags() == wire.FlagCongBitmap && size == wire.MapLen) {
			rd.err = fmt.Errorf("%w: %d bytes, limit %d", errPayloadLen, v.Len(), rd.ln.l.t.cfg.MaxMessage)
			return
		}
		if rd.rx.Checksummed() && !v.CsumOK() {
			rd.err = errChecksum
			return
		}
		rest := rd.buf.B[rd.r+wire.HeaderLen : rd.w]
		if size > len(rest) && size < largePayload {
			return // the rest will fit behind it
		}
		if size >= largePayload && path.Classify(v) == path.ClassData {
			rd.begin(v, rest)
			continue
		}
		rd.r += wire.HeaderLen
		if size > len(rest) {
			rd.err = fmt.Errorf("%w: a control message of %d bytes", errPayloadLen, size)
			return
		}
		rd.r += size
		rd.frame(v, rest[:size])
	}
}

// begin starts a message with a large payload, if there is room for it: what is here of
// it is copied, the rest will be read in place. Duplicates are not kept, but must be read as well.
func (rd *reading) begin(v wire.HeaderView, rest []byte) {
	if !rd.ln.l.reserve(int(v.Len())) {
		rd.full, rd.refused = true, true
		return
	}
	rd.head = v.Header()
	rd.large = buffer.Get(min(int(rd.head.Len), max(firstStep, rd.proven)))
	rd.got = copy(rd.large.B[:min(int(rd.head.Len), len(rd.large.B))], rest)
	rd.r += wire.HeaderLen + rd.got
	rd.note(v)
	if rd.got == int(rd.head.Len) {
		rd.filled(0)
	}
}

// note takes in what every frame says.
func (rd *reading) note(v wire.HeaderView) {
	if !rd.heard {
		rd.heard = true
		rd.ln.l.mu.Lock()
		rd.ln.l.c.Heard(rd.ln.i)
		rd.ln.l.mu.Unlock()
	}
	rd.ack = max(rd.ack, v.Ack())
	rd.soon = rd.soon || v.Flags()&wire.FlagAckRequired != 0
}

// frame processes one complete frame.
func (rd *reading) frame(v wire.HeaderView, payload []byte) {
	rd.note(v)
	l := rd.ln.l
	switch class := path.Classify(v); class {
	case path.ClassData:
		rd.deliver(transport.Inbound{SPort: v.SPort(), DPort: v.DPort(), Payload: payload,
			Seq: v.Seq(), Retransmitted: v.Flags()&wire.FlagRetransmitted != 0})
	case path.ClassMap:
		l.handler.RemoteMap((*wire.CongMap)(payload))
	case path.ClassAck, path.ClassBadMap:
	default:
		rd.endBatch()
		l.mu.Lock()
		if l.c.Control(time.Now(), rd.ln.i, class, v) == path.Duplicate {
			rd.ln.duplicates.Add(1)
		}
		l.settle()
		l.mu.Unlock()
		rd.ack = max(rd.ack, v.Ack()) // now that we may know what it means
	}
}

// deliver hands a message to the engine unless it is a duplicate.
func (rd *reading) deliver(m transport.Inbound) {
	if rd.ln.l.t.quiet.Load() {
		if m.Buf != nil {
			m.Buf.Release()
			rd.ln.l.unreserve(len(m.Payload))
		}
		return
	}
	rd.numbered = true
	var f wire.Flags
	if m.Retransmitted {
		f = wire.FlagRetransmitted
	}
	verdict := rd.rx.Accept(m.Seq, f)
	if verdict == path.Duplicate {
		rd.ln.duplicates.Add(1)
		if m.Buf != nil {
			m.Buf.Release()
			rd.ln.l.unreserve(len(m.Payload))
		}
		return
	}
	if verdict != path.Accept {
		l := rd.ln.l
		l.mu.Lock()
		l.c.Restarted(rd.ln.i, verdict)
		l.settle()
		l.mu.Unlock()
	}
	if rd.many == nil || m.Buf != nil {
		rd.flush()
		rd.full = !rd.ln.l.handler.Deliver(m) || rd.full
		return
	}
	if rd.lent == nil {
		rd.lent = lents.Get().(*[lentMax]transport.Inbound)
	}
	rd.lent[rd.lents] = m
	if rd.lents++; rd.lents == lentMax {
		rd.flush()
	}
}

// flush delivers the messages that have gathered.
func (rd *reading) flush() {
	if rd.lents == 0 {
		return
	}
	ms := rd.lent[:rd.lents]
	rd.full = !rd.many.DeliverAll(ms) || rd.full
	clear(ms)
	lents.Put(rd.lent)
	rd.lent, rd.lents = nil, 0
}

// endBatch tells the connection what the frames since the last call meant for acknowledgements.
func (rd *reading) endBatch() {
	rd.flush()
	if !rd.numbered && rd.ack == 0 {
		return
	}
	l := rd.ln.l
	l.mu.Lock()
	rd.ln.reads++
	l.c.Batch(time.Now(), rd.ln.i, rd.ack, rd.numbered, rd.soon)
	l.settle()
	l.mu.Unlock()
	rd.ack, rd.numbered, rd.soon = 0, false, false
}

// finish ends the stream: the last word of TCP about what the peer has, then close, then the report.
func (ln *lane) finish(stream transport.Stream, err error) {
	l := ln.l
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.broken = true // nobody begins another write
	for ln.writing {
		ln.wake.Wait()
	}
	if errors.Is(err, errPayloadLen) || errors.Is(err, errChecksum) {
		l.event(transport.Event{Kind: transport.EventProtocol, Path: ln.i, Err: err})
	}
	ln.why = err
	l.c.Ending(ln.i)
	ln.sample()
	stream.Close()
	ln.stream = nil
	if ln.counted {
		l.t.streams.Add(-1)
	}
	ln.wake.Broadcast()
	l.c.Ended(time.Now(), ln.i)
	l.settle()
	if l.closed && !l.streaming() {
		l.stopTimer()
	}
}

// endOfBatch lets shut go on, which waits for the end of a batch.
func (ln *lane) endOfBatch() {
	ln.batch.Store(false)
	ln.l.mu.Lock()
	defer ln.l.mu.Unlock()
	if ln.l.closed || ln.l.t.quiet.Load() {
		ln.wake.Broadcast()
	}
}
