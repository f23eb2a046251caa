package fault

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/rds-go/rds/internal/wire"
)

// framing follows the frames of a written stream: a header of 48 bytes that has the length
// of the payload behind it, the payload, the next header (RDS spec sections 8 and 9).
type framing struct {
	head    [wire.HeaderLen]byte
	got     int   // bytes of the header that have passed; 0 = at the start of a frame, or in a payload
	payload int64 // bytes of the payload that are still to pass
}

const lenOffset = 16 // of h_len

// advance follows the first n bytes of bufs.
func (f *framing) advance(bufs [][]byte, n int) {
	for _, p := range bufs {
		p = p[:min(len(p), n)]
		n -= len(p)
		f.pass(p)
	}
}

func (f *framing) pass(p []byte) {
	for len(p) > 0 {
		if f.payload > 0 {
			k := min(int64(len(p)), f.payload)
			p, f.payload = p[k:], f.payload-k
			continue
		}
		k := copy(f.head[f.got:], p)
		p, f.got = p[k:], f.got+k
		if f.got == len(f.head) {
			f.got = 0
			f.payload = int64(binary.BigEndian.Uint32(f.head[lenOffset:]))
		}
	}
}

// flip returns bufs with one bit of one header turned, which begins and ends in bufs, and
// the offset of the byte; or bufs and -1 when there is no such header. The buffers
// themselves belong to the caller and stay as they are.
func (f *framing) flip(bufs [][]byte, rng *rand.Rand, any bool) ([][]byte, int) {
	starts := f.headers(bufs, any)
	if len(starts) == 0 {
		return bufs, -1
	}
	bit := rng.IntN(wire.HeaderLen * 8)
	at := starts[rng.IntN(len(starts))] + bit/8
	out := make([][]byte, 0, len(bufs)+2)
	pos := 0
	for _, p := range bufs {
		if i := at - pos; i >= 0 && i < len(p) {
			out = append(out, p[:i], []byte{p[i] ^ 1<<(bit%8)}, p[i+1:])
		} else {
			out = append(out, p)
		}
		pos += len(p)
	}
	return out, at
}

// headers returns where the headers begin that are whole in bufs, and have a checksum unless any.
func (f *framing) headers(bufs [][]byte, any bool) (starts []int) {
	walk, pos := *f, 0
	for _, p := range bufs {
		for len(p) > 0 {
			k := int64(len(p))
			if walk.payload > 0 {
				k = min(k, walk.payload)
			} else {
				k = min(k, int64(wire.HeaderLen-walk.got))
			}
			inHead := walk.payload == 0
			walk.pass(p[:k])
			p, pos = p[k:], pos+int(k)
			if start := pos - wire.HeaderLen; inHead && walk.got == 0 && start >= 0 && (any || wire.HeaderView(walk.head[:]).Csum() != 0) {
				starts = append(starts, start)
			}
		}
	}
	return starts
}
