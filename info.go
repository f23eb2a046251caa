package rds

import (
	"net/netip"

	"github.com/rds-go/rds/internal/engine"
)

// Counter is one counter of a node. It only grows.
type Counter struct {
	// Name is the kernel's name for it (RDS spec section 16), or ours.
	Name string
	// Value counts from the start of the node.
	Value uint64
}

// ConnectionInfo is a snapshot of one connection, that is of all that goes
// between one local and one remote address.
type ConnectionInfo struct {
	// Local and Remote are the two addresses.
	Local, Remote netip.Addr
	// Transport is "tcp" or "loopback".
	Transport string
	// Known says that the peer has introduced itself; Own then says whether it
	// runs this implementation or is a kernel.
	Known, Own bool
	// Paths are the connection's paths (TCP connections).
	Paths []PathInfo
	// UnreadBytes is what the peer's messages occupy in receive queues,
	// counting 128 bytes for each message besides its payload. It is counted
	// by remote address: connections to the same peer show the same number.
	UnreadBytes int64
	// Stopped says that the peer is not read for now, because a limit is
	// reached.
	Stopped bool
	// Stalled says that there is something for the peer and it has made no
	// progress with it for Config.StallTimeout.
	Stalled bool
	// CongestedPorts is the number of the peer's ports that are congested.
	CongestedPorts int
}

// PathInfo is a snapshot of one path.
type PathInfo struct {
	// State is the state's name in the kernel's words, such as "UP".
	State string
	// LocalPort and RemotePort are the TCP ports, 0 when there is no TCP
	// connection.
	LocalPort, RemotePort uint16
	// NextTx and NextRx are the numbers of the next messages out and in.
	NextTx, NextRx uint64
	// Queued messages are not written yet, Unacked ones written but not
	// acknowledged; QueuedBytes and UnackedBytes are their payload bytes.
	Queued, Unacked int
	// Acked is how many messages were acknowledged, and StreamAcked how many
	// bytes of the present TCP connection the peer's TCP acknowledged.
	Acked, StreamAcked        uint64
	QueuedBytes, UnackedBytes int
	// Resets is the number of TCP connections lost, Retransmissions that of
	// messages sent again, DroppedDuplicates that of repeated messages thrown
	// away.
	Resets, Retransmissions, DroppedDuplicates uint64
}

// SocketInfo is a snapshot of one socket.
type SocketInfo struct {
	// Local is its address, Peer what it is connected to (or the zero value).
	Local, Peer Addr
	// SendBuffer is S and RecvBuffer is R, in bytes.
	SendBuffer, RecvBuffer int
	// SendBytes and SendMessages are queued or unacknowledged.
	SendBytes, SendMessages int
	// RecvBytes and RecvMessages are unread.
	RecvBytes, RecvMessages int
	// Congested says that the socket's port is congested.
	Congested bool
}

func connectionInfo(c engine.ConnInfo) ConnectionInfo {
	ci := ConnectionInfo{
		Local: c.Local, Remote: c.Remote, Transport: c.Transport, Known: c.Known, Own: c.Own,
		UnreadBytes: c.UnreadBytes, Stopped: c.Stopped, Stalled: c.Stalled, CongestedPorts: c.CongestedPorts,
		Paths: make([]PathInfo, len(c.Paths)),
	}
	for i, p := range c.Paths {
		ci.Paths[i] = PathInfo(p)
	}
	return ci
}

func socketInfo(s engine.SocketInfo) SocketInfo {
	return SocketInfo{
		Local: addrOf(s.Local), Peer: addrOf(s.Peer), SendBuffer: s.SendBuffer, RecvBuffer: s.RecvBuffer,
		SendBytes: s.SendBytes, SendMessages: s.SendMessages, RecvBytes: s.RecvBytes, RecvMessages: s.RecvMessages,
		Congested: s.Congested,
	}
}
