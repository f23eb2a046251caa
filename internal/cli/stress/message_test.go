package stress

import (
	"bytes"
	"testing"
)

var testOptions = Options{Tasks: 2, Depth: 2, ReqBytes: 100, AckBytes: 45, Verify: true}

func TestMessage(t *testing.T) {
	for _, verify := range []bool{true, false} {
		o := testOptions
		o.Verify = verify
		l := newLayout(&o, 7)
		buf := make([]byte, 100)
		for _, h := range []header{
			{},
			{from: 1, to: 2, number: 3, request: 4},
			{from: 65535, to: 65535, kind: answer, number: 1<<64 - 1, request: 1<<64 - 1},
		} {
			m := l.put(buf, h)
			if want := []int{100, 45}[h.kind]; len(m) != want {
				t.Errorf("%+v: %d bytes, want %d", h, len(m), want)
			}
			if got, v := l.parse(m); v != good || got != h {
				t.Errorf("verify %v: got %+v, verdict %d, want %+v", verify, got, v, h)
			}
		}
	}
}

// A flipped bit in the header is always noticed, one in the rest when that is verified, in messages of
// all lengths. A message of another length is never believed.
func TestMessageDamaged(t *testing.T) {
	for size := headerSize; size < headerSize+20; size++ {
		for _, verify := range []bool{true, false} {
			o := Options{ReqBytes: size, AckBytes: MinSize, Verify: verify}
			l := newLayout(&o, 7)
			sound := l.put(make([]byte, size+1), header{from: 1, number: 99, request: 50})
			for bit := range 8 * size {
				m := bytes.Clone(sound)
				m[bit/8] ^= 1 << (bit % 8)
				_, v := l.parse(m)
				if want := verify || bit < 8*headerSize; (v == damaged) != want {
					t.Errorf("%d bytes, verify %v, bit %d flipped: verdict %d, noticed wanted: %v", size, verify, bit, v, want)
				}
			}
			for _, length := range []int{0, headerSize - 1, size - 1, size + 1} {
				if _, v := l.parse(sound[:length]); v != damaged {
					t.Errorf("%d of %d bytes: verdict %d", length, size, v)
				}
			}
		}
	}
}

// What an earlier run left behind is told from damage.
func TestMessageForeign(t *testing.T) {
	old, now := newLayout(&testOptions, 1), newLayout(&testOptions, 2)
	m := old.put(make([]byte, 100), header{number: 5})
	if _, v := now.parse(m); v != foreign {
		t.Errorf("of another run: verdict %d", v)
	}
	m[offNumber] ^= 1
	if _, v := now.parse(m); v != damaged {
		t.Errorf("damaged, of another run: verdict %d", v)
	}
}

// Messages of the same flow have different patterns, so that a mixture of two is noticed.
func TestMessagesDiffer(t *testing.T) {
	l := newLayout(&testOptions, 7)
	seen := map[string]bool{}
	for _, h := range []header{{}, {number: 1}, {from: 1}, {to: 1}, {request: 1}, {number: 1, request: 1}} {
		p := string(l.put(make([]byte, 100), h)[headerSize:])
		if seen[p] {
			t.Errorf("%+v has the pattern of another message", h)
		}
		seen[p] = true
	}
}

func FuzzParse(f *testing.F) {
	l := newLayout(&testOptions, 7)
	f.Add(l.put(make([]byte, 100), header{from: 1}))
	f.Add(l.put(make([]byte, 100), header{kind: answer}))
	f.Fuzz(func(t *testing.T, m []byte) {
		h, v := l.parse(m)
		if v != good {
			return
		}
		if again := l.put(make([]byte, 100), h); !bytes.Equal(again, m) {
			t.Errorf("%x was believed, but %+v makes %x", m, h, again)
		}
	})
}

func BenchmarkMessage(b *testing.B) {
	for _, verify := range []bool{false, true} {
		b.Run(map[bool]string{false: "header", true: "verified"}[verify], func(b *testing.B) {
			o := Options{ReqBytes: 1024, AckBytes: 63, Verify: verify}
			l, buf := newLayout(&o, 1), make([]byte, 1024)
			b.SetBytes(1024)
			for i := range b.N {
				if _, v := l.parse(l.put(buf, header{number: uint64(i)})); v != good {
					b.Fatal(v)
				}
			}
		})
	}
}
