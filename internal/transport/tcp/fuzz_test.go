package tcp

import (
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/path"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
	"github.com/rds-go/rds/internal/wire/pcaptest"
)

// inputStream gives its bytes piece by piece, then EOF. What is written to it is thrown away.
type inputStream struct {
	data  []byte
	piece int
	wrote int
}

func (s *inputStream) Read(b transport.ReadBuffers) (int, error) {
	b.Buffers()
	b.Idle() // every read waits first
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := 0
	for _, p := range b.Buffers() {
		k := copy(p, s.data[:min(len(s.data), s.piece)])
		s.data = s.data[k:]
		n += k
		if len(p) > k {
			break
		}
	}
	if n == 0 {
		return 0, errors.New("the reader offered no room")
	}
	return n, nil
}

func (s *inputStream) TryWrite(bufs [][]byte) (n int, err error) {
	for _, b := range bufs {
		n += len(b)
	}
	s.wrote += n
	return n, nil
}
func (s *inputStream) WaitWrite() error           { return nil }
func (s *inputStream) Unacked() (int, error)      { return 0, nil }
func (s *inputStream) CloseWrite() error          { return nil }
func (s *inputStream) Close() error               { return nil }
func (s *inputStream) Reset() error               { return nil }
func (s *inputStream) LocalAddr() netip.AddrPort  { return netip.AddrPortFrom(simB, wire.Port) }
func (s *inputStream) RemoteAddr() netip.AddrPort { return netip.AddrPortFrom(simA, 32776) }

// discard is an engine that takes everything.
type discard struct{ delivered, protocol int }

func (d *discard) NewLink(transport.Link, netip.Addr, netip.Addr) transport.Handler { return d }
func (d *discard) MayPeer(netip.Addr) bool                                          { return true }
func (d *discard) Refused(_, _ netip.AddrPort, _ error)                             {}
func (d *discard) Deliver(m transport.Inbound) bool {
	d.delivered++
	if m.Buf != nil {
		m.Buf.Release()
	}
	return true
}
func (d *discard) RemoteMap(*wire.CongMap) {}
func (d *discard) LocalMap(*wire.CongMap)  {}
func (d *discard) Event(e transport.Event) {
	if e.Kind == transport.EventProtocol && !e.Harmless {
		d.protocol++
	}
}

// feed reads data as the stream of a fresh link, piece bytes at a time.
func feed(data []byte, piece int) (*discard, *Link) {
	return feedStream(&inputStream{data: data, piece: piece})
}

func feedStream(s transport.Stream) (*discard, *Link) {
	d := &discard{}
	return d, feedTo(d, s)
}

// feedTo reads s as the stream of a fresh link of host.
func feedTo(host transport.Host, s transport.Stream) *Link {
	cfg := Config{Addrs: []netip.Addr{simB}}
	cfg.setDefaults()
	t := &Transport{cfg: cfg, host: host, links: map[pair]*slot{}}
	l, err := t.link(simB, simA)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	if a, _ := l.c.Incoming(time.Now(), 32776); a != path.Adopt {
		panic("not adopted")
	}
	ln := newLane(l, 0)
	l.lanes[0] = ln
	ln.stream = s
	l.settle()
	l.mu.Unlock()
	t.wg.Add(1)
	ln.reader(s)
	l.mu.Lock()
	l.stopTimer()
	l.mu.Unlock()
	return l
}

// FuzzStream reads arbitrary bytes from a peer: no panic, no buffer lost.
func FuzzStream(f *testing.F) {
	for _, name := range []string{"rds-tcp-ping", "rds-tcp-sizes", "rds-tcp7-userpeer"} {
		for _, frame := range pcaptest.Load(f, name).Frames {
			f.Add(append(frame.Header.AppendTo(nil), frame.Payload...), 1000)
		}
	}
	h := wire.Header{Seq: 1, Len: 1<<32 - 1, SPort: 1, DPort: 2}
	f.Add(h.AppendTo(nil), 48)
	h.Len = 100_000
	f.Add(append(h.AppendTo(nil), make([]byte, 50_000)...), 7)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		before := buffer.Live()
		_, l := feed(data, max(piece&0xffff, 1))
		l.mu.Lock()
		l.c.Path(0).Tx.Down(true)
		again := l.c.Path(0).Tx.Unsent()
		l.mu.Unlock()
		if n := buffer.Live() - before; again == 0 && n != 0 {
			t.Errorf("%d buffers lost", n)
		}
	})
}

// TestTooLongCostsTheStream: an h_len above the limit is a protocol error, whatever follows.
func TestTooLongCostsTheStream(t *testing.T) {
	good := wire.Header{Seq: 1, Len: 3, SPort: 1, DPort: 2}
	data := append(good.AppendTo(nil), "abc"...)
	for _, n := range []uint32{1<<20 + 1, 1 << 31, 1<<32 - 1} {
		bad := wire.Header{Seq: 2, Len: n, SPort: 1, DPort: 2}
		d, l := feed(append(bad.AppendTo(append([]byte(nil), data...)), make([]byte, 5000)...), 100)
		if d.delivered != 1 || d.protocol != 1 {
			t.Errorf("h_len %d: %d delivered, %d protocol errors, want 1 and 1", n, d.delivered, d.protocol)
		}
		if !errors.Is(l.lanes[0].why, errPayloadLen) {
			t.Errorf("h_len %d: stream ended with %v", n, l.lanes[0].why)
		}
	}
}

// TestCaptures reads what real kernels sent: every message reaches the engine once.
func TestCaptures(t *testing.T) {
	for _, c := range []struct {
		name      string
		delivered int // by node A's stream tcp0
	}{{"rds-tcp-duel", 1}, {"rds-tcp7-first", 32}} {
		var data []byte
		want := 0
		for _, f := range pcaptest.Load(t, c.name).Frames {
			if f.Conn == 0 && f.From.String() == "A" {
				data = append(f.Header.AppendTo(data), f.Payload...)
				want++
			}
		}
		for _, piece := range []int{1, 47, 48, 49, 1000, 1 << 20} {
			d, _ := feed(data, piece)
			if d.delivered != c.delivered || d.protocol != 0 {
				t.Errorf("%s in pieces of %d: %d of %d frames delivered as messages, want %d", c.name, piece, d.delivered, want, c.delivered)
			}
		}
	}
}
