package wire_test

import (
	"strings"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

func TestPathHashVectors(t *testing.T) {
	for _, v := range vectors(t, "H") {
		portText, seedText, _ := strings.Cut(v.fields[0], " seed ")
		if seedText == "" {
			seedText = "0"
		}
		port, seed := uint16(number(t, portText, 16)), uint32(number(t, seedText, 32))
		got := wire.PathHash(port, seed)
		if want := uint32(number(t, v.fields[1], 32)); got != want {
			t.Errorf("%s: port %d seed 0x%x: 0x%08x, want 0x%08x", v.name, port, seed, got, want)
		}
		if want := uint32(number(t, v.fields[2], 3)); got&(wire.MaxPaths-1) != want {
			t.Errorf("%s: port %d: path %d, want %d", v.name, port, got&(wire.MaxPaths-1), want)
		}
	}
}

// Sockets spread evenly, over fewer paths too: of all ports each path gets its
// share, give or take a hundredth of them.
func TestPathHashSpread(t *testing.T) {
	for _, n := range []int{2, 4, wire.MaxPaths} {
		count := make([]int, n)
		for port := range wire.MapPorts {
			count[wire.PathHash(uint16(port), 0)&uint32(n-1)]++
		}
		share := wire.MapPorts / n
		for path, c := range count {
			if c < share-wire.MapPorts/100 || c > share+wire.MapPorts/100 {
				t.Errorf("path %d of %d has %d ports, want about %d", path, n, c, share)
			}
		}
	}
}

func TestPathHashAllocs(t *testing.T) {
	var sum uint32
	noAllocs(t, "PathHash", func() { sum += wire.PathHash(5200, sum) })
}
