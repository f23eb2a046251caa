package fault

import (
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// Stream is a transport.Stream that fails. Its locks come before those of the Network
// and of the real stream; none is held during a wait.
type Stream struct {
	transport.Stream // the real one
	net              *Network
	id               uint64
	dialled          bool
	path             int
	done             chan struct{} // closed when broken or closed: ends stalls

	mu       sync.Mutex
	rng      *rand.Rand // guarded by mu
	err      *Error     // guarded by mu; not nil: broken here, the real stream is closed
	unacked  int        // guarded by mu; what the real stream said last, when broken
	finished bool       // guarded by mu; a FIN was injected
	closed   bool       // guarded by mu
	budget   int        // guarded by mu; bytes until a cut; -1 = none ordered
	until    time.Time  // guarded by mu; end of a stall
	frames   framing    // guarded by mu
}

// ID numbers the streams of a Network, from 1.
func (s *Stream) ID() uint64 { return s.id }

// Dialled tells whether this side dialled.
func (s *Stream) Dialled() bool { return s.dialled }

// Path is the path for which it was dialled; 0 when it was accepted.
func (s *Stream) Path() int { return s.path }

// Inner returns the real stream.
func (s *Stream) Inner() transport.Stream { return s.Stream }

// Break resets the stream at once. It returns false when it was broken or closed already.
func (s *Stream) Break() bool {
	s.mu.Lock()
	ok := s.reset(Reset)
	s.mu.Unlock()
	if ok {
		s.net.count(s, Reset)
	}
	return ok
}

// CutAfter lets n more bytes be written and then resets the stream; at once with n <= 0.
func (s *Stream) CutAfter(n int) {
	s.mu.Lock()
	s.budget = max(n, 0)
	cut := s.budget == 0 && s.reset(Cut)
	s.mu.Unlock()
	if cut {
		s.net.count(s, Cut)
	}
}

// Finish ends the direction of writing with a FIN. It returns false when it had ended already.
func (s *Stream) Finish() bool {
	s.mu.Lock()
	ok := s.fin()
	s.mu.Unlock()
	if ok {
		s.net.count(s, FIN)
	}
	return ok
}

// StallFor makes the stream wait for d.
func (s *Stream) StallFor(d time.Duration) {
	s.mu.Lock()
	if until := time.Now().Add(d); until.After(s.until) {
		s.until = until
	}
	s.mu.Unlock()
	s.net.count(s, Stall)
}

// reset breaks the stream. mu is held; the caller counts.
func (s *Stream) reset(k Kind) bool {
	if s.err != nil || s.closed {
		return false
	}
	// The last word of TCP about what the peer has: afterwards the real stream is gone. It may
	// only err to the safe side.
	if n, err := s.Stream.Unacked(); err == nil {
		s.unacked = n
	}
	s.err = &Error{Kind: k, Errno: syscall.ECONNRESET}
	s.Stream.Reset()
	close(s.done)
	s.net.forget(s)
	return true
}

// fin injects a FIN. mu is held; the caller counts.
func (s *Stream) fin() bool {
	if s.err != nil || s.closed || s.finished || s.Stream.CloseWrite() != nil {
		return false
	}
	s.finished = true
	return true
}

// chance draws true with probability p. mu is held.
func (s *Stream) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// stall draws a stall. mu is held.
func (s *Stream) stall(p float64) bool {
	if !s.chance(p) {
		return false
	}
	d := time.Duration(s.rng.Int64N(int64(s.net.opts.MaxStall))) + 1
	if until := time.Now().Add(d); until.After(s.until) {
		s.until = until
	}
	return true
}

// wait waits for the end of a stall, or of the stream.
func (s *Stream) wait() {
	for {
		s.mu.Lock()
		d := time.Until(s.until)
		s.mu.Unlock()
		if d <= 0 {
			return
		}
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-s.done:
			t.Stop()
			return
		}
	}
}

// failure says why nothing can be done; nil when something can. mu is held.
func (s *Stream) failure(op string) error {
	var err error
	switch {
	case s.closed:
		err = net.ErrClosed
	case s.err != nil:
		err = s.err
	default:
		return nil
	}
	return &net.OpError{
		Op: op, Net: "tcp", Err: err,
		Source: net.TCPAddrFromAddrPort(s.LocalAddr()), Addr: net.TCPAddrFromAddrPort(s.RemoteAddr()),
	}
}

// instead returns what is to be said instead of an error of the real stream: that
// it is closed is true only when the application closed it.
func (s *Stream) instead(op string, err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || errors.Is(err, net.ErrClosed) {
		if why := s.failure(op); why != nil {
			return why
		}
	}
	return err
}

// Read implements transport.Stream.
func (s *Stream) Read(b transport.ReadBuffers) (int, error) {
	rates := s.net.Rates()
	s.mu.Lock()
	reset := s.chance(rates.Reset) && s.reset(Reset)
	stalled := !reset && s.stall(rates.Stall)
	s.mu.Unlock()
	switch {
	case reset:
		s.net.count(s, Reset)
	case stalled:
		s.net.count(s, Stall)
	}
	s.wait()
	n, err := s.Stream.Read(b)
	return n, s.instead("read", err)
}

// TryWrite implements transport.Stream.
func (s *Stream) TryWrite(bufs [][]byte) (int, error) {
	rates := s.net.Rates()
	s.mu.Lock()
	n, faults, err := s.tryWrite(bufs, rates)
	s.mu.Unlock()
	for k := range Kind(numKinds) {
		if faults&(1<<k) != 0 {
			s.net.count(s, k)
		}
	}
	return n, err
}

// tryWrite writes with faults and returns which, as bits 1<<Kind. mu is held.
func (s *Stream) tryWrite(bufs [][]byte, rates Rates) (n int, faults uint, err error) {
	if err := s.failure("write"); err != nil {
		return 0, 0, err
	}
	total := size(bufs)
	if total == 0 {
		return 0, 0, nil
	}
	if s.chance(rates.Reset) && s.reset(Reset) {
		return 0, 1 << Reset, s.failure("write")
	}
	if s.chance(rates.FIN) && s.fin() {
		faults |= 1 << FIN
	}
	if s.finished {
		err := &net.OpError{
			Op: "write", Net: "tcp", Err: &Error{Kind: FIN, Errno: syscall.EPIPE},
			Source: net.TCPAddrFromAddrPort(s.LocalAddr()), Addr: net.TCPAddrFromAddrPort(s.RemoteAddr()),
		}
		return 0, faults, err
	}
	if s.stall(rates.Stall) {
		return 0, 1 << Stall, nil
	}
	if time.Now().Before(s.until) {
		return 0, 0, nil
	}
	if s.budget < 0 && s.chance(rates.Cut) {
		s.budget = s.rng.IntN(total)
	}
	limit := total
	if s.chance(rates.ShortWrite) {
		if limit = min(1+s.rng.IntN(s.net.opts.MaxShort), total); limit < total {
			faults |= 1 << ShortWrite
		}
	}
	if s.budget >= 0 && s.budget <= limit {
		limit = s.budget
	}
	if limit < total {
		bufs = clip(bufs, limit)
	}
	flipped := -1 // offset of the damaged byte
	out := bufs
	if s.chance(rates.Corrupt) {
		out, flipped = s.frames.flip(bufs, s.rng, s.net.opts.CorruptAny)
	}
	if limit > 0 {
		n, err = s.Stream.TryWrite(out)
	}
	s.frames.advance(bufs, n)
	if flipped >= 0 && n > flipped {
		faults |= 1 << Corrupt
	}
	if s.budget >= 0 && err == nil {
		if s.budget -= n; s.budget == 0 && s.reset(Cut) {
			faults |= 1 << Cut
			if n == 0 {
				err = s.failure("write")
			}
		}
	}
	return n, faults, err
}

// WaitWrite implements transport.Stream.
func (s *Stream) WaitWrite() error {
	s.wait()
	s.mu.Lock()
	finished := s.finished && s.err == nil && !s.closed
	s.mu.Unlock()
	if finished {
		return nil // TryWrite says why not
	}
	return s.instead("write", s.Stream.WaitWrite())
}

// Unacked implements transport.Stream.
func (s *Stream) Unacked() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, s.failure("ioctl")
	case s.err != nil:
		return s.unacked, nil
	}
	return s.Stream.Unacked()
}

// CloseWrite implements transport.Stream.
func (s *Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure("close"); err != nil {
		return err
	}
	if s.finished {
		return nil
	}
	return s.Stream.CloseWrite()
}

// Close implements transport.Stream.
func (s *Stream) Close() error { return s.end(transport.Stream.Close) }

// Reset implements transport.Stream. It is the application's, not a fault: see Break.
func (s *Stream) Reset() error { return s.end(transport.Stream.Reset) }

func (s *Stream) end(how func(transport.Stream) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.failure("close")
	}
	s.closed = true
	if s.err != nil {
		return nil // the real stream is closed
	}
	close(s.done)
	s.net.forget(s)
	return how(s.Stream)
}

func size(bufs [][]byte) (n int) {
	for _, p := range bufs {
		n += len(p)
	}
	return n
}

// clip returns the first n bytes of bufs, without changing it.
func clip(bufs [][]byte, n int) [][]byte {
	out := make([][]byte, 0, len(bufs))
	for _, p := range bufs {
		if len(p) >= n {
			return append(out, p[:n])
		}
		out = append(out, p)
		n -= len(p)
	}
	return out
}
