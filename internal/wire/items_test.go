package wire_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

// walk is Items as text: "NPATHS 0008, GEN_NUM deadbeef".
func walk(area []byte) string {
	var items []string
	for t, d := range wire.Items(area) {
		items = append(items, fmt.Sprintf("%v %x", t, d))
	}
	return strings.Join(items, ", ")
}

// kernelWalk is the kernel's own rule, which our areas must survive: type 0,
// a type above 15 or data beyond the end of the area end the list, and a type
// below 16 that it does not know counts as one without data (RDS spec
// section 8). lens says what it knows.
func kernelWalk(area []byte, lens map[wire.ItemType]int) []string {
	var items []string
	for at := 0; at < len(area); {
		t := wire.ItemType(area[at])
		n := lens[t]
		if at++; t == 0 || t > 15 || at+n > len(area) {
			break
		}
		items = append(items, fmt.Sprintf("%v %x", t, area[at:at+n]))
		at += n
	}
	return items
}

var (
	kernel6 = map[wire.ItemType]int{1: 4, 2: 4, 3: 8, 5: 2, 6: 4}
	kernel7 = map[wire.ItemType]int{1: 4, 2: 4, 3: 8, 4: 8, 5: 2, 6: 4, 8: 1}
)

func TestItemVectors(t *testing.T) {
	// The second string is what the comments of headers.hex say about 6.1.
	want := map[string][2]string{
		"X1": {"NPATHS 0008", "NPATHS 0008"},
		"X2": {"NPATHS 0008, GEN_NUM deadbeef, SPORT_IDX 00", "NPATHS 0008, GEN_NUM deadbeef, SPORT_IDX "},
		"X3": {"", ""},
		"X4": {"", ""},
		"X6": {"RDMA_DEST 1122334455667788, NPATHS 0008", "RDMA_DEST 1122334455667788, NPATHS 0008"},
		"X7": {"GEN_NUM 00000001, GEN_NUM 00000002, GEN_NUM 00000003", "GEN_NUM 00000001, GEN_NUM 00000002, GEN_NUM 00000003"},
		// The kernel reads on in the data of a type that it does not know.
		"X9": {"", "CSUM , VERSION 05000800"},
	}
	seen := 0
	for _, v := range vectors(t, "X") {
		area := unhex(t, v.fields[0])
		if strings.HasPrefix(v.fields[1], "INVALID") {
			if len(area) == wire.ExtLen {
				t.Errorf("%s is called invalid, but has %d bytes", v.name, len(area))
			}
			continue
		}
		if len(area) != wire.ExtLen {
			t.Errorf("%s has %d bytes, want %d", v.name, len(area), wire.ExtLen)
		}
		if got := walk(area); got != want[v.name][0] {
			t.Errorf("%s: got %q, want %q", v.name, got, want[v.name][0])
		}
		if got := strings.Join(kernelWalk(area, kernel6), ", "); got != want[v.name][1] {
			t.Errorf("%s, kernel 6.1: got %q, want %q", v.name, got, want[v.name][1])
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("%d areas in the file, %d expected", seen, len(want))
	}
}

func TestItems(t *testing.T) {
	for _, test := range []struct{ name, area, want string }{
		{"no area", "", ""},
		{"every type with a length",
			"01 00000301 02 11111111 03 2222222233333333 04 0000100001000000 05 0008 06 44444444 07 55555555 08 00",
			"VERSION 00000301, RDMA 11111111, RDMA_DEST 2222222233333333, RDMA_BYTES 0000100001000000, NPATHS 0008, GEN_NUM 44444444, CAP_BITS 55555555, SPORT_IDX 00"},
		{"end of list", "05 0008 00 05 0004", "NPATHS 0008"},
		{"type of unknown length", "05 0008 09 05 0004", "NPATHS 0008"},
		{"unknown type", "05 0008 0b 00 05 0004", "NPATHS 0008"},
		{"type above 15", "05 0008 10 05 0004", "NPATHS 0008"},
		{"data up to the end", "05 0008", "NPATHS 0008"},
		{"data beyond the end", "05 0008 05 00", "NPATHS 0008"},
		{"type and no data", "05 0008 05", "NPATHS 0008"},
		{"private, short", "06 11111111 0a 00 01 0002 03", "GEN_NUM 11111111, PRIVATE 0001000203"},
		{"private, long", "05 0008 0a 00 01 0002 03 44444444", "NPATHS 0008, PRIVATE 000100020344444444"},
		{"private is the last", "06 11111111 0a 00 01 0002 03 05 0008", "GEN_NUM 11111111, PRIVATE 0001000203"},
		{"private, long, is the last", "0a 00 01 0002 03 44444444 06 11111111", "PRIVATE 000100020344444444"},
		{"private, short, cut off", "06 11111111 0a 00 01 0002", "GEN_NUM 11111111"},
		{"private, long, cut off", "05 0008 0a 00 01 0002 03 444444", "NPATHS 0008"},
		{"private and nothing", "05 0008 0a", "NPATHS 0008"},
		{"another's type 0x0a", "05 0008 0a 01 01 0002 03 44444444", "NPATHS 0008"},
	} {
		if got := walk(unhex(t, test.area)); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

func TestItemsBreak(t *testing.T) {
	n := 0
	for range wire.Items(vectorBytes(t, "X7")) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d items, want 2", n)
	}
}

func TestItemsData(t *testing.T) {
	area := vectorBytes(t, "X1")
	for _, d := range wire.Items(area) {
		if cap(d) != len(d) {
			t.Error("the data reaches into what follows it")
		}
		d[1] = 4
	}
	if area[2] != 4 {
		t.Error("the data is a copy")
	}
}

func TestItemTypeString(t *testing.T) {
	for want, typ := range map[string]wire.ItemType{
		"NONE": 0, "VERSION": 1, "RDMA_BYTES": 4, "CSUM": 9, "PRIVATE": 10, "type 0x0b": 11, "type 0xff": 255,
	} {
		if got := typ.String(); got != want {
			t.Errorf("%d: got %q, want %q", uint8(typ), got, want)
		}
	}
}

func TestItemsAllocs(t *testing.T) {
	area := vectorBytes(t, "X2")
	var sum uint64
	noAllocs(t, "range over Items", func() {
		for typ, d := range wire.Items(area) {
			if typ == wire.ItemGenNum {
				sum += uint64(binary.BigEndian.Uint32(d))
			}
		}
	})
	if sum == 0 {
		t.Error("nothing found")
	}
}
