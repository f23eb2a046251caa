package tcp

import (
	"errors"
	"fmt"
	"io"
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
)

var (
	errOddSequence = errors.New("message with an old number that is not marked as retransmitted")
	errPayloadLen  = errors.New("message longer than the limit")
	errChecksum    = errors.New("header checksum is wrong: the stream is out of step")
)

// reading is the state of one reader. It belongs to its goroutine.
type reading struct {
	ln     *lane
	stream transport.Stream
	rx     *path.Receiver
	buf    *buffer.Buffer // nil while there is nothing to hold
	r, w   int            // unparsed bytes are buf.B[r:w]

	large *buffer.Buffer // the large payload being read
	head  wire.Header    // of it
	got   int            // bytes of it

	vec [2][]byte

	heard    bool   // the first frame was reported
	ack      uint64 // largest h_ack of the batch
	numbered bool   // the batch had numbered frames
	soon     bool   // one of them wants to be acknowledged at once
	full     bool   // the node has no room for more of this peer's messages
	err      error  // protocol error: the end of the stream
}

// Buffers says where the next bytes go.
func (rd *reading) Buffers() [][]byte {
	if rd.buf == nil {
		rd.buf = buffer.Get(readBuffer)
		rd.r, rd.w = 0, 0
	}
	if rd.r > 0 {
		rd.w = copy(rd.buf.B, rd.buf.B[rd.r:rd.w])
		rd.r = 0
	}
	if rd.large != nil {
		rd.vec[0], rd.vec[1] = rd.large.B[rd.got:rd.head.Len], rd.buf.B[rd.w:]
		return rd.vec[:]
	}
	rd.vec[0] = rd.buf.B[rd.w:]
	return rd.vec[:1]
}

// Idle gives the buffer back while the stream waits.
func (rd *reading) Idle() {
	if rd.buf != nil && rd.r == rd.w {
		rd.buf.Release()
		rd.buf = nil
	}
}

// reader reads the stream to its end.
func (ln *lane) reader(stream transport.Stream) {
	defer ln.l.t.wg.Done()
	rd := &reading{ln: ln, stream: stream}
	ln.l.mu.Lock()
	rd.rx = &ln.l.c.Path(ln.i).Rx
	ln.l.mu.Unlock()
	err := rd.run()
	if rd.buf != nil {
		rd.buf.Release()
	}
	if rd.large != nil {
		rd.large.Release() // a message that was cut off comes again
	}
	ln.finish(stream, err)
}

func (rd *reading) run() error {
	for {
		n, err := rd.stream.Read(rd)
		rd.filled(n)
		rd.parse()
		rd.endBatch()
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

// wait pauses until the node has room again. It returns false when the transport is closed.
func (rd *reading) wait() bool {
	rd.full = false
	ln := rd.ln
	ln.l.mu.Lock()
	ln.paused = true
	closed := ln.l.closed
	ln.l.mu.Unlock()
	if !closed {
		<-ln.resume
	}
	ln.l.mu.Lock()
	ln.paused = false
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
		if rd.got == int(rd.head.Len) {
			b, h := rd.large, rd.head
			rd.large = nil
			// Noted again: batches may have ended since the header was read.
			rd.soon = rd.soon || h.Flags&wire.FlagAckRequired != 0
			rd.deliver(transport.Inbound{SPort: h.SPort, DPort: h.DPort, Payload: b.B[:h.Len], Buf: b,
				Seq: h.Seq, Retransmitted: h.Flags&wire.FlagRetransmitted != 0})
		}
	}
	rd.w += n
}

// parse processes the complete frames in the buffer.
func (rd *reading) parse() {
	if rd.buf == nil {
		return
	}
	for rd.err == nil && rd.large == nil && rd.w-rd.r >= wire.HeaderLen {
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
		rd.r += wire.HeaderLen
		if size >= largePayload && path.Classify(v) == path.ClassData {
			rd.begin(v, rest)
			continue
		}
		if size > len(rest) {
			rd.err = fmt.Errorf("%w: a control message of %d bytes", errPayloadLen, size)
			return
		}
		rd.r += size
		rd.frame(v, rest[:size])
	}
}

// begin starts a message with a large payload: what is here of it is copied, the
// rest will be read in place. Duplicates are not kept, but must be read as well.
func (rd *reading) begin(v wire.HeaderView, rest []byte) {
	rd.head = v.Header()
	rd.large = buffer.Get(int(rd.head.Len))
	rd.got = copy(rd.large.B[:rd.head.Len], rest)
	rd.r += rd.got
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
	if !rd.ln.l.handler.Deliver(m) {
		rd.full = true
	}
}

// endBatch tells the connection what the frames since the last call meant for acknowledgements.
func (rd *reading) endBatch() {
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
	ln.sample()
	stream.Close()
	ln.stream = nil
	ln.paused = false
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
