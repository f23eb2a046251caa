// Package wire is the bytes of RDS: what a frame on an RDS/TCP connection
// looks like, and nothing else.
//
// A connection carries frames back to back (RDS spec section 9):
//
//	+------------------------------------------------------------+
//	| seq 8 | ack 8 | len 4 | sport 2 | dport 2 | flags 1        |
//	| credit 1 | pad 4 | csum 2 | extension area 16              |
//	+------------------------------------------------------------+
//	| payload, len bytes                                         |
//	+------------------------------------------------------------+
//
// All integers are big-endian. Bytes come in, values go out, and back:
//
//   - [Header] is the value of a header ([ParseHeader], [Header.AppendTo],
//     [Header.Put]); [HeaderView] is a checked window on the 48 bytes where
//     they lie, for the hot path.
//   - [Items] walks the extension area; [Handshake] is what the area of a
//     probe or a probe pong says, our own private item included.
//   - [CongMap] is the congestion map, payload of a frame for which
//     [Header.IsMap] holds.
//   - [PathHash] chooses the path of a socket's messages.
//
// The package knows neither sockets nor time, and it holds no policy: which
// header is acceptable, what a restart means and how long a message may be is
// decided by its callers. Nothing here allocates on the way of a message, and
// no input makes it panic.
package wire

// Sizes, ports and limits, RDS spec section 1.
const (
	// HeaderLen is the size of a frame's header in bytes.
	HeaderLen = 48
	// ExtOffset is where the extension area begins in the header.
	ExtOffset = 32
	// ExtLen is the size of the extension area in bytes.
	ExtLen = 16
	// MapLen is the size of a congestion map in bytes.
	MapLen = 8192
	// MapPorts is the number of RDS ports of one address, one bit each.
	MapPorts = 65536
	// Port is the TCP port of RDS.
	Port = 16385
	// PingPort answers pings; nothing can be bound to it.
	PingPort uint16 = 0
	// ProbePort is the source of handshake probes; nothing can be bound to it.
	ProbePort uint16 = 1
	// MaxMessage is the largest payload that a kernel sends, in bytes.
	MaxMessage = 1 << 20
	// MaxPaths is the largest number of TCP connections between two addresses.
	MaxPaths = 8
)
