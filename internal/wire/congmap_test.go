package wire_test

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

func TestCongMapVectors(t *testing.T) {
	for _, v := range vectors(t, "M") {
		port := uint16(number(t, v.fields[0], 16))
		at := number(t, v.fields[1], 13)
		mask := byte(number(t, "0x"+v.fields[2], 8))

		var m, want wire.CongMap
		m.Set(port)
		if want[at] = mask; m != want {
			t.Errorf("%s: byte %d is 0x%02x, want 0x%02x and nothing else", v.name, at, m[at], mask)
		}
		if !m.Has(port) {
			t.Errorf("%s: Has(%d) is false", v.name, port)
		}
		if m.Clear(port); m != (wire.CongMap{}) || m.Has(port) {
			t.Errorf("%s: Clear(%d) left something", v.name, port)
		}
	}
}

// Every port has a bit of its own, and Diff finds it.
func TestCongMapEveryPort(t *testing.T) {
	var m wire.CongMap
	for p := range wire.MapPorts {
		port := uint16(p)
		before := m[port>>3]
		if m.Has(port) {
			t.Fatalf("port %d is set before it is", port)
		}
		if m.Set(port); bits.OnesCount8(before^m[port>>3]) != 1 || !m.Has(port) {
			t.Fatalf("port %d: byte %d goes from 0x%02x to 0x%02x", port, port>>3, before, m[port>>3])
		}
	}
	next := 0
	m.Diff(nil, func(port uint16, congested bool) {
		if int(port) != next || !congested {
			t.Fatalf("port %d congested %v, want %d", port, congested, next)
		}
		next++
	})
	if next != wire.MapPorts {
		t.Errorf("%d ports, want %d", next, wire.MapPorts)
	}
	for p := 0; p < wire.MapPorts; p += 251 {
		if got, want := diff(mapOf(uint16(p)), nil), fmt.Sprintf("+%d", p); got != want {
			t.Errorf("port %d: %s", p, got)
		}
	}
}

// diff is Diff as text: "+5004 -5006".
func diff(m, old *wire.CongMap) string {
	var ports []string
	m.Diff(old, func(port uint16, congested bool) {
		sign := "-"
		if congested {
			sign = "+"
		}
		ports = append(ports, fmt.Sprintf("%s%d", sign, port))
	})
	return strings.Join(ports, " ")
}

func mapOf(ports ...uint16) *wire.CongMap {
	var m wire.CongMap
	for _, p := range ports {
		m.Set(p)
	}
	return &m
}

func TestCongMapDiff(t *testing.T) {
	for _, test := range []struct {
		name   string
		m, old *wire.CongMap
		want   string
	}{
		{"both empty", mapOf(), mapOf(), ""},
		{"the same", mapOf(1, 5004), mapOf(1, 5004), ""},
		{"against nothing", mapOf(65535, 0, 64, 63), nil, "+0 +63 +64 +65535"},
		{"cleared", mapOf(), mapOf(5006), "-5006"},
		{"both ways, ascending", mapOf(2, 5006, 5007), mapOf(1, 5004, 5007, 65535), "-1 +2 -5004 +5006 -65535"},
	} {
		if got := diff(test.m, test.old); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestParseMap(t *testing.T) {
	payload := make([]byte, wire.MapLen)
	payload[625] = 0x40
	m, err := wire.ParseMap(payload)
	if err != nil || !m.Has(5006) {
		t.Fatalf("%v", err)
	}
	if payload[625] = 0; m.Has(5006) {
		t.Error("the map is a copy")
	}
	for _, n := range []int{0, 100, wire.MapLen - 1, wire.MapLen + 1} {
		_, err := wire.ParseMap(make([]byte, n))
		if !errors.Is(err, wire.ErrMapLen) {
			t.Errorf("%d bytes: error %v, want ErrMapLen", n, err)
		}
	}
	_, err = wire.ParseMap(make([]byte, 100))
	if got, want := err.Error(), "wire: map of 100 bytes, want 8192: wrong length of a congestion map"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestMonitorBit(t *testing.T) {
	for _, v := range vectors(t, "C") {
		port := uint16(number(t, v.fields[0], 16))
		if got, want := wire.MonitorBit(port), number(t, v.fields[1], 64); got != want {
			t.Errorf("%s: port %d: 0x%016x, want 0x%016x", v.name, port, got, want)
		}
	}
}

func TestCongMapAllocs(t *testing.T) {
	m, old := mapOf(1, 5004, 65535), mapOf(2, 5004)
	payload := m[:]
	changes := 0
	noAllocs(t, "CongMap", func() {
		m, err := wire.ParseMap(payload)
		if err != nil || m.Has(3) {
			panic("map")
		}
		m.Set(7)
		m.Clear(7)
		m.Diff(old, func(uint16, bool) { changes++ })
	})
	if changes == 0 {
		t.Error("no changes")
	}
}

func BenchmarkCongMapDiff(b *testing.B) {
	m, old := mapOf(5004), mapOf(5006)
	for b.Loop() {
		m.Diff(old, func(uint16, bool) {})
	}
}
