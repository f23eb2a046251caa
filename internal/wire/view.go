package wire

import "encoding/binary"

// HeaderView is a window on a header in the buffer where it lies: reading and
// changing single fields costs no copy. Only [View] makes one, and none of its
// methods can panic after that. It is valid as long as the buffer is.
type HeaderView []byte

// View checks that b has a whole header and returns a window of exactly
// HeaderLen bytes on it. The error wraps [ErrShort]; there is no other.
func View(b []byte) (HeaderView, error) {
	if len(b) < HeaderLen {
		return nil, errShortHeader(len(b))
	}
	return HeaderView(b[:HeaderLen:HeaderLen]), nil
}

// Header copies all fields out.
func (v HeaderView) Header() Header {
	return Header{
		Seq:    v.Seq(),
		Ack:    v.Ack(),
		Len:    v.Len(),
		SPort:  v.SPort(),
		DPort:  v.DPort(),
		Flags:  v.Flags(),
		Credit: v.Credit(),
		Pad:    v.Pad(),
		Csum:   v.Csum(),
		Ext:    [ExtLen]byte(v.Ext()),
	}
}

// Seq is h_sequence, the number of the message on its path.
func (v HeaderView) Seq() uint64 { return binary.BigEndian.Uint64(v[offSeq:]) }

// Ack is h_ack.
func (v HeaderView) Ack() uint64 { return binary.BigEndian.Uint64(v[offAck:]) }

// Len is h_len, the number of payload bytes behind the header.
func (v HeaderView) Len() uint32 { return binary.BigEndian.Uint32(v[offLen:]) }

// SPort is h_sport, the source RDS port.
func (v HeaderView) SPort() uint16 { return binary.BigEndian.Uint16(v[offSPort:]) }

// DPort is h_dport, the destination RDS port.
func (v HeaderView) DPort() uint16 { return binary.BigEndian.Uint16(v[offDPort:]) }

// Flags is h_flags.
func (v HeaderView) Flags() Flags { return Flags(v[offFlags]) }

// Credit is h_credit, 0 on TCP.
func (v HeaderView) Credit() uint8 { return v[offCredit] }

// Pad is h_padding.
func (v HeaderView) Pad() uint32 { return binary.BigEndian.Uint32(v[offPad:]) }

// Csum is h_csum as it stands there; 0 means "no checksum".
func (v HeaderView) Csum() uint16 { return binary.BigEndian.Uint16(v[offCsum:]) }

// Ext is the extension area: ExtLen bytes of the buffer itself, not a copy.
func (v HeaderView) Ext() []byte { return v[ExtOffset:HeaderLen:HeaderLen] }

// SetSeq stores h_sequence. Like every setter it leaves the checksum alone.
func (v HeaderView) SetSeq(n uint64) { binary.BigEndian.PutUint64(v[offSeq:], n) }

// SetAck stores h_ack.
func (v HeaderView) SetAck(n uint64) { binary.BigEndian.PutUint64(v[offAck:], n) }

// SetFlags stores h_flags.
func (v HeaderView) SetFlags(f Flags) { v[offFlags] = uint8(f) }

// SetCsum stores h_csum; 0 takes the checksum away.
func (v HeaderView) SetCsum(n uint16) { binary.BigEndian.PutUint16(v[offCsum:], n) }
