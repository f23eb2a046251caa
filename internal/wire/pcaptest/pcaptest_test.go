package pcaptest

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rds-go/rds/internal/wire"
)

// writer makes a capture.
type writer struct {
	tb   testing.TB
	file bytes.Buffer
	pcap *pcapgo.Writer
}

func newWriter(tb testing.TB) *writer {
	w := &writer{tb: tb}
	w.pcap = pcapgo.NewWriter(&w.file)
	if err := w.pcap.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		tb.Fatal(err)
	}
	return w
}

// packet writes one packet of any transport layer, with invalid checksums.
func (w *writer) packet(src, dst string, proto layers.IPProtocol, above ...gopacket.SerializableLayer) {
	w.tb.Helper()
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, SrcIP: s.AsSlice(), DstIP: d.AsSlice()}
	if s.Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: s.AsSlice(), DstIP: d.AsSlice()}
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true},
		append([]gopacket.SerializableLayer{eth, ip}, above...)...)
	if err == nil {
		err = w.pcap.WritePacket(gopacket.CaptureInfo{CaptureLength: len(buf.Bytes()), Length: len(buf.Bytes())}, buf.Bytes())
	}
	if err != nil {
		w.tb.Fatal(err)
	}
}

// tcp writes a segment; flags are letters of "SAFR".
func (w *writer) tcp(src, dst string, flags string, seq uint32, payload []byte) {
	w.tb.Helper()
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	has := func(f string) bool { return strings.Contains(flags, f) }
	w.packet(s.Addr().String(), d.Addr().String(), layers.IPProtocolTCP, &layers.TCP{
		SrcPort: layers.TCPPort(s.Port()), DstPort: layers.TCPPort(d.Port()), Seq: seq,
		SYN: has("S"), ACK: has("A"), FIN: has("F"), RST: has("R"), Window: 1000,
	}, gopacket.Payload(payload))
}

func (w *writer) read() *Capture {
	w.tb.Helper()
	c, err := Read(bytes.NewReader(w.file.Bytes()))
	if err != nil {
		w.tb.Fatal(err)
	}
	return c
}

// data is a data frame of n bytes.
func data(seq uint64, n int) []byte {
	h := wire.Header{Seq: seq, Len: uint32(n), SPort: 5001, DPort: 5002}
	return append(h.AppendTo(nil), make([]byte, n)...)
}

func lines(c *Capture) []string {
	var list []string
	for _, f := range c.Frames {
		list = append(list, f.String())
	}
	return list
}

func checkLines(t *testing.T, c *Capture, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, lines(c)); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

const (
	a1 = "10.0.0.1:40000"
	a2 = "10.0.0.1:40001"
	aL = "10.0.0.1:16385"
	bL = "10.0.0.2:16385"
	b1 = "10.0.0.2:40000"
)

func TestReadFraming(t *testing.T) {
	w := newWriter(t)
	three := append(append(data(1, 0), data(2, 10)...), data(3, 100)...)
	w.tcp(a1, bL, "S", 99, nil)
	w.tcp(bL, a1, "SA", 499, nil)
	w.tcp(a1, bL, "A", 100, three[:110])                  // two frames and the start of the third
	w.tcp(a1, bL, "A", 210, three[110:200])               // in it
	w.tcp(bL, a1, "A", 500, data(1, 1))                   // the other way
	w.tcp(a1, bL, "A", 300, append(three[200:], 1, 2, 3)) // its end, and what is no frame
	c := w.read()
	checkLines(t, c,
		"#3 A tcp0 DATA seq 1 sport 5001 dport 5002",
		"#3 A tcp0 DATA seq 2 len 10 sport 5001 dport 5002",
		"#5 B tcp0 DATA seq 1 len 1 sport 5001 dport 5002",
		"#6 A tcp0 DATA seq 3 len 100 sport 5001 dport 5002",
	)
	conn := c.Conns[0]
	if conn.Dialer != A || conn.Port != 40000 || conn.AddrA.String() != "10.0.0.1" || conn.AddrB.String() != "10.0.0.2" {
		t.Errorf("connection %+v", conn)
	}
	if s := conn.From(A); !bytes.Equal(s.Rest, []byte{1, 2, 3}) || len(s.Frames) != 3 || len(s.Data) != len(three)+3 {
		t.Errorf("stream of A: rest %x, %d frames, %d bytes", s.Rest, len(s.Frames), len(s.Data))
	}
	if f := conn.FromA.Frames[2]; f.Index != 2 || len(f.Payload) != 100 || !bytes.Equal(f.Raw, data(3, 100)[:wire.HeaderLen]) {
		t.Errorf("frame %+v", f)
	}
	if s := conn.From(B); len(s.Frames) != 1 || len(s.Rest) != 0 {
		t.Errorf("stream of B: %+v", s)
	}
	if p := c.Packets[1]; !p.SYN || !p.ACK || p.FIN || p.RST || p.From != B || p.Seq != 499 || p.Number != 2 || p.Len != 0 {
		t.Errorf("packet %+v", p)
	}
}

func TestReadConnections(t *testing.T) {
	w := newWriter(t)
	w.tcp(bL, a2, "R", 7, nil)          // tcp0, known by its end only
	w.tcp(a1, bL, "S", 99, nil)         // tcp1
	w.tcp(b1, aL, "S", 99, nil)         // tcp2: the same port number, the other way round
	w.tcp(b1, aL, "S", 99, nil)         // again, by TCP's timer
	w.tcp(a1, bL, "A", 100, data(1, 0)) //
	w.tcp(bL, a1, "R", 500, nil)        //
	w.tcp(a1, bL, "A", 148, data(2, 0)) // was under way when the RST came
	w.tcp(a1, bL, "S", 1000, nil)       // tcp3: the pair is used again
	w.tcp(bL, a1, "SA", 2000, nil)
	w.tcp(a1, bL, "A", 1001, data(2, 0))
	c := w.read()
	checkLines(t, c,
		"#5 A tcp1 DATA seq 1 sport 5001 dport 5002",
		"#7 A tcp1 DATA seq 2 sport 5001 dport 5002 (after reset)",
		"#10 A tcp3 DATA seq 2 sport 5001 dport 5002",
	)
	var conns []int
	for _, p := range c.Packets {
		conns = append(conns, p.Conn)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 2, 1, 1, 1, 3, 3, 3}, conns); diff != "" {
		t.Errorf("connections of the packets (-want +got):\n%s", diff)
	}
	if c.Conns[2].Dialer != B || c.Conns[2].Port != 40000 {
		t.Errorf("tcp2: %+v", c.Conns[2])
	}
}

func TestReadIPv6(t *testing.T) {
	w := newWriter(t)
	w.tcp("[fd00::2]:16385", "[fd00::1]:40000", "A", 100, data(1, 2))
	checkLines(t, w.read(), "#1 B tcp0 DATA seq 1 len 2 sport 5001 dport 5002")
}

func TestReadErrors(t *testing.T) {
	if _, err := Read(strings.NewReader("no capture")); err == nil {
		t.Error("a file that is no capture is accepted")
	}

	w := newWriter(t)
	w.tcp(a1, bL, "S", 99, nil)
	w.packet("10.0.0.1", "10.0.0.2", layers.IPProtocolUDP, &layers.UDP{SrcPort: 1, DstPort: 2})
	if _, err := Read(bytes.NewReader(w.file.Bytes())); err == nil || err.Error() != "pcaptest: packet #2: not TCP" {
		t.Errorf("a packet that is not TCP: %v", err)
	}

	w = newWriter(t)
	w.tcp(a1, bL, "S", 99, nil)
	cut := w.file.Bytes()[:w.file.Len()-1]
	if _, err := Read(bytes.NewReader(cut)); err == nil || !strings.HasPrefix(err.Error(), "pcaptest: packet #1:") {
		t.Errorf("a file that is cut off: %v", err)
	}

	w = newWriter(t)
	w.tcp(a1, aL, "S", 99, nil)
	if _, err := Read(bytes.NewReader(w.file.Bytes())); err == nil {
		t.Error("a connection of a node with itself is accepted")
	}
}

func TestFrameString(t *testing.T) {
	frame := func(h wire.Header, payload []byte) *Frame {
		h.Len = uint32(len(payload))
		return &Frame{Packet: 10, From: A, Header: h, Payload: payload}
	}
	congested := new(wire.CongMap)
	congested.Set(5004)
	congested.Set(5006)
	npaths := wire.Handshake{NPaths: 8}.Area()
	for _, test := range []struct {
		f    *Frame
		want string
	}{
		{frame(wire.Header{Flags: 1}, make([]byte, wire.MapLen)), "#10 A tcp0 MAP"},
		{frame(wire.Header{Flags: 1}, congested[:]), "#10 A tcp0 MAP congested [5004 5006]"},
		{frame(wire.Header{Flags: 1}, make([]byte, 100)), "#10 A tcp0 MAP len 100"},
		{frame(wire.Header{Flags: 5}, make([]byte, 2)), "#10 A tcp0 PING len 2 flags CONG_BITMAP|RETRANSMITTED"},
		{frame(wire.Header{Seq: 1, SPort: 1, Ext: npaths}, nil), "#10 A tcp0 PROBE seq 1 NPATHS 8"},
		{frame(wire.Header{Seq: 1, SPort: 1, Flags: 4}, nil), "#10 A tcp0 PROBE seq 1 no items flags RETRANSMITTED"},
		{frame(wire.Header{Seq: 2, DPort: 1, Ext: npaths, Ack: 7}, nil), "#10 A tcp0 PROBE-PONG seq 2 NPATHS 8 ack 7"},
		{frame(wire.Header{Seq: 1, SPort: 9}, nil), "#10 A tcp0 PING seq 1 sport 9"},
		{frame(wire.Header{Seq: 1, DPort: 9}, nil), "#10 A tcp0 PONG seq 1 dport 9"},
		{frame(wire.Header{Seq: 1, SPort: 5001, DPort: 5002}, []byte{1}), "#10 A tcp0 DATA seq 1 len 1 sport 5001 dport 5002"},
	} {
		if got := test.f.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestNode(t *testing.T) {
	if A.Peer() != B || B.Peer() != A || A.String() != "A" {
		t.Errorf("peers %v, %v", A.Peer(), B.Peer())
	}
}
