package simnet

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

type state uint8

const (
	synSent state = iota
	synReceived
	established
	dead // the stack does not know it any more
)

// Stream is one end of a connection. This file has the application's side of it, a
// transport.Stream; segment.go and timers.go have the stack's.
type Stream struct {
	conn          *Conn
	side          Side
	m             *machine
	local, remote netip.AddrPort
	ready         chan struct{} // closed when a dial has ended one way or the other

	// Everything below is guarded by the lock of the Net.
	readable, writable sync.Cond
	in, out            *flow
	listener           *Listener // where it waits while state is synReceived

	state     state
	connected bool  // was established once
	closed    bool  // the application has called Close or Reset
	orphan    bool  // no application will use it again, because of Close or because of Kill
	told      bool  // err was returned by TryWrite: from now on EPIPE
	activeFIN bool  // our FIN went out before the peer's came in
	err       error // why it failed

	suspect    bool          // packets were lost: timers are needed
	resend     alarm         // retransmission or zero window probe
	backoff    int           // doublings of the retransmission timeout
	unanswered int           // of these, since anything was heard
	giveUp     alarm         // user timeout, or the end of an orphan
	progress   time.Duration // when the peer last let us go on
	keep       alarm         // keepalive
	probing    bool          // keepalive is at work
	heard      time.Duration // when the last packet came in
}

var _ transport.Stream = (*Stream)(nil)

// Conn returns the connection whose end this is.
func (e *Stream) Conn() *Conn { return e.conn }

// Side tells which end it is.
func (e *Stream) Side() Side { return e.side }

// LocalAddr implements transport.Stream.
func (e *Stream) LocalAddr() netip.AddrPort { return e.local }

// RemoteAddr implements transport.Stream.
func (e *Stream) RemoteAddr() netip.AddrPort { return e.remote }

func (e *Stream) lock()   { e.conn.net.mu.Lock() }
func (e *Stream) unlock() { e.conn.net.mu.Unlock() }

func (e *Stream) fail(op string, err error) error { return opError(op, e.local, e.remote, err) }

// Read implements transport.Stream. The methods of b are called without locks.
func (e *Stream) Read(b transport.ReadBuffers) (int, error) {
	for {
		bufs := b.Buffers()
		e.lock()
		n, err := e.tryRead(bufs)
		e.unlock()
		if n > 0 || err != nil || size(bufs) == 0 {
			return n, err
		}
		b.Idle()
		e.lock()
		for !e.canRead() {
			e.readable.Wait()
		}
		e.unlock()
	}
}

func (e *Stream) canRead() bool {
	return e.closed || e.err != nil || e.in.finReceived || e.in.received > e.in.read
}

// tryRead returns 0, nil when there is nothing to read.
func (e *Stream) tryRead(bufs [][]byte) (n int, err error) {
	f := e.in
	switch {
	case e.closed:
		return 0, e.fail("read", net.ErrClosed)
	case f.received > f.read && !e.orphan:
		for _, p := range bufs {
			for len(p) > 0 && f.received > f.read {
				k := copy(p, f.data.at(f.read, f.received))
				p, n = p[k:], n+k
				f.read += int64(k)
			}
		}
		f.trim()
		e.openWindow()
		return n, nil
	case f.finReceived && !e.orphan:
		return 0, io.EOF
	case e.err != nil:
		return 0, e.fail("read", e.err)
	}
	return 0, nil
}

// TryWrite implements transport.Stream.
func (e *Stream) TryWrite(bufs [][]byte) (n int, err error) {
	e.lock()
	defer e.unlock()
	if err := e.writeErr("write"); err != nil {
		return 0, err
	}
	f := e.out
	room := e.room()
	if room > 0 {
		if total := size(bufs); total > 0 {
			room = e.conn.net.opts.Chaos.shorten(&e.conn.pipes[e.side], min(room, total))
		}
		if f.limit > 0 {
			room = min(room, int64(f.limit))
		}
	}
	idle := !f.outstanding()
	for _, p := range bufs {
		k := min(int64(len(p)), room)
		if k <= 0 {
			continue
		}
		if !f.noReader {
			f.data.append(p[:k])
		}
		f.written += k
		room -= k
		n += int(k)
	}
	if n > 0 {
		if idle {
			e.progress = e.conn.net.clock.now()
		}
		e.output()
	}
	return n, nil
}

func size(bufs [][]byte) (n int64) {
	for _, p := range bufs {
		n += int64(len(p))
	}
	return n
}

// room is the space in the send buffer, which holds what is not acknowledged.
func (e *Stream) room() int64 {
	return max(int64(e.conn.net.opts.SendBuffer)-(e.out.written-e.out.una), 0)
}

// writeErr says why nothing can be written: the reason of the failure once, then EPIPE.
func (e *Stream) writeErr(op string) error {
	switch {
	case e.closed:
		return e.fail(op, net.ErrClosed)
	case e.err != nil && !e.told:
		e.told = true
		return e.fail(op, e.err)
	case e.err != nil || e.out.finQueued:
		return e.fail(op, syscall.EPIPE)
	}
	return nil
}

// WaitWrite implements transport.Stream. Like poll on Linux it waits until a third of
// the send buffer is free.
func (e *Stream) WaitWrite() error {
	e.lock()
	defer e.unlock()
	for {
		switch {
		case e.closed:
			return e.fail("write", net.ErrClosed)
		case e.err != nil:
			return e.fail("write", e.err)
		case e.out.finQueued:
			return e.fail("write", syscall.EPIPE)
		case e.canWrite():
			return nil
		}
		e.writable.Wait()
	}
}

func (e *Stream) canWrite() bool {
	return e.out.written == e.out.una || e.room() >= (int64(e.conn.net.opts.SendBuffer)+2)/3
}

// Unacked implements transport.Stream. A FIN is not counted.
func (e *Stream) Unacked() (int, error) {
	e.lock()
	defer e.unlock()
	if e.closed {
		return 0, e.fail("ioctl", net.ErrClosed)
	}
	return int(e.out.written - e.out.una), nil
}

// CloseWrite implements transport.Stream.
func (e *Stream) CloseWrite() error {
	e.lock()
	defer e.unlock()
	switch {
	case e.closed:
		return e.fail("close", net.ErrClosed)
	case e.err != nil:
		return e.fail("close", syscall.ENOTCONN)
	}
	e.finish()
	e.writable.Broadcast()
	return nil
}

// Close implements transport.Stream. The stack goes on to send what was written.
func (e *Stream) Close() error { return e.close(false) }

// Reset implements transport.Stream. The stream is released as by Close.
func (e *Stream) Reset() error { return e.close(true) }

func (e *Stream) close(rst bool) error {
	e.lock()
	defer e.unlock()
	if e.closed {
		return e.fail("close", net.ErrClosed)
	}
	e.closed = true
	e.abandon(rst)
	e.wake()
	return nil
}

func (e *Stream) wake() {
	e.readable.Broadcast()
	e.writable.Broadcast()
}
