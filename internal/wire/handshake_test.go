package wire_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/wire"
)

// handshakes are areas that Area writes just as they are.
var handshakes = []struct {
	name, area string
	h          wire.Handshake
	text       string
}{
	{"nothing", "", wire.Handshake{}, "no items"},
	{"kernel 6.1", "05 0008", wire.Handshake{NPaths: 8}, "NPATHS 8"},
	{"kernel 7", "05 0008 06 deadbeef 08 00",
		wire.Handshake{NPaths: 8, Generation: 0xdeadbeef, SportIdx: true},
		"NPATHS 8 GEN_NUM deadbeef SPORT_IDX"},
	{"vendor kernel", "05 0008 08 00", wire.Handshake{NPaths: 8, SportIdx: true}, "NPATHS 8 SPORT_IDX"},
	{"own, the area filled", "05 0008 06 11111111 08 00 0a 00 01 8001 05",
		wire.Handshake{NPaths: 8, Generation: 0x11111111, SportIdx: true, Own: true, Version: 1, Features: 0x8001, MaxAckDelay: 5},
		"NPATHS 8 GEN_NUM 11111111 SPORT_IDX OWN version 1 features 8001 ack-delay 5ms"},
	{"own, generation inside", "05 0008 08 00 0a 00 01 0001 05 22222222",
		wire.Handshake{NPaths: 8, SportIdx: true, Own: true, Version: 1, Features: wire.FeatureCsum, MaxAckDelay: 5, OwnGeneration: 0x22222222},
		"NPATHS 8 SPORT_IDX OWN version 1 features 0001 ack-delay 5ms generation 22222222"},
	{"own, no generation", "05 0008 08 00 0a 00 01 0001 05",
		wire.Handshake{NPaths: 8, SportIdx: true, Own: true, Version: 1, Features: wire.FeatureCsum, MaxAckDelay: 5},
		"NPATHS 8 SPORT_IDX OWN version 1 features 0001 ack-delay 5ms"},
	{"own, another version", "05 0002 08 00 0a 00 ff ffff ff ffffffff",
		wire.Handshake{NPaths: 2, SportIdx: true, Own: true, Version: 255, Features: 0xffff, MaxAckDelay: 255, OwnGeneration: 0xffffffff},
		"NPATHS 2 SPORT_IDX OWN version 255 features ffff ack-delay 255ms generation ffffffff"},
	{"own alone", "0a 00 01 0000 00", wire.Handshake{Own: true, Version: 1}, "OWN version 1 features 0000 ack-delay 0ms"},
}

func TestHandshake(t *testing.T) {
	for _, test := range handshakes {
		t.Run(test.name, func(t *testing.T) {
			a := area(t, test.area)
			if diff := cmp.Diff(test.h, wire.ParseHandshake(a)); diff != "" {
				t.Errorf("parsed (-want +got):\n%s", diff)
			}
			if got := test.h.Area(); got != *a {
				t.Errorf("written:\n got %x\nwant %x", got, *a)
			}
			if got := test.h.String(); got != test.text {
				t.Errorf("text:\n got %s\nwant %s", got, test.text)
			}
		})
	}
}

func TestParseHandshake(t *testing.T) {
	for _, test := range []struct {
		name, area string
		want       wire.Handshake
	}{
		{"any number of paths", "05 ffff", wire.Handshake{NPaths: 0xffff}},
		{"zero means absent", "05 0000 06 00000000", wire.Handshake{}},
		{"the last one counts", "05 0008 05 0002 06 11111111 06 22222222", wire.Handshake{NPaths: 2, Generation: 0x22222222}},
		{"any order", "08 00 06 11111111 05 0008", wire.Handshake{NPaths: 8, Generation: 0x11111111, SportIdx: true}},
		{"any data of SPORT_IDX", "08 07 05 0008", wire.Handshake{NPaths: 8, SportIdx: true}},
		{"other items between", "01 00000301 05 0008 07 00000001 08 00", wire.Handshake{NPaths: 8, SportIdx: true}},
		{"nothing behind an unknown type", "05 0008 0f 00 08 00", wire.Handshake{NPaths: 8}},
		// A GEN_NUM item of 0 says nothing, but makes the private item short all
		// the same: its length goes by what stands there.
		{"own behind an empty GEN_NUM", "05 0008 06 00000000 0a 00 01 0002 03 04", wire.Handshake{NPaths: 8, Own: true, Version: 1, Features: 2, MaxAckDelay: 3}},
		{"another's type 0x0a", "05 0008 08 00 0a 01 01 0002 03 44444444", wire.Handshake{NPaths: 8, SportIdx: true}},
		{"own, short, cut off", "01 00000301 06 11111111 08 00 0a 00 01 00", wire.Handshake{Generation: 0x11111111, SportIdx: true}},
		{"own, long, cut off", "01 00000301 08 00 0a 00 01 0002 03 444444", wire.Handshake{SportIdx: true}},
	} {
		if diff := cmp.Diff(test.want, wire.ParseHandshake(area(t, test.area))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestHandshakeAreaPrecedence(t *testing.T) {
	for _, test := range []struct {
		name string
		h    wire.Handshake
		want string
	}{
		{"GEN_NUM before the generation inside",
			wire.Handshake{NPaths: 8, Generation: 0x11111111, SportIdx: true, Own: true, Version: 1, OwnGeneration: 0x22222222},
			"05 0008 06 11111111 08 00 0a 00 01 0000 00"},
		{"not even where both would fit",
			wire.Handshake{Generation: 0x11111111, Own: true, Version: 1, OwnGeneration: 0x22222222},
			"06 11111111 0a 00 01 0000 00"},
		{"nothing private without Own",
			wire.Handshake{NPaths: 8, Version: 1, Features: 1, MaxAckDelay: 1, OwnGeneration: 0x22222222},
			"05 0008"},
	} {
		if got, want := test.h.Area(), *area(t, test.want); got != want {
			t.Errorf("%s:\n got %x\nwant %x", test.name, got, want)
		}
	}
}

// sent is what of h is on the wire.
func sent(h wire.Handshake) wire.Handshake {
	if !h.Own {
		h.Version, h.Features, h.MaxAckDelay = 0, 0, 0
	}
	if !h.Own || h.Generation != 0 {
		h.OwnGeneration = 0
	}
	return h
}

func randomHandshake(rnd *rand.Rand) wire.Handshake {
	h := wire.Handshake{
		SportIdx: rnd.IntN(2) == 0, Own: rnd.IntN(2) == 0,
		Version: uint8(rnd.Uint32()), Features: uint16(rnd.Uint32()), MaxAckDelay: uint8(rnd.Uint32()),
	}
	if rnd.IntN(3) > 0 {
		h.NPaths = uint16(rnd.Uint32())
	}
	if rnd.IntN(2) > 0 {
		h.Generation = rnd.Uint32()
	}
	if rnd.IntN(2) > 0 {
		h.OwnGeneration = rnd.Uint32()
	}
	return h
}

// Both generations of kernels must find in our areas what they know and
// nothing else, whatever our private item says.
func TestHandshakeToKernels(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		h := randomHandshake(rnd)
		a := h.Area()
		if diff := cmp.Diff(sent(h), wire.ParseHandshake(&a)); diff != "" {
			t.Fatalf("%x (-sent +got):\n%s", a, diff)
		}

		if got, want := kernelWalk(a[:], kernel6), toKernel(h, 6); !cmp.Equal(got, want) {
			t.Fatalf("kernel 6.1 reads %x as %v, want %v", a, got, want)
		}
		if got, want := kernelWalk(a[:], kernel7), toKernel(h, 7); !cmp.Equal(got, want) {
			t.Fatalf("kernel 7 reads %x as %v, want %v", a, got, want)
		}
	}
}

// toKernel is what a kernel of that generation must find in the area of h.
func toKernel(h wire.Handshake, generation int) []string {
	var items []string
	if h.NPaths != 0 {
		items = append(items, fmt.Sprintf("NPATHS %04x", h.NPaths))
	}
	if h.Generation != 0 {
		items = append(items, fmt.Sprintf("GEN_NUM %08x", h.Generation))
	}
	if h.SportIdx && generation == 6 {
		return append(items, "SPORT_IDX ") // unknown; its data ends the list
	}
	if h.SportIdx {
		items = append(items, "SPORT_IDX 00")
	}
	if h.Own {
		items = append(items, "PRIVATE ") // unknown; its first data byte ends the list
	}
	return items
}

func TestHandshakeAllocs(t *testing.T) {
	h := handshakes[4].h
	noAllocs(t, "handshake", func() {
		a := h.Area()
		if wire.ParseHandshake(&a) != h {
			panic("not the same")
		}
	})
}
