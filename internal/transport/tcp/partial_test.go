package tcp

import (
	"bytes"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds/internal/buffer"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// lookingStream is an inputStream that shows the reader when it waits at the end of the input.
type lookingStream struct {
	inputStream
	look func(rd *reading)
}

func (s *lookingStream) Read(b transport.ReadBuffers) (int, error) {
	if len(s.data) > 0 {
		return s.inputStream.Read(b)
	}
	b.Buffers()
	b.Idle()
	s.look(b.(*reading))
	return 0, io.EOF
}

// held is what a reader holds of a frame that has not arrived completely, in bytes of buffers.
func (rd *reading) held() (n int) {
	for _, b := range []*buffer.Buffer{rd.buf, rd.large} {
		if b != nil {
			n += len(b.B)
		}
	}
	return n
}

// TestPartialFrames: what the beginning of a frame costs us while its sender waits.
func TestPartialFrames(t *testing.T) {
	frame := func(size, sent int) []byte {
		h := wire.Header{Seq: 1, Len: uint32(size), SPort: 1, DPort: 2}
		return append(h.AppendTo(nil), make([]byte, sent)...)
	}
	whole := frame(1<<20, 1<<20)
	for _, tc := range []struct {
		name string
		data []byte
		most int
	}{
		{"nothing", nil, 0},
		{"half a header", frame(0, 0)[:24], 512},
		{"a header of a small message", frame(10000, 0), 512},
		{"most of a small message", frame(16000, 15000), 16 << 10},
		{"a header of 1 MiB", frame(1<<20, 0), firstStep},
		{"an eighth of 1 MiB, less one", frame(1<<20, firstStep-1), firstStep},
		{"an eighth of 1 MiB", frame(1<<20, firstStep), 1 << 20},
		{"a header of 1 MiB after a whole one", append(whole[:len(whole):len(whole)], frame(1<<20, 0)...), 1 << 20},
	} {
		for _, piece := range []int{1000, 1 << 20} {
			s := &lookingStream{inputStream: inputStream{data: tc.data, piece: piece}, look: func(rd *reading) {
				if n := rd.held(); n > tc.most {
					t.Errorf("%s: %d bytes are held, want at most %d", tc.name, n, tc.most)
				}
			}}
			before := buffer.Live()
			_, l := feedStream(s)
			l.mu.Lock()
			l.c.Path(0).Tx.Down(true)
			left := l.c.Path(0).Tx.Unsent() // our probe
			l.mu.Unlock()
			if n := int(buffer.Live() - before); n > min(left, 1) {
				t.Errorf("%s: %d buffers lost", tc.name, n)
			}
		}
	}
}

// TestGrownPayload arrives intact.
func TestGrownPayload(t *testing.T) {
	var data []byte
	var want [][]byte
	for i, n := range []int{largePayload, firstStep - 1, firstStep, firstStep + 1, 200_000, 1 << 20, 100, 1 << 20} {
		h := wire.Header{Seq: uint64(i + 1), Len: uint32(n), SPort: 1, DPort: 2}
		p := make([]byte, n)
		for j := range p {
			p[j] = byte(i + j + j>>8 + j>>16)
		}
		want = append(want, p)
		data = append(h.AppendTo(data), p...)
	}
	for _, piece := range []int{47, 1000, firstStep, 1 << 22} {
		k := &keeping{}
		feedTo(k, &inputStream{data: data, piece: piece})
		if len(k.got) != len(want) {
			t.Fatalf("pieces of %d: %d messages, want %d", piece, len(k.got), len(want))
		}
		for i := range want {
			if !bytes.Equal(k.got[i], want[i]) {
				t.Errorf("pieces of %d: message %d of %d bytes is damaged", piece, i, len(want[i]))
			}
		}
		if k.reserved != 0 {
			t.Errorf("pieces of %d: %d bytes stay reserved", piece, k.reserved)
		}
	}
}

// keeping is an engine that keeps messages, and refuses further large ones when it has limit of all kinds.
type keeping struct {
	discard
	got      [][]byte
	link     transport.Link
	limit    int // 0: none
	reserved int
	refused  int
}

func (k *keeping) NewLink(l transport.Link, _, _ netip.Addr) transport.Handler {
	k.link = l
	return k
}

func (k *keeping) Deliver(m transport.Inbound) bool {
	k.got = append(k.got, bytes.Clone(m.Payload))
	if m.Reserved {
		k.reserved -= len(m.Payload)
	}
	return k.discard.Deliver(m)
}

func (k *keeping) Reserve(n int) bool {
	if k.limit > 0 && len(k.got) >= k.limit {
		k.refused++
		return false
	}
	k.reserved += n
	return true
}

func (k *keeping) Unreserve(n int) { k.reserved -= n }

// TestRefusedReservation: a large message for which there is no room waits, with all that is behind it, and is not
// lost even if the stream ends meanwhile; a cut off one gives its room back.
func TestRefusedReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var data []byte
		for i, n := range []int{20000, 10, 20000, 10} {
			h := wire.Header{Seq: uint64(i + 1), Len: uint32(n), SPort: 1, DPort: 2}
			data = append(h.AppendTo(data), make([]byte, n)...)
		}
		h := wire.Header{Seq: 9, Len: 50000, SPort: 1, DPort: 2}
		data = h.AppendTo(data)
		k := &keeping{limit: 2}
		done := make(chan struct{})
		go func() { feedTo(k, &inputStream{data: data, piece: 1 << 20}); close(done) }()
		synctest.Wait()
		if len(k.got) != 2 || k.refused != 1 {
			t.Fatalf("%d messages, refused %d times, want 2 and once", len(k.got), k.refused)
		}
		k.link.Resume() // to no purpose
		synctest.Wait()
		if len(k.got) != 2 || k.refused != 2 {
			t.Fatalf("%d messages, refused %d times, want 2 and twice", len(k.got), k.refused)
		}
		k.limit = 0
		k.link.Resume()
		<-done
		if len(k.got) != 4 || k.reserved != 0 {
			t.Errorf("%d messages, want 4; %d bytes stay reserved", len(k.got), k.reserved)
		}
		time.Sleep(time.Hour)
	})
}
