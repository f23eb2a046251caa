package pcaptest

import (
	"fmt"
	"strings"

	"github.com/rds-go/rds/internal/wire"
)

// Frame is one RDS frame of a stream.
type Frame struct {
	Packet     int // the packet in which the frame became complete
	Conn       int
	From       Node
	Index      int  // place among the frames of its stream, from 0
	AfterReset bool // a RST of either end was captured before it was complete
	Header     wire.Header
	Raw        []byte // the header's bytes
	Payload    []byte
}

// frames cuts the data of a stream into frames.
func frames(a *assembler, conn int, from Node) (list []*Frame, rest []byte) {
	at := 0
	for {
		rest = a.data[at:]
		h, err := wire.ParseHeader(rest)
		if err != nil || uint64(len(rest)-wire.HeaderLen) < uint64(h.Len) {
			return list, rest
		}
		end := wire.HeaderLen + int(h.Len)
		at += end
		list = append(list, &Frame{
			Packet:  a.packet(at),
			Conn:    conn,
			From:    from,
			Index:   len(list),
			Header:  h,
			Raw:     rest[:wire.HeaderLen:wire.HeaderLen],
			Payload: rest[wire.HeaderLen:end:end],
		})
	}
}

// Kind is what a frame is for: "MAP", "PROBE", "PROBE-PONG", "PING", "PONG" or
// "DATA".
func (f *Frame) Kind() string {
	h := &f.Header
	switch {
	case h.IsMap():
		return "MAP"
	case h.IsProbe():
		return "PROBE"
	case h.IsProbePong():
		return "PROBE-PONG"
	case h.DPort == wire.PingPort:
		return "PING"
	case h.SPort == wire.PingPort:
		return "PONG"
	}
	return "DATA"
}

// Handshake parses the frame's extension area.
func (f *Frame) Handshake() wire.Handshake { return wire.ParseHandshake(&f.Header.Ext) }

// Congested lists the congested ports of a map frame; nil for other frames and
// for a map without any.
func (f *Frame) Congested() []uint16 {
	if !f.Header.IsMap() {
		return nil
	}
	m, err := wire.ParseMap(f.Payload)
	if err != nil {
		return nil
	}
	var ports []uint16
	m.Diff(nil, func(port uint16, _ bool) { ports = append(ports, port) })
	return ports
}

// String is the line of a trace: "#10 A tcp0 PROBE seq 1 NPATHS 8".
func (f *Frame) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %v tcp%d %s", f.Packet, f.From, f.Conn, f.Kind())
	h := f.Header
	switch f.Kind() {
	case "MAP":
		if ports := f.Congested(); ports != nil {
			fmt.Fprintf(&b, " congested %d", ports)
		}
		if h.Len == wire.MapLen {
			h.Len = 0 // as expected: not worth a word
		}
		h.Flags = 0
	case "PROBE", "PROBE-PONG":
		fmt.Fprintf(&b, " seq %d %v", h.Seq, f.Handshake())
		h.Seq, h.SPort, h.DPort, h.Ext = 0, 0, 0, [wire.ExtLen]byte{}
	}
	if h != (wire.Header{}) {
		fmt.Fprintf(&b, " %v", &h)
	}
	if f.AfterReset {
		b.WriteString(" (after reset)")
	}
	return b.String()
}
