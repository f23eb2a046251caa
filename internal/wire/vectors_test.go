package wire_test

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

// vector is one line of testdata/headers.hex: fields separated by bars, the
// first is the name.
type vector struct {
	name   string
	fields []string
}

// vectors are the lines whose name is one of the letters with or without a
// number behind it: vectors(t, "K", "S") gives K1, K2, … S1, S2, …
func vectors(tb testing.TB, letters ...string) []vector {
	tb.Helper()
	text, err := os.ReadFile("testdata/headers.hex")
	if err != nil {
		tb.Fatal(err)
	}
	var list []vector
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		for _, l := range letters {
			if strings.TrimRight(fields[0], "0123456789") == l {
				list = append(list, vector{fields[0], fields[1:]})
			}
		}
	}
	if len(list) == 0 {
		tb.Fatalf("no vectors %q", letters)
	}
	return list
}

// vectorBytes is the first field of the vector with that name.
func vectorBytes(tb testing.TB, name string) []byte {
	tb.Helper()
	for _, v := range vectors(tb, strings.TrimRight(name, "0123456789")) {
		if v.name == name {
			return unhex(tb, v.fields[0])
		}
	}
	tb.Fatalf("no vector %s", name)
	return nil
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// area is an extension area from its first bytes; the rest is zero.
func area(tb testing.TB, s string) *[wire.ExtLen]byte {
	tb.Helper()
	b := unhex(tb, s)
	if len(b) > wire.ExtLen {
		tb.Fatalf("%d bytes do not fit into the extension area", len(b))
	}
	var a [wire.ExtLen]byte
	copy(a[:], b)
	return &a
}

func number(tb testing.TB, s string, bits int) uint64 {
	tb.Helper()
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// noAllocs checks that f does not allocate.
func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(100, f); n != 0 {
		t.Errorf("%s: %v allocations, want none", what, n)
	}
}
