// Package transport is the seam between the engine and whatever carries its
// messages to another node.
//
// Above the seam are sockets, ports, accounting and congestion (internal/engine);
// below it are the ways messages travel: loop (same node), tcp (the kernel's
// RDS/TCP wire). A Link carries the messages of one connection, that is of one
// pair of a local and a remote IP address, reliably and in order, and heals for
// ever. The engine never learns how: no stream, descriptor or frame crosses the
// seam in this file. The seam below the tcp transport, where byte streams come
// from, is in stream.go.
package transport

import (
	"net/netip"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/wire"
)

// Owner is a sending socket as a transport sees it: whoever is told that the
// transport has let go of a message. Owners are compared with ==, so they must
// be pointers.
type Owner interface {
	// Released says that msgs messages with bytes payload bytes, which had been
	// accepted by Send with this owner, are acknowledged and forgotten. It is
	// never called for cancelled messages: Cancel reports those itself. It may
	// be called from any goroutine with locks of the link held: it must not
	// block and must not call into any Link.
	Released(msgs, bytes int)
}

// Message is one message on its way out.
type Message struct {
	SPort, DPort uint16
	// Payload is copied before Send returns.
	Payload []byte
	// Owner is told when the message is acknowledged; nil is allowed.
	Owner Owner
	// AckSoon asks for an early acknowledgement, because the owner's send
	// buffer is more than half full.
	AckSoon bool
}

// Inbound is one message on its way in. It passed the duplicate filter: each is
// delivered exactly once, in the order of its path.
type Inbound struct {
	SPort, DPort uint16
	// Payload is the message. When Buf is nil it is only lent for the duration
	// of the call and must be copied.
	Payload []byte
	// Buf, when not nil, is the pooled buffer that holds Payload; its ownership
	// passes to the receiver of the call, who must Release it in the end.
	Buf *buffer.Buffer
	// Seq is the number of the message on its path.
	Seq uint64
	// Retransmitted says that the sender had (maybe partly) sent the message on
	// an earlier connection.
	Retransmitted bool
	// Reserved says that Reserve was called for the payload.
	Reserved bool
}

// Handler is the engine's side of one Link. Its methods are called by the
// goroutine that reads the link, one call at a time for each path, in wire order.
// They must not block. They may not call the Link's methods, except MapChanged
// and Resume.
type Handler interface {
	// Deliver takes a message. more = false says that the node holds as much of
	// this peer's data as it may: the message is taken all the same, but the link
	// must stop reading until Resume is called. Deliver must have made the
	// message receivable (or dropped and counted it) before it returns: the
	// link acknowledges on return.
	Deliver(m Inbound) (more bool)
	// RemoteMap takes the peer's congestion map. m is lent.
	RemoteMap(m *wire.CongMap)
	// LocalMap copies the congestion map of the link's local address to m.
	LocalMap(m *wire.CongMap)
	// Event reports what happened to the link.
	Event(e Event)
}

// BatchHandler is what a Handler implements that takes several messages at once more cheaply.
type BatchHandler interface {
	// DeliverAll is Deliver for each of ms in turn. Their payloads are lent (Buf is nil), and so is ms.
	DeliverAll(ms []Inbound) (more bool)
}

// Reserver is what a Handler implements that accounts for large messages from the
// moment when they begin to arrive. Its methods are called like Deliver.
type Reserver interface {
	// Reserve asks for room for a payload of n bytes. With false there is none: the
	// link must stop reading until Resume is called, and ask again. With true the
	// message is either delivered, with Reserved set, or Unreserve is called.
	Reserve(n int) bool
	Unreserve(n int)
}

// EventKind says what happened to a link.
type EventKind uint8

const (
	// EventUp: a path is up: connected, frames may flow.
	EventUp EventKind = iota + 1
	// EventDown: a path that was up lost its stream. Err says why (nil or io.EOF
	// when the peer closed it in good order). Count is the number of
	// unacknowledged messages that will be sent again.
	EventDown
	// EventPeerRestarted: the peer's process (or kernel) was restarted. Count
	// messages that had been sent to its predecessor without being acknowledged
	// will be sent again.
	EventPeerRestarted
	// EventPeerKnown: the first handshake message of a connection was parsed. Own says what the
	// peer is.
	EventPeerKnown
	// EventProtocol: the peer sent something that no RDS peer may send; Err says what. The stream
	// was dropped, unless Harmless.
	EventProtocol
	// EventRefused: an incoming stream was turned away; Err says why.
	EventRefused
	// EventDialFailed: an attempt to connect failed; Err says why. Retries go on.
	EventDialFailed
	// EventPingLimit: a ping was not answered, because too many answers to this peer wait.
	EventPingLimit
)

// Event is something that happened to a link, for counters and listeners.
type Event struct {
	Kind     EventKind
	Path     int
	Err      error
	Count    int
	Own      bool // EventPeerKnown: one of ours, not a kernel
	Harmless bool // EventProtocol: counted, stream kept
	At       time.Time
}

// Link carries the messages of one connection. Its methods may be called from
// any goroutine and do not wait for the network.
type Link interface {
	// Send queues a message. It fails only when the link is closed.
	Send(m Message) error
	// Cancel forgets the queued and unacknowledged messages of owner to dport (to
	// any port with all) and says what left the accounts. What is in the middle of being
	// written is finished on the wire but not sent again.
	Cancel(owner Owner, dport uint16, all bool) (msgs, bytes int)
	// Pending counts the unacknowledged messages of owner to dport (to any port with all).
	Pending(owner Owner, dport uint16, all bool) (msgs, bytes int)
	// Urge asks for acknowledgements as early as they can be had, because
	// somebody waits for them.
	Urge()
	// MapChanged says that the congestion map of the local address changed: it
	// is to be sent ahead of queued data.
	MapChanged()
	// Resume says that the node has room again after Deliver returned false.
	Resume()
	// Info describes the link for operators.
	Info() LinkInfo
}

// LinkInfo is a snapshot of a link.
type LinkInfo struct {
	Local, Remote netip.Addr
	Transport     string // "tcp", "loopback"
	Own           bool   // the peer is one of ours
	Known         bool   // a handshake message of the peer was parsed
	Paths         []PathInfo
}

// PathInfo is a snapshot of one path. Names and meaning follow RDS_INFO_CONNECTIONS and
// RDS_INFO_TCP_SOCKETS (RDS spec section 16).
type PathInfo struct {
	State             string
	LocalPort         uint16 // TCP ports of the stream, 0 when down
	RemotePort        uint16
	NextTx, NextRx    uint64
	Queued, Unacked   int    // messages not yet written, and written but not acknowledged
	Acked             uint64 // messages acknowledged, of sockets and others
	StreamAcked       uint64 // bytes of the present stream that the peer's TCP acknowledged
	QueuedBytes       int
	UnackedBytes      int
	Resets            uint64 // streams lost
	Retransmissions   uint64 // messages sent again
	DroppedDuplicates uint64
}

// Transport makes links.
type Transport interface {
	// Link returns the link of a pair of addresses, and makes it at first use.
	// It does not wait for a connection.
	Link(local, remote netip.Addr) (Link, error)
	// Links calls f for every link.
	Links(f func(Link))
	// Close ends all links: half-close, drain within the grace time, close. It returns when
	// every goroutine of the transport has ended.
	Close(grace time.Duration) error
}

// Host makes the engine's side of links, for those that a peer opens as well.
type Host interface {
	// NewLink is called once for each link, before any other call, and returns
	// its handler.
	NewLink(l Link, local, remote netip.Addr) Handler
	// MayPeer says whether the remote address may talk to this node.
	MayPeer(remote netip.Addr) bool
	// Refused reports an incoming stream that was turned away before it belonged to
	// any link: its address may not peer, or a limit was reached. It must not block.
	Refused(local, remote netip.AddrPort, err error)
}
