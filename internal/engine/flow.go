package engine

import (
	"sync/atomic"
	"time"
)

// flow is what a socket knows of one connection on which it sends. It lives as
// long as the socket.
type flow struct {
	s *Socket
	c *conn

	// gone: the socket has given up on the peer, and new messages are refused
	// until it comes back. It changes under peer.mu.
	gone atomic.Bool

	lost int // guarded by sendHalf.mu: messages cancelled by giving up and not told to Flush
}

// SetGiveUp sets for how long a peer may make no progress with what is queued for
// it before the socket gives up on it; 0 means for ever.
func (s *Socket) SetGiveUp(d time.Duration) error {
	if d < 0 {
		return &detail{ErrInvalid, "a time to give up of %d ns is less than %d", int(d), 0}
	}
	if s.closed.Load() {
		return ErrClosed
	}
	s.snd.mu.Lock()
	s.giveUp.Store(int64(d))
	flows := s.flows()
	s.snd.mu.Unlock()
	for _, f := range flows {
		f.c.enlist(f)
	}
	return nil
}

// patience is the time after which the socket gives up; 0 means never.
func (s *Socket) patience() time.Duration { return time.Duration(s.giveUp.Load()) }

// flows returns the socket's flows; snd.mu is held.
func (s *Socket) flows() []*flow {
	fs := make([]*flow, 0, len(s.snd.used))
	for _, f := range s.snd.used {
		fs = append(fs, f)
	}
	return fs
}

// cancelLost is the consequence of gone, which was set before: what the socket
// has queued for the peer is cancelled, and its calls that wait look again. It
// returns how many messages that are, without those of which the caller tells
// itself. No lock may be held.
func (f *flow) cancelLost(told int) (msgs int) {
	s := f.s
	all, bytes := f.c.link.Cancel(s, 0, true)
	msgs = max(all-told, 0)
	s.snd.mu.Lock()
	f.lost += msgs
	s.snd.lost += msgs
	s.snd.take(all, bytes)
	s.snd.room.wakeAll()
	s.snd.mu.Unlock()
	f.c.peer.cong.wakeSocket(s)
	return msgs
}

// refusal is the error of a message to a peer that is gone.
func (f *flow) refusal() error { return &GoneError{Peer: f.c.remote, Limit: f.s.patience()} }

// tellLost is what Flush says of peers that the socket has given up on: the one
// with the smallest address of those of which messages were cancelled since it was
// last asked and, with gone, those that are gone.
func (s *Socket) tellLost(gone bool) error {
	h := &s.snd
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == 0 && !(gone && s.gone.Load() > 0) {
		return nil
	}
	var first *flow
	for _, f := range h.used {
		if (f.lost > 0 || gone && f.gone.Load()) && (first == nil || f.c.remote.Less(first.c.remote)) {
			first = f
		}
	}
	if first == nil {
		return nil // it came back at this moment
	}
	err := &GoneError{Peer: first.c.remote, Messages: h.lost, Limit: s.patience()}
	for _, f := range h.used {
		f.lost = 0
	}
	h.lost = 0
	return err
}
