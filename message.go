package rds

import (
	"context"
	"sync"
	"time"

	"github.com/rds-go/rds/internal/engine"
)

// Message is one message for [Socket.RecvMsg] and the batch calls.
type Message struct {
	// Addr is the destination (the zero value: the connected one) or the
	// source. Nothing that was received from a socket has the zero value, so it
	// tells a notification from an empty message.
	Addr Addr
	// Payload is what to send. On receiving it is the buffer to fill; it is cut
	// to the part that was filled. To use the same Message again, give it its
	// whole buffer back.
	Payload []byte
	// Len is the length of the received message, which may be more than
	// Payload holds.
	Len int
	// Truncated says that Payload was too small for the received message. The
	// rest is lost.
	Truncated bool
	// Time is when the received message was queued to the socket, if
	// [Socket.SetTimestamps] is on.
	Time time.Time
	// Retransmitted says that the sender had sent the received message on an
	// earlier connection, maybe only in part.
	Retransmitted bool
	// CongUpdate, if not 0, says that this is no message but a notification of
	// [Socket.SetCongMonitor]: bit p%64 is set if port p of some peer refused
	// this socket and is congested no more.
	CongUpdate uint64
}

func (m *Message) fill(n int, d *engine.Delivery) {
	m.Addr = addrOf(d.From)
	m.CongUpdate = d.CongUpdate
	m.Payload = m.Payload[:n]
	m.Len = d.Len
	m.Truncated = n < d.Len
	m.Time = d.Time
	m.Retransmitted = d.Retransmitted
}

// RecvMsg waits for a message, as [Socket.Recv] does, and fills in m. With
// [Socket.SetCongMonitor] on, it may be a notification.
func (s *Socket) RecvMsg(ctx context.Context, m *Message) error {
	d := engine.Delivery{Notices: true}
	n, err := s.s.Recv(ctx, m.Payload, &d)
	if err != nil {
		return s.fail("recv", Addr{}, err)
	}
	m.fill(n, &d)
	return nil
}

// TryRecvMsg is RecvMsg without waiting: it fails with [ErrAgain] when nothing is
// there.
func (s *Socket) TryRecvMsg(m *Message) error {
	d := engine.Delivery{Notices: true}
	n, err := s.s.TryRecv(m.Payload, &d)
	if err != nil {
		return s.fail("recv", Addr{}, err)
	}
	m.fill(n, &d)
	return nil
}

// SendBatch sends the messages one after the other, each as [Socket.Send] does,
// and returns how many it sent. With an error, the message of that index is the
// one that failed.
func (s *Socket) SendBatch(ctx context.Context, ms []Message) (int, error) {
	for i := range ms {
		if err := s.Send(ctx, ms[i].Addr, ms[i].Payload); err != nil {
			return i, err
		}
	}
	return len(ms), nil
}

// RecvBatch waits for one message, as [Socket.RecvMsg] does, and takes with it
// as many as are there, up to len(ms). It returns how many it filled in.
func (s *Socket) RecvBatch(ctx context.Context, ms []Message) (int, error) {
	if len(ms) == 0 {
		return 0, nil
	}
	if err := s.RecvMsg(ctx, &ms[0]); err != nil {
		return 0, err
	}
	for i := 1; i < len(ms); i++ {
		d := engine.Delivery{Notices: true}
		n, err := s.s.TryRecv(ms[i].Payload, &d)
		if err != nil {
			return i, nil // what was taken counts; the error comes again if it lasts
		}
		ms[i].fill(n, &d)
	}
	return len(ms), nil
}

// Received is a message that was received without being copied. It must be
// released.
type Received struct {
	// Payload is the whole message. It lies in memory of the socket and must
	// not be used after Release.
	Payload []byte
	// From is the source.
	From Addr
	// Time is when the message was queued to the socket, if
	// [Socket.SetTimestamps] is on.
	Time time.Time
	// Retransmitted is as in [Message].
	Retransmitted bool

	held engine.Held
}

var receivedPool = sync.Pool{New: func() any { return new(Received) }}

// Next waits for a message, as [Socket.Recv] does, and lends it to the caller.
// Its bytes count as received for congestion, but for [Config.PeerQueueLimit] and
// [Config.NodeQueueLimit] they are unread until [Received.Release]. The message
// outlives the socket.
func (s *Socket) Next(ctx context.Context) (*Received, error) {
	r := receivedPool.Get().(*Received)
	var d engine.Delivery
	if err := s.s.Next(ctx, &r.held, &d); err != nil {
		receivedPool.Put(r)
		return nil, s.fail("recv", Addr{}, err)
	}
	r.Payload, r.From, r.Time, r.Retransmitted = r.held.Payload(), addrOf(d.From), d.Time, d.Retransmitted
	return r, nil
}

// Release gives the message's memory back. It must be called exactly once, and
// r not be used afterwards.
func (r *Received) Release() {
	r.held.Release()
	*r = Received{}
	receivedPool.Put(r)
}
