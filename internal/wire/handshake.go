package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// The private item, type 0x0A, by which own nodes recognize each other:
//
//	0a 00 vv ffff dd [gggggggg]
//	|  |  |  |    |  |
//	|  |  |  |    |  generation, only when there is no GEN_NUM item
//	|  |  |  |    longest delay of an acknowledgement, milliseconds
//	|  |  |  features
//	|  |  version
//	|  zero
//	type
//
// A kernel takes a type that it does not know as one without data and reads
// on; the zero byte then ends its list, before it can take our data for items
// (RDS spec sections 8 and 11). So the item must be the last one. With NPATHS,
// GEN_NUM and SPORT_IDX before it the short form fills the area to the last
// byte (3+5+2+6 = 16), which is why only the long form has a generation of its
// own (3+2+10 = 15).
//
// Offsets are fixed for good: whatever the version and the feature bits are,
// the fields known today stay where they are, and unknown bits are ignored.
const (
	privateVersion    = 1
	privateFeatures   = 2
	privateAckDelay   = 4
	privateShort      = 5
	privateGeneration = 5
	privateLong       = 9
)

// FeatureCsum is bit 0 of [Handshake.Features]: h_csum is set and checked
// between own nodes.
const FeatureCsum uint16 = 1 << 0

// Handshake is what the extension area of a probe or of its pong says about
// its sender (RDS spec section 12).
type Handshake struct {
	// NPaths is the number of paths that the sender supports, as it stands in
	// the item; a kernel takes min(8, n). 0 means that the item is absent.
	NPaths uint16
	// Generation is the GEN_NUM item, a random number per boot of the sender.
	// 0 means that the item is absent.
	Generation uint32
	// SportIdx says that the sender chooses source ports by the path's index.
	SportIdx bool

	// Own says that the private item is present: the peer is one of ours. The
	// fields below mean nothing without it.
	Own bool
	// Version of the private item. Every version parses.
	Version uint8
	// Features is a set of Feature bits.
	Features uint16
	// MaxAckDelay is how long the sender may hold back an acknowledgement, in
	// milliseconds.
	MaxAckDelay uint8
	// OwnGeneration is the generation inside the private item, for a sender
	// that leaves GEN_NUM out. 0 means that it is absent.
	OwnGeneration uint32
}

// ParseHandshake reads an extension area. It takes everything: what is not
// understood is left out, and of an item that comes twice the last one counts,
// as in the kernel.
func ParseHandshake(ext *[ExtLen]byte) Handshake {
	var h Handshake
	for w := (itemWalk{rest: ext[:]}); w.next(); {
		d := w.data
		switch w.typ {
		case ItemNPaths:
			h.NPaths = binary.BigEndian.Uint16(d)
		case ItemGenNum:
			h.Generation = binary.BigEndian.Uint32(d)
		case ItemSportIdx:
			h.SportIdx = true
		case ItemPrivate:
			h.Own = true
			h.Version = d[privateVersion]
			h.Features = binary.BigEndian.Uint16(d[privateFeatures:])
			h.MaxAckDelay = d[privateAckDelay]
			if len(d) == privateLong {
				h.OwnGeneration = binary.BigEndian.Uint32(d[privateGeneration:])
			}
		}
	}
	return h
}

// Area writes the extension area: NPATHS, GEN_NUM, SPORT_IDX, private item,
// each only if it is set. It always fits, because Generation goes before
// OwnGeneration: when Generation is not 0 the private item has its short form
// and OwnGeneration is not sent. Without Own nothing of the private item is.
func (h Handshake) Area() [ExtLen]byte {
	b := make([]byte, 0, ExtLen)
	if h.NPaths != 0 {
		b = append(b, byte(ItemNPaths))
		b = binary.BigEndian.AppendUint16(b, h.NPaths)
	}
	if h.Generation != 0 {
		b = append(b, byte(ItemGenNum))
		b = binary.BigEndian.AppendUint32(b, h.Generation)
	}
	if h.SportIdx {
		b = append(b, byte(ItemSportIdx), 0)
	}
	if h.Own {
		b = append(b, byte(ItemPrivate), 0, h.Version)
		b = binary.BigEndian.AppendUint16(b, h.Features)
		b = append(b, h.MaxAckDelay)
		if h.Generation == 0 {
			b = binary.BigEndian.AppendUint32(b, h.OwnGeneration)
		}
	}
	return [ExtLen]byte(b[:ExtLen])
}

// String writes h for a trace: "NPATHS 8 GEN_NUM b92ada34 SPORT_IDX". What is
// absent is left out; a handshake that says nothing is "no items".
func (h Handshake) String() string {
	var s []string
	if h.NPaths != 0 {
		s = append(s, fmt.Sprintf("NPATHS %d", h.NPaths))
	}
	if h.Generation != 0 {
		s = append(s, fmt.Sprintf("GEN_NUM %08x", h.Generation))
	}
	if h.SportIdx {
		s = append(s, "SPORT_IDX")
	}
	if h.Own {
		s = append(s, fmt.Sprintf("OWN version %d features %04x ack-delay %dms", h.Version, h.Features, h.MaxAckDelay))
		if h.OwnGeneration != 0 {
			s = append(s, fmt.Sprintf("generation %08x", h.OwnGeneration))
		}
	}
	if s == nil {
		return "no items"
	}
	return strings.Join(s, " ")
}
