//go:build linux

package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Frame is one RDS/TCP frame, spelled out here rather than taken from the
// package under test: a scripted peer must not share its mistakes.
type Frame struct {
	Seq, Ack     uint64
	Sport, Dport uint16
	Flags        uint8
	Ext          [16]byte
	Data         []byte
}

// Flags of a frame.
const (
	FlagMap           = 0x01
	FlagRetransmitted = 0x04
)

// HeaderSize and MapSize are the two fixed sizes of the protocol.
const (
	HeaderSize = 48
	MapSize    = 8192
)

// IsMap says whether this is a congestion map.
func (f Frame) IsMap() bool { return f.Flags == FlagMap && len(f.Data) == MapSize }

// IsProbe says whether this is a probe ping.
func (f Frame) IsProbe() bool { return f.Sport == 1 && f.Dport == 0 && f.Flags&FlagMap == 0 }

// IsPong says whether this is the answer to a probe.
func (f Frame) IsPong() bool { return f.Sport == 0 && f.Dport == 1 && f.Flags&FlagMap == 0 }

func (f Frame) String() string {
	return fmt.Sprintf("seq %d ports %d->%d flags %#02x len %d ext %x", f.Seq, f.Sport, f.Dport, f.Flags, len(f.Data),
		bytes.TrimRight(f.Ext[:], "\x00"))
}

// Append appends the frame's bytes.
func (f Frame) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, f.Seq)
	b = binary.BigEndian.AppendUint64(b, f.Ack)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Data)))
	b = binary.BigEndian.AppendUint16(b, f.Sport)
	b = binary.BigEndian.AppendUint16(b, f.Dport)
	b = append(b, f.Flags, 0, 0, 0, 0, 0, 0, 0) // flags, credit, padding, checksum
	b = append(b, f.Ext[:]...)
	return append(b, f.Data...)
}

// WriteFrames writes frames with one call.
func WriteFrames(w io.Writer, frames ...Frame) error {
	var b []byte
	for _, f := range frames {
		b = f.Append(b)
	}
	_, err := w.Write(b)
	return err
}

// ReadFrame reads one frame. The caller sets the connection's deadline.
func ReadFrame(r io.Reader) (Frame, error) {
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{
		Seq: binary.BigEndian.Uint64(h[0:]), Ack: binary.BigEndian.Uint64(h[8:]),
		Sport: binary.BigEndian.Uint16(h[20:]), Dport: binary.BigEndian.Uint16(h[22:]),
		Flags: h[24], Ext: [16]byte(h[32:]),
	}
	n := binary.BigEndian.Uint32(h[16:])
	if n > 16<<20 {
		return f, fmt.Errorf("frame of %d bytes: the stream is out of step", n)
	}
	f.Data = make([]byte, n)
	_, err := io.ReadFull(r, f.Data)
	return f, err
}

// EmptyMap is the congestion map of a node without congested ports.
func EmptyMap() Frame { return Frame{Flags: FlagMap, Data: make([]byte, MapSize)} }

// HandshakeExt builds the extension area of probes and pongs: number of paths,
// generation, and the source port item, which has to be last.
func HandshakeExt(paths uint16, generation uint32) (ext [16]byte) {
	b := binary.BigEndian.AppendUint16([]byte{5}, paths)
	b = binary.BigEndian.AppendUint32(append(b, 6), generation)
	b = append(b, 8, 0)
	copy(ext[:], b)
	return ext
}

// Probe is the ping of the handshake, Pong its answer.
func Probe(seq uint64, ext [16]byte) Frame { return Frame{Seq: seq, Sport: 1, Ext: ext} }
func Pong(seq uint64, ext [16]byte) Frame  { return Frame{Seq: seq, Dport: 1, Ext: ext} }

// AnnouncedPaths returns the value of the item NPATHS, 0 if there is none.
func (f Frame) AnnouncedPaths() int {
	if f.Ext[0] != 5 {
		return 0
	}
	return int(binary.BigEndian.Uint16(f.Ext[1:]))
}
