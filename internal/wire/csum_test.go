package wire_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

func view(tb testing.TB, b []byte) wire.HeaderView {
	tb.Helper()
	v, err := wire.View(b)
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// wordSum is RFC 1071 as it is written: word by word, every carry at once.
func wordSum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < wire.HeaderLen; i += 2 {
		if i == 30 {
			continue // h_csum counts as 0
		}
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func TestCsumVectors(t *testing.T) {
	for _, v := range vectors(t, "K", "S") {
		h := view(t, unhex(t, v.fields[0]))
		sealed := v.name == "S4" || v.name == "S5"
		if sealed != (h.Csum() != 0) || sealed && h.Sum() != h.Csum() {
			t.Errorf("%s: checksum 0x%04x, Sum 0x%04x", v.name, h.Csum(), h.Sum())
		}
		if !h.CsumOK() {
			t.Errorf("%s: not accepted", v.name)
		}
		if sealed {
			h.SetCsum(h.Csum() ^ 0x0100)
			if h.CsumOK() {
				t.Errorf("%s: a wrong checksum is accepted", v.name)
			}
			h.SetCsum(0)
			if !h.CsumOK() {
				t.Errorf("%s: no checksum is not accepted", v.name)
			}
		}
	}
}

// A header whose words add up to 0xffff, the one zero, has the complement
// 0x0000, the other zero, which cannot stand in h_csum.
func TestCsumZero(t *testing.T) {
	for _, h := range []wire.Header{
		{SPort: 0xffff},
		{SPort: 0xfffe, DPort: 1},
		{Seq: 0xffff_ffff_ffff_ffff, Ack: 0xffff_ffff_ffff_ffff},
		{Seq: 0x8000_0000_0000_0000, Ack: 0x7fff_0000_0000_0000},
		{}, // all zero: the complement is 0xffff as it is
	} {
		v := view(t, h.AppendTo(nil))
		if got := v.Sum(); got != 0xffff {
			t.Errorf("%v: Sum 0x%04x, want 0xffff", &h, got)
		}
		v.Seal()
		if v.Csum() != 0xffff || !v.CsumOK() {
			t.Errorf("%v: sealed 0x%04x, ok %v", &h, v.Csum(), v.CsumOK())
		}
	}
}

func TestCsumAgainstWords(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, wire.HeaderLen)
	for range 20000 {
		for i := range b {
			// Many 0x00 and 0xff, where carries and the two zeros are.
			switch b[i] = byte(rnd.Uint32()); rnd.IntN(4) {
			case 0:
				b[i] = 0
			case 1:
				b[i] = 0xff
			}
		}
		v := view(t, b)
		want := wordSum(b)
		if want == 0 {
			want = 0xffff
		}
		if got := v.Sum(); got != want {
			t.Fatalf("%x: Sum 0x%04x, want 0x%04x", b, got, want)
		}
		// Of the values of h_csum only 0, the sum, and where the sum is zero
		// its other form are accepted.
		ok := v.Csum() == 0 || v.Csum() == want
		if v.CsumOK() != ok {
			t.Fatalf("%x: CsumOK %v, want %v", b, v.CsumOK(), ok)
		}
		v.Seal()
		if v.Csum() != want || !v.CsumOK() {
			t.Fatalf("%x: sealed 0x%04x, want 0x%04x", b, v.Csum(), want)
		}
		bit := rnd.IntN(wire.HeaderLen * 8)
		if b[bit/8] ^= 1 << (bit % 8); v.CsumOK() && v.Csum() != 0 {
			t.Fatalf("%x: bit %d is wrong and the checksum accepts it", b, bit)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	v := view(b, everyField.AppendTo(nil))
	for b.Loop() {
		v.Sum()
	}
}
