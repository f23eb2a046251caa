// Package pcaptest reads captures of RDS/TCP for tests: a pcap file goes in,
// the RDS frames of both nodes come out, each with the packet that completed
// it. It stands beside package wire so that the tests of every layer above can
// replay what kernels really said; nothing but tests may import it.
//
// The captures in ../testdata were taken between two nodes, A with the smaller
// address and B with the larger one. Packets are numbered from 1, connections
// from 0 in order of appearance ("tcp0"). The reader copes with what such
// captures contain: invalid TCP checksums (offload), segments above the MTU,
// keepalive probes, TCP's retransmissions, and connections that were up before
// the capture began; there the first data of a direction must be the start of
// a frame.
package pcaptest

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rds-go/rds/internal/wire"
)

// Node is one of the two ends of a connection.
type Node byte

// The nodes by the order of their addresses (RDS spec section 2).
const (
	A Node = 'A' // the smaller address
	B Node = 'B' // the larger address
)

// Peer is the other node.
func (n Node) Peer() Node { return A + B - n }

func (n Node) String() string { return string(rune(n)) }

// Capture is the content of one file.
type Capture struct {
	Packets []Packet // in the order of the file
	Conns   []*Conn  // Conns[i].ID == i
	Frames  []*Frame // of all connections, in the order in which they became complete
}

// Packet is one TCP segment.
type Packet struct {
	Number             int // from 1, counts every packet of the file
	Time               time.Time
	Conn               int
	From               Node
	SYN, ACK, FIN, RST bool
	Seq                uint32 // TCP sequence number
	Len                int    // bytes of TCP payload
}

// Conn is one TCP connection.
type Conn struct {
	ID     int // N of tcpN
	Dialer Node
	Port   uint16 // TCP port of the dialer; the other end has wire.Port
	AddrA  netip.Addr
	AddrB  netip.Addr
	FromA  Stream
	FromB  Stream
}

// Stream is what one node sent on one connection.
type Stream struct {
	Data   []byte // reassembled TCP payload
	Frames []*Frame
	Rest   []byte // bytes at the end of Data that are no complete frame
	Held   int    // bytes captured behind a gap that never closed, not in Data
}

// From is the stream that n sent.
func (c *Conn) From(n Node) *Stream {
	if n == A {
		return &c.FromA
	}
	return &c.FromB
}

// Load reads the named capture of internal/wire/testdata: "rds-tcp-ping".
func Load(tb testing.TB, name string) *Capture {
	tb.Helper()
	f, err := os.Open(filepath.Join(Dir(tb), name+".pcap"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	c, err := Read(f)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return c
}

// Names lists the captures of internal/wire/testdata, sorted.
func Names(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(Dir(tb), "rds-tcp*.pcap"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no captures: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".pcap")
	}
	return files
}

// Dir is internal/wire/testdata, found from the directory of any package of
// this repository, where go test runs its binary.
func Dir(tb testing.TB) string {
	tb.Helper()
	wd, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for up := wd; ; up = filepath.Dir(up) {
		dir := filepath.Join(up, "internal", "wire", "testdata")
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		if up == filepath.Dir(up) {
			tb.Fatalf("no internal/wire/testdata above %s", wd)
		}
	}
}

// endpoints names a connection: address and port of both nodes.
type endpoints struct{ a, b netip.AddrPort }

// reader collects packets; assemblers is parallel to capture.Conns.
type reader struct {
	capture    Capture
	current    map[endpoints]int // the connection that owns the pair now
	assemblers [][2]*assembler   // of A and B
	resets     []int             // packet of the first RST, 0 for none
}

// Read reads a whole pcap stream.
func Read(r io.Reader) (*Capture, error) {
	file, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("pcaptest: file header: %w", err)
	}
	rd := reader{current: map[endpoints]int{}}
	for number := 1; ; number++ {
		data, info, err := file.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("pcaptest: packet #%d: %w", number, err)
		}
		p := gopacket.NewPacket(data, file.LinkType(), gopacket.Default)
		if err := rd.add(Packet{Number: number, Time: info.Timestamp}, p); err != nil {
			return nil, fmt.Errorf("pcaptest: packet #%d: %w", number, err)
		}
	}
	return rd.finish(), nil
}

func (r *reader) add(pkt Packet, p gopacket.Packet) error {
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok {
		return errors.New("not TCP")
	}
	src, okSrc := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
	dst, okDst := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
	if !okSrc || !okDst || src == dst {
		return fmt.Errorf("bad addresses %v, %v", src, dst)
	}
	pkt.SYN, pkt.ACK, pkt.FIN, pkt.RST = tcp.SYN, tcp.ACK, tcp.FIN, tcp.RST
	pkt.Seq, pkt.Len = tcp.Seq, len(tcp.Payload)

	pkt.From = A
	ends := endpoints{netip.AddrPortFrom(src, uint16(tcp.SrcPort)), netip.AddrPortFrom(dst, uint16(tcp.DstPort))}
	if dst.Less(src) {
		pkt.From = B
		ends.a, ends.b = ends.b, ends.a
	}
	pkt.Conn = r.conn(ends, pkt)
	r.capture.Packets = append(r.capture.Packets, pkt)
	if pkt.RST && r.resets[pkt.Conn] == 0 {
		r.resets[pkt.Conn] = pkt.Number
	}
	r.assembler(pkt.Conn, pkt.From).add(pkt.Number, pkt.Seq, pkt.SYN, tcp.Payload)
	return nil
}

// conn finds the connection of a packet, or makes one for a new pair of end
// points and for a dialler's SYN that starts the same pair afresh.
func (r *reader) conn(ends endpoints, pkt Packet) int {
	id, ok := r.current[ends]
	if ok && (!pkt.SYN || pkt.ACK || !r.assembler(id, pkt.From).otherStart(pkt.Seq)) {
		return id
	}
	id = len(r.capture.Conns)
	c := &Conn{ID: id, Dialer: A, Port: ends.a.Port(), AddrA: ends.a.Addr(), AddrB: ends.b.Addr()}
	if ends.a.Port() == wire.Port {
		c.Dialer, c.Port = B, ends.b.Port()
	}
	r.current[ends] = id
	r.capture.Conns = append(r.capture.Conns, c)
	r.assemblers = append(r.assemblers, [2]*assembler{{}, {}})
	r.resets = append(r.resets, 0)
	return id
}

func (r *reader) assembler(conn int, from Node) *assembler { return r.assemblers[conn][from-A] }

func (r *reader) finish() *Capture {
	for _, c := range r.capture.Conns {
		for _, from := range []Node{A, B} {
			as := r.assembler(c.ID, from)
			s := c.From(from)
			s.Data, s.Held = as.data, as.heldBytes()
			s.Frames, s.Rest = frames(as, c.ID, from)
			if reset := r.resets[c.ID]; reset != 0 {
				for _, f := range s.Frames {
					f.AfterReset = f.Packet > reset
				}
			}
			r.capture.Frames = append(r.capture.Frames, s.Frames...)
		}
	}
	// A packet belongs to one stream, so stability keeps the order inside it.
	slices.SortStableFunc(r.capture.Frames, func(x, y *Frame) int { return x.Packet - y.Packet })
	return &r.capture
}
