package stress

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/witness"
)

// task is one socket and what it has to do: make requests to every task of the other
// side, and answer theirs. Two goroutines serve it.
//
// The way of a message:
//  1. receive takes it from the socket, take records it and notes what follows from
//     it: an answer to be given, or the credit for a further request
//  2. pump sends what may be sent, answers first, without waiting
//  3. a message that would have to wait blocks the task's sending: unblock waits for it,
//     with a blocking Send, and pumps on
//
// Receiving never waits for sending, or two sides with congested sockets would wait for
// each other for ever.
type task struct {
	// Immutable.
	self      uint16 // index among the tasks of this side
	sock      Socket
	peers     []rds.Addr // the tasks of the other side
	names     map[rds.Addr]uint16
	layout    layout
	depth     int // requests outstanding to each peer
	readDelay time.Duration

	wake chan struct{} // tells unblock that a message is blocked; room for one

	mu sync.Mutex
	// All below is guarded by mu, except that buf belongs to unblock while blocked is set.
	requesting  bool // requests may be made
	frozen      bool // nothing may be sent
	buf         []byte
	blocked     *outgoing
	credits     ring[uint16]         // a peer's name for each request that may be made to it
	answers     ring[owed]           // at most depth for each peer
	owed        []int                // of these, by peer; not the one that is blocked
	outstanding []ring[askedRequest] // by peer, in the order of asking
	requests    []uint64             // made, by peer
	sent        []uint64             // messages, by peer
	flows       []witness.Flow       // by peer
	damaged     uint64
	strays      uint64
	counts      counts
}

// outgoing is a message in task.buf that waits for room.
type outgoing struct {
	header header
	since  time.Time
}

// owed is an answer to be given.
type owed struct {
	peer    uint16
	request uint64
}

// askedRequest is a request without an answer.
type askedRequest struct {
	request uint64
	at      time.Time
}

func newTask(self int, sock Socket, peers []rds.Addr, o *Options, tag uint32, readDelay time.Duration) *task {
	k := &task{
		self: uint16(self), sock: sock, peers: peers, names: make(map[rds.Addr]uint16, len(peers)),
		layout: newLayout(o, tag), depth: o.Depth, readDelay: readDelay,
		wake: make(chan struct{}, 1), buf: make([]byte, max(o.ReqBytes, o.AckBytes)),
		owed: make([]int, len(peers)), outstanding: make([]ring[askedRequest], len(peers)),
		requests: make([]uint64, len(peers)), sent: make([]uint64, len(peers)), flows: make([]witness.Flow, len(peers)),
	}
	for i, p := range peers {
		k.names[p] = uint16(i)
	}
	for range o.Depth {
		for i := range peers {
			k.credits.push(uint16(i))
		}
	}
	return k
}

// start begins to make requests.
func (k *task) start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requesting = true
	return k.pump()
}

// stop makes no more requests. Answers are still given.
func (k *task) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requesting = false
}

// freeze sends nothing more. What waits for room remains unsent when the context of run ends.
func (k *task) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frozen = true
}

// unanswered is the number of requests that have been made, or wait for room, and have no answer.
func (k *task) unanswered() (n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.outstanding {
		n += uint64(k.outstanding[i].len())
	}
	return n
}

// receive takes messages from the socket until ctx ends.
func (k *task) receive(ctx context.Context) error {
	// One byte more than a message has, so that a longer one is noticed.
	buf := make([]byte, len(k.buf)+1)
	for {
		if k.readDelay > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(k.readDelay):
			}
		}
		n, from, err := k.sock.Recv(ctx, buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("task %d: %w", k.self+1, err)
		}
		if err := k.take(from, buf[:n], time.Now()); err != nil {
			return err
		}
	}
}

// take records a message that arrived and sends what may be sent now.
func (k *task) take(from rds.Addr, m []byte, at time.Time) error {
	peer, known := k.names[from]
	h, v := k.layout.parse(m)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !known || v == foreign:
		k.strays++ // somebody else's, and nothing of the two sides is the worse for it
		return nil
	case v == damaged || h.from != peer || h.to != k.self:
		k.damaged++
		return nil
	}
	k.counts.received(len(m))
	if !k.flows[peer].Take(h.number) {
		return nil
	}
	if h.kind == request {
		// More than the depth would be a fault of the other side; without this check
		// it could make the queue grow for ever.
		if k.owed[peer] == k.depth {
			k.damaged++
			return nil
		}
		k.owed[peer]++
		k.answers.push(owed{peer, h.request})
		return k.pump()
	}
	waiting := &k.outstanding[peer]
	for i := range waiting.len() {
		if waiting.at(i).request == h.request {
			k.counts.answered(at.Sub(waiting.remove(i).at))
			k.credits.push(peer)
			return k.pump()
		}
	}
	k.damaged++ // an answer to a request that was not made, or that had an answer
	return nil
}

// pump sends until nothing is left that may be sent, or a message would have to
// wait. mu is held.
func (k *task) pump() error {
	for k.blocked == nil && !k.frozen {
		h := header{from: k.self}
		switch {
		case k.answers.len() > 0:
			o := k.answers.at(0)
			h.to, h.kind, h.request = o.peer, answer, o.request
		case k.requesting && k.credits.len() > 0:
			h.to, h.kind = *k.credits.at(0), request
			h.request = k.requests[h.to]
		default:
			return nil
		}
		h.number = k.sent[h.to]
		m := k.layout.put(k.buf, h)
		before := time.Now()
		// Before it is sent: what the other side says to it may be quicker than the return of a blocked Send.
		if h.kind == request {
			k.credits.pop()
			k.requests[h.to]++
			k.outstanding[h.to].push(askedRequest{h.request, before})
		} else {
			k.answers.pop()
			k.owed[h.to]--
		}
		switch err := k.sock.TrySend(k.peers[h.to], m); {
		case err == nil:
			k.counts.sending(time.Since(before))
			k.posted(h)
		case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.EAGAIN):
			if errors.Is(err, syscall.ENOBUFS) {
				k.counts.congested++
			} else {
				k.counts.full++
			}
			k.blocked = &outgoing{h, before}
			k.wake <- struct{}{}
		default:
			return fmt.Errorf("task %d: %w", k.self+1, err)
		}
	}
	return nil
}

// posted records that a message is on its way. mu is held.
func (k *task) posted(h header) {
	k.sent[h.to]++
	k.counts.sent(k.layout.size[h.kind])
}

// unblock sends blocked messages until ctx ends.
func (k *task) unblock(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
		if err := k.sendBlocked(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("task %d: %w", k.self+1, err)
		}
	}
}

func (k *task) sendBlocked(ctx context.Context) error {
	k.mu.Lock()
	b := *k.blocked
	k.mu.Unlock()
	if err := k.sock.Send(ctx, k.peers[b.header.to], k.buf[:k.layout.size[b.header.kind]]); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked = nil
	k.counts.waited += time.Since(b.since)
	k.posted(b.header)
	return k.pump()
}

// snapshot returns what the task has counted so far.
func (k *task) snapshot() counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counts
}

// sentTo returns a copy of the numbers of messages sent, by peer.
func (k *task) sentTo() []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]uint64(nil), k.sent...)
}

// arrived says whether all is here of what each peer has sent to this task.
func (k *task) arrived(sent func(peer int) uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.flows {
		if k.flows[i].Received < sent(i) {
			return false
		}
	}
	return true
}

// tally adds up the flows; sent gives the number of messages that a peer has sent to this task.
func (k *task) tally(t *Tally, sent func(peer int) uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.Damaged += k.damaged
	for i := range k.flows {
		t.Add(&k.flows[i], sent(i))
	}
}

// highest takes for sent what is known to have been, for a tally without the other side's numbers.
func (k *task) highest() func(peer int) uint64 {
	return func(peer int) uint64 { return k.flows[peer].Next() }
}

func (k *task) strayed() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.strays
}
