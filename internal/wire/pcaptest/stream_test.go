package pcaptest

import (
	"slices"
	"testing"
)

// step is one segment; data "SYN" stands for a SYN without data.
type step struct {
	seq  uint32
	data string
}

func TestAssembler(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps []step // packets #1, #2, …
		data  string
		by    []int // the packet that brought each byte
		held  int
	}{
		{"from the SYN", []step{{99, "SYN"}, {100, "ab"}, {102, "cd"}}, "abcd", []int{2, 2, 3, 3}, 0},
		{"in mid-connection", []step{{100, "ab"}, {102, "cd"}}, "abcd", []int{1, 1, 2, 2}, 0},
		{"keepalive first", []step{{99, ""}, {100, "ab"}}, "ab", []int{2, 2}, 0},
		{"keepalive later", []step{{100, "ab"}, {101, ""}, {102, "cd"}}, "abcd", []int{1, 1, 3, 3}, 0},
		{"SYN twice", []step{{99, "SYN"}, {99, "SYN"}, {100, "ab"}}, "ab", []int{3, 3}, 0},
		{"repeated", []step{{100, "ab"}, {100, "ab"}, {102, "cd"}, {100, "abcd"}}, "abcd", []int{1, 1, 3, 3}, 0},
		{"repeated and more", []step{{100, "ab"}, {100, "abcd"}}, "abcd", []int{1, 1, 2, 2}, 0},
		{"out of order", []step{{99, "SYN"}, {102, "cd"}, {104, "ef"}, {100, "ab"}}, "abcdef", []int{4, 4, 4, 4, 4, 4}, 0},
		{"out of order, overlapping", []step{{99, "SYN"}, {103, "def"}, {101, "bcd"}, {100, "ab"}}, "abcdef", []int{4, 4, 4, 4, 4, 4}, 0},
		{"gap for good", []step{{99, "SYN"}, {100, "ab"}, {103, "de"}}, "ab", []int{2, 2}, 2},
		{"numbers wrap around", []step{{0xfffffffe, "SYN"}, {0xffffffff, "ab"}, {1, "cd"}}, "abcd", []int{2, 2, 3, 3}, 0},
		{"nothing", []step{{99, "SYN"}, {100, ""}}, "", nil, 0},
	} {
		var a assembler
		for i, s := range test.steps {
			if s.data == "SYN" {
				a.add(i+1, s.seq, true, nil)
			} else {
				a.add(i+1, s.seq, false, []byte(s.data))
			}
		}
		var by []int
		for i := range a.data {
			by = append(by, a.packet(i+1))
		}
		if string(a.data) != test.data || !slices.Equal(by, test.by) || a.heldBytes() != test.held {
			t.Errorf("%s: %q by %v, %d held; want %q by %v, %d held", test.name, a.data, by, a.heldBytes(), test.data, test.by, test.held)
		}
	}
}
