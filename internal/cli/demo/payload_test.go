package demo

import "testing"

func TestPatternRoundTrip(t *testing.T) {
	p := pattern{seed: 7, size: 200}
	shortest, longest := p.size, 0
	for number := range uint64(5000) {
		m := p.append(nil, 3, 9, number)
		shortest, longest = min(shortest, len(m)), max(longest, len(m))
		from, to, n, ok := p.parse(m)
		if !ok || from != 3 || to != 9 || n != number {
			t.Fatalf("message %d reads as %d, %d, %d, %v", number, from, to, n, ok)
		}
	}
	if shortest != MinSize || longest != p.size {
		t.Errorf("lengths from %d to %d, want %d to %d", shortest, longest, MinSize, p.size)
	}
	if _, _, _, ok := (pattern{1, MinSize}).parse(pattern{1, MinSize}.append(nil, 0, 0, 0)); !ok {
		t.Error("a message without pattern does not parse")
	}
}

// The same seed makes the same messages, another seed others.
func TestPatternSeed(t *testing.T) {
	a, again, b := pattern{seed: 1, size: 64}, pattern{seed: 1, size: 64}, pattern{seed: 2, size: 64}
	same := 0
	for number := range uint64(100) {
		m := a.append(nil, 1, 2, number)
		if string(m) != string(again.append(nil, 1, 2, number)) {
			t.Fatalf("message %d differs under the same seed", number)
		}
		if len(m) == len(b.append(nil, 1, 2, number)) {
			same++
		}
		if _, _, _, ok := b.parse(m); ok {
			t.Fatalf("message %d is accepted under another seed", number)
		}
	}
	if same == 100 {
		t.Error("lengths do not depend on the seed")
	}
}

// No changed bit, no cut and no surplus byte goes unnoticed.
func TestPatternDamage(t *testing.T) {
	p := pattern{seed: 7, size: 90}
	for number := range uint64(20) {
		m := p.append(nil, 3, 9, number)
		for i := range m {
			for bit := range 8 {
				m[i] ^= 1 << bit
				if _, _, _, ok := p.parse(m); ok {
					t.Fatalf("message %d: bit %d of byte %d turned and not noticed", number, bit, i)
				}
				m[i] ^= 1 << bit
			}
			if _, _, _, ok := p.parse(m[:i]); ok {
				t.Fatalf("message %d: cut to %d bytes and not noticed", number, i)
			}
		}
		if _, _, _, ok := p.parse(append(m, 0)); ok {
			t.Fatalf("message %d: surplus byte not noticed", number)
		}
	}
}
