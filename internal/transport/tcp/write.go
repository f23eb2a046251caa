package tcp

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/path"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// The way of a message on a path:
//
//  1. Link.Send puts it into the path's Sender.
//  2. When nobody writes the path and the last send is a while ago, the sender
//     itself writes (lane.write); else the writer does, with all that has gathered.
//  3. lane.write takes the write token, gathers frames under the lock, writes them
//     without it, and reports how much the stream took.
//  4. When the stream is full the writer waits without the token, so that the end
//     of the stream need not wait for it.

const (
	// inlineGap: who sends again so soon after a write is streaming, and better served by the writer.
	inlineGap = 5 * time.Microsecond
	// inlineRounds bounds how long a sender writes on for others.
	inlineRounds = 2
	writerRounds = 16
	// writeLimit bounds the bytes of one write: about what a socket buffer takes.
	writeLimit = 256 << 10
	// writeVecs is the number of pieces of one write.
	writeVecs = 64
)

// vecs are the pieces of a write, lent while it lasts.
var vecs = sync.Pool{New: func() any { return new([writeVecs][]byte) }}

// lane is the runtime of one path: its stream and who writes it. Guarded by Link.mu unless it says otherwise.
type lane struct {
	l         *Link
	i         int
	stream    transport.Stream // nil: down
	wake      sync.Cond        // of Link.mu: the writer waits for work, the reader for the token
	writing   bool             // somebody has the write token
	called    bool             // the writer was called and has not begun
	lastWrite time.Duration    // when the last write ended, since epoch
	full      bool             // the stream takes no more: the writer waits for room
	broken    bool             // a write failed: nothing more is written to this stream
	counted   bool             // the stream counts among the incoming ones
	why       error            // why the last stream ended

	reads, samples, fills uint64 // batches read, questions to TCP, times the stream was full

	resume     chan struct{} // tells a paused reader to go on
	batch      atomic.Bool   // frames were read of which the connection is not told yet
	duplicates atomic.Uint64 // frames that the filter dropped
}

func newLane(l *Link, i int) *lane {
	ln := &lane{l: l, i: i, resume: make(chan struct{}, 1)}
	ln.wake.L = &l.mu
	return ln
}

// idle says that the stream can be written and nobody does.
func (ln *lane) idle() bool {
	return ln.stream != nil && !ln.writing && !ln.full && !ln.broken
}

// write writes what there is, at most rounds times. mu is held, and given up
// during each write; the lane must be idle.
func (ln *lane) write(rounds int) {
	l, c := ln.l, ln.l.c
	ln.writing, ln.called = true, false
	stream := ln.stream
	v := vecs.Get().(*[writeVecs][]byte)
	for ; rounds > 0; rounds-- {
		now := time.Now()
		if !c.Writable(now, ln.i) {
			break
		}
		if c.TakeMapDue(ln.i) {
			ln.putMap()
			now = time.Now()
		}
		iov := c.Gather(now, ln.i, v[:0], writeLimit)
		want := 0
		for _, b := range iov {
			want += len(b)
		}
		if want == 0 {
			break
		}
		l.mu.Unlock()
		n, err := stream.TryWrite(iov)
		l.mu.Lock()
		c.Wrote(now, ln.i, n)
		if err != nil {
			// The reader sees the end of the stream after all that arrived before it.
			ln.broken = true
			c.Broken(time.Now(), ln.i)
			break
		}
		if n < want {
			ln.full = true
			ln.fills++
			break
		}
	}
	clear(v[:])
	vecs.Put(v)
	ln.writing = false
	ln.lastWrite = time.Since(epoch)
	if c.WantsSample(ln.i) && ln.stream == stream && !ln.broken {
		ln.sample()
	}
	// The writer goes on with what is left; a reader at the end waits for the token.
	if ln.full || ln.broken || l.closed || c.Writable(time.Now(), ln.i) {
		ln.wake.Broadcast()
	}
}

// putMap queues the congestion map of the local address. mu is given up meanwhile,
// since the engine has locks of its own.
func (ln *lane) putMap() {
	ln.l.mu.Unlock()
	b := buffer.Get(wire.HeaderLen + wire.MapLen)
	h := wire.Header{Flags: wire.FlagCongBitmap, Len: wire.MapLen}
	h.Put(b.B)
	ln.l.handler.LocalMap((*wire.CongMap)(b.B[wire.HeaderLen:]))
	ln.l.mu.Lock()
	ln.l.c.Path(ln.i).Tx.PutControl(b, wire.HeaderLen+wire.MapLen)
}

// sample asks TCP how much is acknowledged. mu is held.
func (ln *lane) sample() {
	ln.samples++
	written := ln.l.c.Path(ln.i).Tx.Written()
	outq, err := ln.stream.Unacked()
	if err != nil {
		outq = int(written) // nothing can be said
	}
	ln.l.c.Sampled(time.Now(), ln.i, written, outq)
}

// writer writes the stream when nobody else does, until it is replaced.
func (ln *lane) writer(stream transport.Stream) {
	l := ln.l
	defer l.t.wg.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for ln.stream == stream && !ln.full && (!ln.idle() || !l.c.Writable(time.Now(), ln.i)) {
			ln.called = false // there is nothing to do after all, or somebody does it
			ln.wake.Wait()
		}
		if ln.stream != stream {
			return
		}
		if ln.full {
			l.mu.Unlock()
			stream.WaitWrite() // a failure shows at the next write
			l.mu.Lock()
			if ln.stream != stream {
				return
			}
			ln.full = false
			if ln.broken {
				continue
			}
		}
		if ln.idle() {
			ln.write(writerRounds)
			l.settle()
		}
	}
}

// goOn lets a paused reader go on.
func (ln *lane) goOn() {
	select {
	case ln.resume <- struct{}{}:
	default:
	}
}

var _ path.Owner = transport.Owner(nil)
