package path

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/wire"
)

var update = flag.Bool("update", false, "write the golden traces anew")

// TestScenarios plays every story in testdata/*.txt and compares the trace with
// its golden file. A story is one command a line; the trace repeats each and says what came of it: frames written,
// verdicts on frames received, actions, events, releases, and when the next timer is due.
//
//	local A remote B [npaths=N version=N features=N gennum]   first line
//	send SPORT DPORT len=N [soon] [owner=NAME]
//	cancel owner=NAME [dport]
//	dialed ok|failed
//	incoming PORT
//	write PATH [max=N]             the stream takes at most N bytes
//	recv PATH FRAME …              one batch of frames
//	sample PATH outq=N
//	ended PATH [outq=N]            the stream is read to its end; outq bytes were not acknowledged by TCP
//	broken PATH
//	map                            the local congestion map changed
//	wait DURATION                  time passes; timers fire
//	close
//
// A FRAME is map | badmap | ack=N | probe:ITEMS | pong:ITEMS | ping:SPORT | data:SPORT:DPORT:LEN, with /seq=N /flags=N /ack=N
// behind it. ITEMS: n8 (NPATHS), gHEX (GEN_NUM), s (SPORT_IDX), oHEX (private item with generation), joined by +.
func TestScenarios(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, story := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(story), ".txt"), func(t *testing.T) {
			before := buffer.Live()
			script, err := os.ReadFile(story)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, script)
			golden := strings.TrimSuffix(story, ".txt") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
				t.Errorf("trace differs from %s (-want +got):\n%s", golden, d)
			}
			_ = before
		})
	}
}

type namedOwner struct {
	name string
	out  *bytes.Buffer
}

func (o *namedOwner) Released(msgs, bytes int) {
	fmt.Fprintf(o.out, "    release %s %d messages %d bytes\n", o.name, msgs, bytes)
}

type stage struct {
	t      *testing.T
	c      *Connection
	now    time.Time
	out    bytes.Buffer
	owners map[string]*namedOwner
}

func play(t *testing.T, script []byte) []byte {
	s := &stage{t: t, now: time.Unix(1000, 0), owners: map[string]*namedOwner{}}
	sc := bufio.NewScanner(bytes.NewReader(script))
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&s.out, line)
			continue
		}
		fmt.Fprintln(&s.out, line)
		s.command(strings.Fields(line))
		if s.c != nil {
			s.settle()
		}
	}
	return s.out.Bytes()
}

// arg finds name=value.
func arg(f []string, name, def string) string {
	for _, w := range f {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
	}
	return def
}

func has(f []string, word string) bool {
	for _, w := range f {
		if w == word {
			return true
		}
	}
	return false
}

func (s *stage) num(v string, base int) uint64 {
	n, err := strconv.ParseUint(v, base, 64)
	if err != nil {
		s.t.Fatalf("%q is no number", v)
	}
	return n
}

func (s *stage) owner(name string) *namedOwner {
	o := s.owners[name]
	if o == nil {
		o = &namedOwner{name, &s.out}
		s.owners[name] = o
	}
	return o
}

func (s *stage) command(f []string) {
	num := func(v string) int { return int(s.num(v, 10)) }
	switch f[0] {
	case "local":
		cfg := Config{Local: netip.MustParseAddr(f[1]), Remote: netip.MustParseAddr(f[3]), Generation: 0xabcd0001, FirstSeq: 100,
			MaxAckDelay: 5 * time.Millisecond, MinBackoff: time.Millisecond, MaxBackoff: time.Second, MaxPongs: 3,
			Rand: func(n int64) int64 { return n - 1 }, GenNum: has(f, "gennum"), DisablePing: has(f, "noping")}
		if v := arg(f, "version", ""); v != "" {
			cfg.Handshake = wire.Handshake{NPaths: 1, SportIdx: true, Own: true, Version: uint8(num(v)), OwnGeneration: 0xabcd0001,
				Features: uint16(s.num(arg(f, "features", "0"), 16)), MaxAckDelay: 5}
		}
		s.c = New(cfg)
	case "send":
		s.c.Path(0).Tx.Enqueue(&wire.Header{SPort: uint16(num(f[1])), DPort: uint16(num(f[2]))}, make([]byte, num(arg(f, "len", "0"))),
			s.owner(arg(f, "owner", "app")), has(f, "soon"))
		s.c.Want(s.now)
	case "cancel":
		dport := arg(f, "dport", "")
		port := 0
		if dport != "" {
			port = num(dport)
		}
		m, b := s.c.Path(0).Tx.Cancel(s.owner(arg(f, "owner", "app")), uint16(port), dport == "")
		fmt.Fprintf(&s.out, "    cancelled %d messages %d bytes\n", m, b)
	case "dialed":
		fmt.Fprintf(&s.out, "    use %v\n", s.c.Dialed(s.now, 0, f[1] == "ok"))
	case "incoming":
		a, i := s.c.Incoming(s.now, uint16(num(f[1])))
		fmt.Fprintf(&s.out, "    %s path %d\n", [...]string{"refuse", "adopt", "hold for"}[a], i)
	case "write":
		s.write(num(f[1]), num(arg(f, "max", "1000000000")))
	case "recv":
		s.recv(num(f[1]), f[2:])
	case "sample":
		s.c.Sampled(s.now, num(f[1]), s.c.Path(num(f[1])).Tx.Written(), num(arg(f, "outq", "0")))
	case "ended":
		i := num(f[1])
		outq := int(s.c.Path(i).Tx.Written())
		if v := arg(f, "outq", ""); v != "" {
			outq = num(v)
		}
		s.c.Ending(i)
		s.c.Sampled(s.now, i, s.c.Path(i).Tx.Written(), outq)
		s.c.Ended(s.now, i)
	case "broken":
		s.c.Broken(s.now, num(f[1]))
	case "urge":
		s.c.Urge(s.now)
	case "map":
		s.c.MapChanged()
	case "close":
		s.c.Close(s.now)
	case "wait":
		s.wait(f[1])
	default:
		s.t.Fatalf("unknown command %q", f[0])
	}
}

// wait lets time pass, timer by timer.
func (s *stage) wait(v string) {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatal(err)
	}
	end := s.now.Add(d)
	for n := 0; ; n++ {
		next := s.c.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if n > 1000 {
			s.t.Fatalf("timers do not come to rest: %v", next)
		}
		if next.After(s.now) {
			s.now = next
		}
		fmt.Fprintf(&s.out, "  at %v\n", s.now.Sub(time.Unix(1000, 0)))
		s.c.Tick(s.now)
		s.settle()
	}
	s.now = end
}

// write prints what goes on the wire.
func (s *stage) write(i, limit int) {
	p := s.c.Path(i)
	if s.c.TakeMapDue(i) {
		b := buffer.Get(wire.HeaderLen + wire.MapLen)
		clear(b.B)
		h := wire.Header{Flags: wire.FlagCongBitmap, Len: wire.MapLen}
		h.Put(b.B)
		p.Tx.PutControl(b, wire.HeaderLen+wire.MapLen)
	}
	var iov [16][]byte
	bufs := s.c.Gather(s.now, i, iov[:0], 1<<20)
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	// Frames are printed from a copy cut to what the stream takes.
	flat := bytes.Join(bufs, nil)
	n := min(total, limit)
	rest := s.partial(p)
	for at := 0; at < n; {
		if rest > 0 {
			k := min(rest, n-at)
			fmt.Fprintf(&s.out, "    -> %d bytes of a frame begun before\n", k)
			at, rest = at+k, 0
			continue
		}
		v, err := wire.View(flat[at:])
		if err != nil {
			fmt.Fprintf(&s.out, "    -> %d bytes of a header\n", n-at)
			break
		}
		size := wire.HeaderLen + int(v.Len())
		part := ""
		if at+size > n {
			part = fmt.Sprintf(" (%d of %d bytes)", n-at, size)
		}
		fmt.Fprintf(&s.out, "    -> %s%s\n", show(v), part)
		at += size
	}
	if total == 0 {
		fmt.Fprintln(&s.out, "    -> nothing")
	}
	s.c.Wrote(s.now, i, n)
}

// partial returns the missing bytes of the frame that is half written.
func (s *stage) partial(p *Path) int {
	switch {
	case p.Tx.part > 0:
		return int(p.Tx.q.at(p.Tx.next).n - p.Tx.part)
	case p.Tx.ctlPart > 0:
		return p.Tx.ctlLen[0] - p.Tx.ctlPart
	}
	return 0
}

func show(v wire.HeaderView) string {
	h := v.Header()
	name := ""
	switch Classify(v) {
	case ClassMap:
		name = "MAP "
	case ClassProbe:
		name = "PROBE "
	case ClassPong:
		name = "PROBE-PONG "
	case ClassPing:
		name = "PING "
	case ClassAck:
		name = "ACK "
	}
	if h.Csum != 0 {
		if !v.CsumOK() {
			return name + "WRONG CHECKSUM"
		}
		h.Csum = 0 // correct, and of no interest in a trace
		return name + h.String() + " sealed"
	}
	return name + h.String()
}

// frame builds a header from its description.
func (s *stage) frame(d string) wire.HeaderView {
	var h wire.Header
	parts := strings.Split(d, "/")
	kind, rest, _ := strings.Cut(parts[0], ":")
	switch kind {
	case "map":
		h.Flags, h.Len = wire.FlagCongBitmap, wire.MapLen
	case "badmap":
		h.Flags, h.Len = wire.FlagCongBitmap, 100
	case "probe", "pong":
		h.SPort = wire.ProbePort
		if kind == "pong" {
			h.SPort, h.DPort = wire.PingPort, wire.ProbePort
		}
		var hs wire.Handshake
		for _, item := range strings.Split(rest, "+") {
			if item == "" {
				continue
			}
			v := item[1:]
			switch item[0] {
			case 'n':
				hs.NPaths = uint16(s.num(v, 10))
			case 'g':
				hs.Generation = uint32(s.num(v, 16))
			case 's':
				hs.SportIdx = true
			case 'o':
				hs.Own, hs.OwnGeneration, hs.Features, hs.MaxAckDelay = true, uint32(s.num(v, 16)), wire.FeatureCsum, 5
			}
		}
		h.Ext = hs.Area()
	case "ping":
		h.SPort = uint16(s.num(rest, 10))
	case "data":
		v := strings.Split(rest, ":")
		h.SPort, h.DPort, h.Len = uint16(s.num(v[0], 10)), uint16(s.num(v[1], 10)), uint32(s.num(v[2], 10))
	case "ack":
	default:
		s.t.Fatalf("unknown frame %q", d)
	}
	for _, p := range parts[1:] {
		k, v, _ := strings.Cut(p, "=")
		switch k {
		case "seq":
			h.Seq = s.num(v, 10)
		case "ack":
			h.Ack = s.num(v, 10)
		case "flags":
			h.Flags = wire.Flags(s.num(v, 16))
		}
	}
	return wire.HeaderView(h.AppendTo(nil))
}

// recv plays the driver's reader for one batch.
func (s *stage) recv(i int, frames []string) {
	p := s.c.Path(i)
	var ack uint64
	numbered, soon := false, false
	batch := func() {
		if numbered || ack != 0 {
			s.c.Batch(s.now, i, ack, numbered, soon)
		}
		ack, numbered, soon = 0, false, false
	}
	verdicts := [...]string{"accept", "drop duplicate", "accept, restarted", "accept, odd"}
	s.c.Heard(i)
	for _, d := range frames {
		v := s.frame(d)
		ack = max(ack, v.Ack())
		class := Classify(v)
		var verdict Verdict
		switch class {
		case ClassMap:
			fmt.Fprintf(&s.out, "    <- %s: remote map\n", d)
			continue
		case ClassBadMap:
			fmt.Fprintf(&s.out, "    <- %s: ignore\n", d)
			continue
		case ClassAck:
			fmt.Fprintf(&s.out, "    <- %s\n", d)
			continue
		case ClassData:
			numbered = true
			soon = soon || v.Flags()&wire.FlagAckRequired != 0
			verdict = p.Rx.Accept(v.Seq(), v.Flags())
			if verdict == AcceptRestart || verdict == AcceptOdd {
				s.c.Restarted(i, verdict)
			}
		default:
			batch()
			verdict = s.c.Control(s.now, i, class, v)
			ack = max(ack, v.Ack())
		}
		fmt.Fprintf(&s.out, "    <- %s: %s\n", d, verdicts[verdict])
	}
	batch()
}

// settle prints what the connection wants.
func (s *stage) settle() {
	for i := range s.c.Paths() {
		s.c.Path(i).Tx.TakeReleases(func(r Release) { r.Owner.Released(r.Msgs, r.Bytes) })
	}
	actions, events := s.c.Take()
	for _, e := range events {
		name := [...]string{"", "up", "down", "peer restarted", "peer known", "odd sequence", "ping limit"}[e.Kind]
		fmt.Fprintf(&s.out, "    event %s path %d", name, e.Path)
		if e.Kind == EventDown || e.Kind == EventPeerRestarted {
			fmt.Fprintf(&s.out, ", %d messages again", e.Count)
		}
		if e.Kind == EventPeerKnown {
			fmt.Fprintf(&s.out, ", %v", s.c.Peer().Kind)
		}
		fmt.Fprintln(&s.out)
	}
	for _, a := range actions {
		name := [...]string{"", "dial", "write", "hang up", "abandon", "promote to", "sample"}[a.Kind]
		fmt.Fprintf(&s.out, "    do %s path %d", name, a.Path)
		switch a.Kind {
		case ActDial:
			fmt.Fprintf(&s.out, " from port group %d", a.Attempt)
		case ActPromote:
			fmt.Fprintf(&s.out, " the stream held for path %d", a.From)
		}
		fmt.Fprintln(&s.out)
	}
	p := s.c.Path(0)
	fmt.Fprintf(&s.out, "    [%v, %d unsent, %d unacknowledged", p.State, p.Tx.Unsent(), p.Tx.Unacked())
	if next := s.c.Next(); !next.IsZero() {
		fmt.Fprintf(&s.out, ", next timer in %v", max(next.Sub(s.now), 0))
	}
	fmt.Fprintln(&s.out, "]")
}
