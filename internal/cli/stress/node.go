package stress

import (
	"context"

	"github.com/rds-go/rds"
)

// Node is where a side binds its sockets: a node of ours (see Library), or the
// kernel.
type Node interface {
	// Bind binds a socket with these buffers in bytes.
	Bind(at rds.Addr, sendBuffer, recvBuffer int) (Socket, error)
	// Traffic says what happened on the wire until now; all zero if that is not known.
	Traffic() Traffic
}

// Traffic is what a node says about its connections. It does not enter the verdict.
type Traffic struct {
	// Resets is the number of TCP connections lost, Retransmissions that of messages
	// sent again, Filtered that of messages which came twice and were thrown away.
	Resets, Retransmissions, Filtered uint64
}

// Socket is the part of *rds.Socket that a task needs. A task sends and receives at
// the same time, but makes only one call of each kind at once.
type Socket interface {
	// TrySend queues a copy of a message. It never waits: errors match EAGAIN when
	// the send buffer is full, ENOBUFS when the destination is congested.
	TrySend(to rds.Addr, p []byte) error
	// Send is TrySend that waits for room, until ctx ends.
	Send(ctx context.Context, to rds.Addr, p []byte) error
	// Recv waits for a message until ctx ends, and copies what fits into p.
	Recv(ctx context.Context, p []byte) (n int, from rds.Addr, err error)
	// Close ends calls that wait.
	Close() error
}

// Library is a Node of ours.
type Library struct{ Node *rds.Node }

// Bind implements Node.
func (l Library) Bind(at rds.Addr, sendBuffer, recvBuffer int) (Socket, error) {
	s, err := l.Node.Bind(at, rds.WithSendBuffer(sendBuffer), rds.WithRecvBuffer(recvBuffer))
	if err != nil {
		return nil, err // not s: a nil *rds.Socket would be a Socket that is not nil
	}
	return s, nil
}

// Traffic implements Node.
func (l Library) Traffic() (t Traffic) {
	for _, c := range l.Node.Connections() {
		for _, p := range c.Paths {
			t.Resets += p.Resets
			t.Retransmissions += p.Retransmissions
			t.Filtered += p.DroppedDuplicates
		}
	}
	return t
}
