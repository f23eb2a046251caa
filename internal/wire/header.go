package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Offsets of the header's fields, RDS spec section 8.
const (
	offSeq    = 0
	offAck    = 8
	offLen    = 16
	offSPort  = 20
	offDPort  = 22
	offFlags  = 24
	offCredit = 25
	offPad    = 26
	offCsum   = 30
)

// Flags is h_flags. Kernels ignore bits they do not know, but treat every
// value other than exactly FlagCongBitmap as a data message.
type Flags uint8

// The bits of h_flags.
const (
	// FlagCongBitmap says that the payload is a congestion map; only when it
	// stands alone, see [Header.IsMap].
	FlagCongBitmap Flags = 0x01
	// FlagAckRequired is used on InfiniBand only, never set on TCP.
	FlagAckRequired Flags = 0x02
	// FlagRetransmitted says that the message was, maybe in part, sent on an
	// earlier TCP connection of its path.
	FlagRetransmitted Flags = 0x04
	// FlagExthdrExtension is used by newer kernels on InfiniBand only.
	FlagExthdrExtension Flags = 0x20
)

var flagNames = [...]struct {
	bit  Flags
	name string
}{
	{FlagCongBitmap, "CONG_BITMAP"},
	{FlagAckRequired, "ACK_REQUIRED"},
	{FlagRetransmitted, "RETRANSMITTED"},
	{FlagExthdrExtension, "EXTHDR_EXTENSION"},
}

// String names the bits for traces: "CONG_BITMAP|RETRANSMITTED". Unknown bits
// come last as one number ("ACK_REQUIRED|0x40"); no bit at all is "0".
func (f Flags) String() string {
	if f == 0 {
		return "0"
	}
	var b strings.Builder
	for _, n := range flagNames {
		if f&n.bit == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(n.name)
		f &^= n.bit
	}
	if f != 0 {
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		fmt.Fprintf(&b, "0x%02x", uint8(f))
	}
	return b.String()
}

// Header is the value of a frame's header. Every bit of the 48 bytes is in it,
// so that parsing and writing again gives the same bytes.
type Header struct {
	Seq    uint64 // number of the message on its path; 0 in maps and pure acks
	Ack    uint64 // 0 from kernels; between own nodes the last number delivered
	Len    uint32 // bytes of payload behind the header
	SPort  uint16 // source RDS port
	DPort  uint16 // destination RDS port
	Flags  Flags
	Credit uint8 // 0 on TCP
	Pad    uint32
	Csum   uint16 // 0 means "no checksum"
	Ext    [ExtLen]byte
}

// ParseHeader reads the header at the start of b. The error wraps [ErrShort]
// when b has fewer than HeaderLen bytes; there is no other.
func ParseHeader(b []byte) (Header, error) {
	v, err := View(b)
	if err != nil {
		return Header{}, err
	}
	return v.Header(), nil
}

// AppendTo appends the HeaderLen bytes of h to b.
func (h *Header) AppendTo(b []byte) []byte {
	b = append(b, make([]byte, HeaderLen)...) // recognized by the compiler: no temporary
	h.Put(b[len(b)-HeaderLen:])
	return b
}

// Put writes h into the first HeaderLen bytes of b. Like the functions of
// encoding/binary it panics when b is shorter.
func (h *Header) Put(b []byte) {
	_ = b[HeaderLen-1] // slicing alone would look at the capacity
	b = b[:HeaderLen:HeaderLen]
	binary.BigEndian.PutUint64(b[offSeq:], h.Seq)
	binary.BigEndian.PutUint64(b[offAck:], h.Ack)
	binary.BigEndian.PutUint32(b[offLen:], h.Len)
	binary.BigEndian.PutUint16(b[offSPort:], h.SPort)
	binary.BigEndian.PutUint16(b[offDPort:], h.DPort)
	b[offFlags] = uint8(h.Flags)
	b[offCredit] = h.Credit
	binary.BigEndian.PutUint32(b[offPad:], h.Pad)
	binary.BigEndian.PutUint16(b[offCsum:], h.Csum)
	copy(b[ExtOffset:], h.Ext[:])
}

// IsMap tells whether the payload is a congestion map. Like in the kernel this
// is equality, not a bit test: with any further flag the frame is a data
// message (RDS spec section 5). The length is for the caller to check, see
// [ParseMap]. A frame is a map before it is anything else.
func (h *Header) IsMap() bool { return h.Flags == FlagCongBitmap }

// IsProbe tells whether the frame goes from the probe port to the ping port:
// the question of a handshake.
func (h *Header) IsProbe() bool { return h.SPort == ProbePort && h.DPort == PingPort }

// IsProbePong tells whether the frame goes from the ping port to the probe
// port: the answer of a handshake.
func (h *Header) IsProbePong() bool { return h.SPort == PingPort && h.DPort == ProbePort }

// IsPureAck tells whether the frame carries nothing but Ack: no number, no
// ports, no payload, no flags. Only own nodes send it, and only to each other.
func (h *Header) IsPureAck() bool {
	return h.Seq == 0 && h.Len == 0 && h.SPort == 0 && h.DPort == 0 && h.Flags == 0
}

// String writes h for a trace and leaves out what is zero:
// "seq 3 len 52 sport 5001 dport 5002 flags RETRANSMITTED". The header that is
// zero all over is "zero".
func (h *Header) String() string {
	var b []byte
	num := func(name string, n uint64) {
		if n != 0 {
			b = append(b, ' ')
			b = append(b, name...)
			b = append(b, ' ')
			b = strconv.AppendUint(b, n, 10)
		}
	}
	num("seq", h.Seq)
	num("ack", h.Ack)
	num("len", uint64(h.Len))
	num("sport", uint64(h.SPort))
	num("dport", uint64(h.DPort))
	if h.Flags != 0 {
		b = append(b, " flags "...)
		b = append(b, h.Flags.String()...)
	}
	num("credit", uint64(h.Credit))
	if h.Pad != 0 {
		b = fmt.Appendf(b, " pad 0x%08x", h.Pad)
	}
	if h.Csum != 0 {
		b = fmt.Appendf(b, " csum 0x%04x", h.Csum)
	}
	if h.Ext != [ExtLen]byte{} {
		b = fmt.Appendf(b, " ext %x", h.Ext)
	}
	if b == nil {
		return "zero"
	}
	return string(b[1:])
}
