package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/wire"
	"github.com/rds-go/rds/internal/wire/pcaptest"
)

// facts is what was written down about each capture when it was taken, apart
// from the golden files, which a flag overwrites: the number of packets, and
// frames that must be there.
var facts = map[string]struct {
	packets int
	frames  []string
}{
	// rds-ping -c 3 from A to B, fresh connection.
	"rds-tcp-ping": {62, []string{
		"#10 A tcp0 MAP", "#10 A tcp0 PROBE seq 1 NPATHS 8",
		"#18 B tcp0 MAP", "#18 B tcp0 PROBE seq 1 NPATHS 8",
		"#20 A tcp0 PROBE-PONG seq 2 NPATHS 8", "#21 B tcp0 PROBE-PONG seq 2 NPATHS 8",
		"#45 A tcp0 MAP", "#50 B tcp1 MAP",
		"#46 A tcp4 PING seq 1 sport 21876", "#52 B tcp4 PONG seq 1 dport 21876",
		"#55 A tcp1 PING seq 1 sport 12088", "#57 B tcp1 PONG seq 1 dport 12088",
		"#59 A tcp7 PING seq 1 sport 1019", "#61 B tcp7 PONG seq 1 dport 1019",
	}},
	// Messages of many sizes, both ways.
	"rds-tcp-sizes": {74, []string{
		"#6 A tcp0 MAP", "#6 A tcp0 PROBE seq 1 NPATHS 8",
		"#12 B tcp0 MAP", "#12 B tcp0 PROBE seq 1 NPATHS 8",
		"#14 A tcp0 PROBE-PONG seq 2 NPATHS 8", "#15 B tcp0 PROBE-PONG seq 2 NPATHS 8",
		"#40 A tcp5 DATA seq 1 sport 5001 dport 5002", "#46 B tcp5 DATA seq 1 sport 5002 dport 5001",
		"#48 A tcp5 DATA seq 2 len 1 sport 5001 dport 5002", "#49 B tcp5 DATA seq 2 len 1 sport 5002 dport 5001",
		"#50 A tcp5 DATA seq 3 len 100 sport 5001 dport 5002", "#51 B tcp5 DATA seq 3 len 100 sport 5002 dport 5001",
		"#54 A tcp5 DATA seq 4 len 4096 sport 5001 dport 5002", "#57 B tcp5 DATA seq 4 len 4096 sport 5002 dport 5001",
		"#72 A tcp5 DATA seq 5 len 65536 sport 5001 dport 5002",
	}},
	// One message above the receive buffer; the two maps come on two paths.
	"rds-tcp-big": {36, []string{
		"#27 A tcp0 DATA seq 1 len 200000 sport 5003 dport 5004",
		"#31 B tcp0 MAP congested [5004]", "#35 B tcp1 MAP",
	}},
	// R = 4000: congested above 4000 bytes, not at 4000; clear below 2000.
	"rds-tcp-congestion": {46, []string{
		"#1 A tcp0 DATA seq 2 sport 5005 dport 5006",
		"#3 A tcp0 DATA seq 3 len 1000 sport 5005 dport 5006",
		"#5 A tcp0 DATA seq 4 len 1000 sport 5005 dport 5006",
		"#7 A tcp0 DATA seq 5 len 1000 sport 5005 dport 5006",
		"#9 A tcp0 DATA seq 6 len 1000 sport 5005 dport 5006",
		"#11 A tcp0 DATA seq 7 len 1000 sport 5005 dport 5006",
		"#15 B tcp1 MAP congested [5006]", "#19 B tcp1 MAP",
		"#21 A tcp0 DATA seq 8 len 1000 sport 5005 dport 5006",
	}},
	// The larger side has the first message; the smaller one dials back.
	"rds-tcp-larger-first": {46, []string{
		"#12 A tcp1 MAP", "#16 B tcp1 MAP", "#16 B tcp1 PROBE seq 1 NPATHS 8",
		"#16 B tcp1 DATA seq 2 len 100 sport 5002 dport 5001", "#18 A tcp1 PROBE-PONG seq 1 NPATHS 8",
		"#42 A tcp1 MAP", "#45 B tcp1 MAP",
	}},
	// Both dial at the same time.
	"rds-tcp-duel": {85, []string{
		"#9 A tcp0 MAP", "#9 A tcp0 PROBE seq 1 NPATHS 8", "#9 A tcp0 DATA seq 2 len 100 sport 5001 dport 5002",
		"#15 B tcp0 MAP", "#15 B tcp0 PROBE seq 1 NPATHS 8", "#15 B tcp0 DATA seq 2 len 100 sport 5002 dport 5001",
		"#20 B tcp0 PROBE-PONG seq 3 NPATHS 8", "#28 A tcp0 PROBE-PONG seq 3 NPATHS 8",
	}},
	// More in TestFactMultipath.
	"rds-tcp-multipath": {67, []string{
		"#9 A tcp0 PROBE seq 1 NPATHS 8", "#9 A tcp0 PROBE-PONG seq 2 NPATHS 8",
		"#6 B tcp0 PROBE seq 1 NPATHS 8", "#22 B tcp0 PROBE-PONG seq 2 NPATHS 8",
	}},
	// The fan-out race: a map on a path that the peer resets.
	"rds-tcp-ipv6": {81, []string{
		"#8 B tcp0 MAP", "#8 B tcp0 PROBE seq 1 NPATHS 8", "#33 A tcp1 MAP",
		"#49 A tcp0 PROBE seq 1 NPATHS 8", "#49 A tcp0 DATA seq 2 len 10 sport 5001 dport 5002", "#49 A tcp0 PROBE-PONG seq 3 NPATHS 8",
		"#80 B tcp0 PROBE-PONG seq 2 NPATHS 8",
	}},
	// Lost with the connection, sent again: flag, old numbers, behind the map.
	"rds-tcp-reconnect-lost": {156, []string{
		"#67 A tcp8 MAP", "#71 B tcp8 MAP", "#87 A tcp14 MAP",
		"#87 A tcp14 DATA seq 1 len 50 sport 5001 dport 5002 flags RETRANSMITTED",
		"#87 A tcp14 DATA seq 2 len 51 sport 5001 dport 5002 flags RETRANSMITTED",
		"#87 A tcp14 DATA seq 3 len 52 sport 5001 dport 5002 flags RETRANSMITTED",
	}},
	// The same, but the first copies had arrived.
	"rds-tcp-reconnect-dup": {207, []string{
		"#33 A tcp5 DATA seq 1 len 50 sport 5001 dport 5002",
		"#34 A tcp5 DATA seq 2 len 51 sport 5001 dport 5002",
		"#35 A tcp5 DATA seq 3 len 52 sport 5001 dport 5002",
		"#160 A tcp8 MAP",
		"#162 A tcp13 DATA seq 1 len 50 sport 5001 dport 5002 flags RETRANSMITTED",
		"#162 A tcp13 DATA seq 2 len 51 sport 5001 dport 5002 flags RETRANSMITTED",
		"#162 A tcp13 DATA seq 3 len 52 sport 5001 dport 5002 flags RETRANSMITTED",
	}},
	// A scripted peer announces three paths; path 1 stays unused.
	"rds-tcp-npaths3": {106, []string{
		"#6 B tcp0 MAP", "#6 B tcp0 PROBE seq 1 NPATHS 8",
		"#13 A tcp0 DATA seq 1 len 2 sport 7001 dport 7000",
		"#15 B tcp0 DATA seq 2 len 2 sport 7010 dport 7001", "#21 B tcp0 DATA seq 5 len 2 sport 7013 dport 7001",
		"#23 A tcp0 PROBE-PONG seq 2 NPATHS 3",
		"#42 B tcp2 MAP", "#49 B tcp3 MAP",
		"#58 B tcp3 DATA seq 7 len 2 sport 7041 dport 7001",
	}},
	// Linux 7: everything on path 0 until the handshake is through.
	"rds-tcp7-first": {58, []string{
		"#8 B tcp0 MAP", "#8 B tcp0 PROBE seq 1 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX",
		"#36 A tcp1 MAP", "#41 A tcp2 MAP", "#49 B tcp2 MAP",
		"#43 A tcp0 PROBE seq 1 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX",
		"#43 A tcp0 DATA seq 2 len 64 sport 5200 dport 5100",
		"#55 A tcp0 DATA seq 33 len 79 sport 5215 dport 5100",
		"#55 A tcp0 PROBE-PONG seq 34 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX",
		"#57 B tcp0 PROBE-PONG seq 2 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX",
	}},
	"rds-tcp7-larger-first": {64, []string{
		"#13 A tcp1 MAP", "#23 B tcp1 MAP", "#23 B tcp1 PROBE seq 1 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX",
		"#23 B tcp1 DATA seq 2 len 100 sport 5002 dport 5001",
		"#47 A tcp2 MAP", "#56 A tcp8 MAP",
		"#58 A tcp1 PROBE-PONG seq 1 NPATHS 8 GEN_NUM b92ada34 SPORT_IDX", "#63 B tcp1 MAP",
	}},
	"rds-tcp7-reconnect-lost": {160, []string{
		"#30 A tcp9 MAP",
		"#30 A tcp9 DATA seq 1 len 50 sport 5001 dport 5002 flags RETRANSMITTED",
		"#30 A tcp9 DATA seq 2 len 51 sport 5001 dport 5002 flags RETRANSMITTED",
		"#30 A tcp9 DATA seq 3 len 52 sport 5001 dport 5002 flags RETRANSMITTED",
		"#60 A tcp14 PROBE seq 4 NPATHS 8 GEN_NUM 0f5195df SPORT_IDX",
		"#92 B tcp14 MAP", "#92 B tcp14 PROBE seq 4 NPATHS 8 GEN_NUM 0f5195df SPORT_IDX",
		"#94 A tcp14 PROBE-PONG seq 5 NPATHS 8 GEN_NUM 0f5195df SPORT_IDX",
		"#95 B tcp14 PROBE-PONG seq 5 NPATHS 8 GEN_NUM 0f5195df SPORT_IDX",
	}},
	// A scripted peer with a private item; a generation that changes.
	"rds-tcp7-userpeer": {87, []string{
		"#10 B tcp0 MAP", "#10 B tcp0 PROBE seq 1 NPATHS 8 GEN_NUM 73a73de6 SPORT_IDX",
		"#12 A tcp0 PROBE-PONG seq 1 NPATHS 8 GEN_NUM 11111111 SPORT_IDX",
		"#31 B tcp2 MAP", "#31 B tcp2 PROBE seq 2 NPATHS 8 GEN_NUM 73a73de6 SPORT_IDX",
		"#37 A tcp2 PROBE seq 101 NPATHS 8 GEN_NUM 11111111 SPORT_IDX OWN version 1 features 0203 ack-delay 4ms",
		"#41 A tcp2 PROBE-PONG seq 100 NPATHS 8 GEN_NUM 11111111 SPORT_IDX OWN version 1 features 0203 ack-delay 4ms",
		"#39 A tcp2 DATA seq 102 len 4 sport 8000 dport 7000",
		"#43 B tcp2 PROBE-PONG seq 3 NPATHS 8 GEN_NUM 73a73de6 SPORT_IDX",
		"#48 A tcp3 DATA seq 200 len 5 sport 8000 dport 7000", "#54 B tcp3 MAP",
		"#59 A tcp4 DATA seq 201 len 4 sport 8000 dport 7000", "#68 B tcp4 MAP",
		"#70 A tcp2 PROBE seq 103 NPATHS 8 GEN_NUM 55555555 SPORT_IDX",
		"#71 B tcp2 PROBE-PONG seq 4 NPATHS 8 GEN_NUM 73a73de6 SPORT_IDX",
		"#73 B tcp2 DATA seq 1 len 9 sport 5203 dport 8000",
	}},
	// 7.3 is A in the first half and B in the second, 6.1 the other one.
	"rds-tcp7-mixed61": {178, []string{
		"#9 A tcp0 MAP", "#9 A tcp0 PROBE seq 1 NPATHS 8 GEN_NUM 3a32ef86 SPORT_IDX", "#9 A tcp0 PING seq 2 sport 41912",
		"#19 B tcp0 MAP", "#19 B tcp0 PROBE seq 1 NPATHS 8", "#19 B tcp0 PROBE-PONG seq 2 NPATHS 8", "#19 B tcp0 PONG seq 3 dport 41912",
		"#27 A tcp0 PROBE-PONG seq 3 NPATHS 8 GEN_NUM 3a32ef86 SPORT_IDX",
		"#97 B tcp9 MAP", "#97 B tcp9 PROBE seq 1 NPATHS 8 GEN_NUM 3a32ef86 SPORT_IDX",
		"#103 A tcp9 PROBE-PONG seq 1 NPATHS 8",
	}},
}

func TestFacts(t *testing.T) {
	names := pcaptest.Names(t)
	if len(names) != len(facts) {
		t.Errorf("%d captures, facts about %d", len(names), len(facts))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := pcaptest.Load(t, name)
			if len(c.Packets) != facts[name].packets {
				t.Errorf("%d packets, want %d", len(c.Packets), facts[name].packets)
			}
			there := map[string]bool{}
			for _, f := range c.Frames {
				there[f.String()] = true
			}
			for _, f := range facts[name].frames {
				if !there[f] {
					t.Errorf("no frame %q", f)
				}
			}
		})
	}
}

// dials lists the dials of a capture up to a packet, in the order of their
// SYNs: "tcp0 A 32776".
func dials(c *pcaptest.Capture, upTo int) []string {
	var list []string
	seen := map[int]bool{}
	for _, p := range c.Packets[:upTo] {
		if p.SYN && !p.ACK && !seen[p.Conn] {
			seen[p.Conn] = true
			list = append(list, fmt.Sprintf("tcp%d %v %d", p.Conn, p.From, c.Conns[p.Conn].Port))
		}
	}
	return list
}

func TestFactDials(t *testing.T) {
	for _, test := range []struct {
		capture string
		upTo    int
		want    string
	}{
		{"rds-tcp-ping", 10, "tcp0 A 53009"},
		{"rds-tcp-duel", 2, "tcp0 A 43531, tcp1 B 54091"},
		// The port says the path: base + 8*g + index, in any order.
		{"rds-tcp7-first", 58, "tcp0 A 32776, tcp1 A 32778, tcp2 A 32777, tcp3 A 32780, tcp4 A 32779, tcp5 A 32781, tcp6 A 32782, tcp7 A 32783"},
		{"rds-tcp7-larger-first", 64, "tcp0 B 32776, tcp1 A 32776, tcp2 A 32778, tcp3 A 32777, tcp4 A 32780, tcp5 A 32781, tcp6 A 32782, tcp7 A 32783, tcp8 A 32779"},
		// B, the larger side, dials by itself amid its own resets, tcp0 to tcp8;
		// then A from the next group of ports, the path with data first.
		{"rds-tcp7-reconnect-lost", 160, "tcp6 B 32776, tcp9 A 32789, tcp10 A 32791, tcp11 A 32786, tcp12 A 32790, tcp13 A 32787, tcp14 A 32784, tcp15 A 32788, tcp16 A 32785"},
		{"rds-tcp7-userpeer", 87, "tcp0 A 40011, tcp1 B 32776, tcp2 A 40016, tcp3 A 40031, tcp4 A 40039, tcp5 B 32784"},
	} {
		c := pcaptest.Load(t, test.capture)
		if diff := cmp.Diff(strings.Split(test.want, ", "), dials(c, test.upTo)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.capture, diff)
		}
	}
}

// The eight sockets that B lost show as one RST each.
func TestFactReconnectLostResets(t *testing.T) {
	c := pcaptest.Load(t, "rds-tcp-reconnect-lost")
	reset := map[int]bool{}
	for _, p := range c.Packets[32:40] {
		if !p.RST || p.From != pcaptest.B {
			t.Errorf("#%d is no RST of B", p.Number)
		}
		reset[p.Conn] = true
	}
	if len(reset) != wire.MaxPaths {
		t.Errorf("%d connections reset, want %d", len(reset), wire.MaxPaths)
	}
}

// The bytes of the map, apart from what CongMap makes of them.
func TestFactCongestionBytes(t *testing.T) {
	for _, test := range []struct {
		capture string
		packet  int
		b625    byte
	}{
		{"rds-tcp-congestion", 15, 0x40}, {"rds-tcp-congestion", 19, 0},
		{"rds-tcp-big", 31, 0x10}, {"rds-tcp-big", 35, 0},
	} {
		found := false
		for _, f := range pcaptest.Load(t, test.capture).Frames {
			if f.Packet != test.packet {
				continue
			}
			found = true
			for i, b := range f.Payload {
				want := byte(0)
				if i == 625 {
					want = test.b625
				}
				if b != want {
					t.Errorf("%s #%d: byte %d is 0x%02x, want 0x%02x", test.capture, f.Packet, i, b, want)
				}
			}
		}
		if !found {
			t.Errorf("%s: nothing complete at #%d", test.capture, test.packet)
		}
	}
}

// Sixteen sockets, two rounds: the connection goes by the hash of the port, the
// length by the port, and each path numbers on its own.
func TestFactMultipath(t *testing.T) {
	path := map[uint16]int{5200: 7, 5201: 4, 5202: 2, 5203: 0, 5204: 5, 5205: 5, 5206: 6, 5207: 5,
		5208: 1, 5209: 4, 5210: 0, 5211: 3, 5212: 5, 5213: 5, 5214: 1, 5215: 0}
	count := map[uint16]int{}
	next := [wire.MaxPaths]uint64{0: 3, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1} // path 0 has numbered probe and pong
	for _, f := range pcaptest.Load(t, "rds-tcp-multipath").Frames {
		if f.Kind() != "DATA" {
			continue
		}
		h := f.Header
		count[h.SPort]++
		if want := path[h.SPort]; f.Conn != want || int(wire.PathHash(h.SPort, 0)&7) != want {
			t.Errorf("%v: path %d, hash %d, want %d", f, f.Conn, wire.PathHash(h.SPort, 0)&7, want)
		}
		if want := 64 + uint32(h.SPort) - 5200; h.Len != want {
			t.Errorf("%v: length, want %d", f, want)
		}
		if h.Seq != next[f.Conn] {
			t.Errorf("%v: number, want %d", f, next[f.Conn])
		}
		next[f.Conn]++
	}
	if len(count) != len(path) {
		t.Errorf("%d ports, want %d", len(count), len(path))
	}
	for port, n := range count {
		if n != 2 {
			t.Errorf("port %d: %d messages, want 2", port, n)
		}
	}
	if next[0] != 9 {
		t.Errorf("path 0 ends before %d, want 9", next[0])
	}
}

// In other captures, too, the hash tells the path where it is known: ports with
// seed 0, and connections in index order.
func TestFactHash(t *testing.T) {
	for _, test := range []struct {
		capture string
		from    pcaptest.Node
		port    uint16
		paths   uint32
	}{
		{"rds-tcp-ping", pcaptest.A, 12088, 8}, {"rds-tcp-ping", pcaptest.A, 1019, 8},
		{"rds-tcp-sizes", pcaptest.A, 5001, 8}, {"rds-tcp-sizes", pcaptest.B, 5002, 8},
		{"rds-tcp-reconnect-dup", pcaptest.A, 5001, 8},
	} {
		found := false
		for _, f := range pcaptest.Load(t, test.capture).Frames {
			if f.From != test.from || f.Header.SPort != test.port || f.Header.Flags != 0 {
				continue
			}
			found = true
			if got := wire.PathHash(test.port, 0) & (test.paths - 1); int(got) != f.Conn {
				t.Errorf("%s %v: hash says path %d", test.capture, f, got)
			}
		}
		if !found {
			t.Errorf("%s: nothing from %v port %d", test.capture, test.from, test.port)
		}
	}
}

// Linux 7 gives a path's connections source ports that are the path's index
// modulo 8, so there hash and port must agree, in whatever order it dialled.
func TestFactSourcePorts(t *testing.T) {
	for capture, want := range map[string]int{"rds-tcp7-reconnect-lost": 3, "rds-tcp7-mixed61": 2} {
		c := pcaptest.Load(t, capture)
		found := 0
		for _, f := range c.Frames {
			// In the second half of mixed61 the dialler is a 6.1 kernel. On tcp0
			// its peer's number of paths was not known yet.
			if f.From != pcaptest.A || f.Conn == 0 || f.Conn > 9 || f.Kind() != "DATA" && f.Kind() != "PING" {
				continue
			}
			found++
			if port, hash := c.Conns[f.Conn].Port, wire.PathHash(f.Header.SPort, 0)&7; uint32(port%8) != hash {
				t.Errorf("%s %v: port %d, hash says path %d", capture, f, port, hash)
			}
		}
		if found != want {
			t.Errorf("%s: %d messages, want %d", capture, found, want)
		}
	}
}

// With three paths the mask is 2: path 1 is never used. tcp0 is path 0, tcp3
// path 2, and the kernel knows the number from #23 on.
func TestFactThreePaths(t *testing.T) {
	used := map[int]int{}
	for _, f := range pcaptest.Load(t, "rds-tcp-npaths3").Frames {
		if f.Kind() != "DATA" || f.From != pcaptest.B || f.Packet < 56 || f.Packet > 78 {
			continue
		}
		used[f.Conn]++
		want := 0
		if wire.PathHash(f.Header.SPort, 0)&2 != 0 {
			want = 3
		}
		if f.Conn != want {
			t.Errorf("%v: want tcp%d", f, want)
		}
	}
	if len(used) != 2 || used[0]+used[3] != 12 {
		t.Errorf("messages by connection: %v", used)
	}
}

// Everything of the first contact between two Linux 7 nodes is on path 0.
func TestFactLaneZero(t *testing.T) {
	seq := uint64(1)
	for _, f := range pcaptest.Load(t, "rds-tcp7-first").Frames {
		if f.From == pcaptest.B || f.Kind() == "MAP" {
			continue
		}
		if f.Conn != 0 || f.Header.Seq != seq {
			t.Errorf("%v: want number %d on tcp0", f, seq)
		}
		seq++
	}
	if seq != 35 {
		t.Errorf("%d numbered frames, want 34", seq-1)
	}
}
