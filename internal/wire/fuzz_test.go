package wire_test

import (
	"bytes"
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

func FuzzHeader(f *testing.F) {
	for _, v := range vectors(f, "K", "S") {
		raw := unhex(f, v.fields[0])
		f.Add(raw)
		f.Add(raw[:wire.HeaderLen-1])
		f.Add(append(raw, "payload"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := wire.ParseHeader(b)
		v, viewErr := wire.View(b)
		if whole := len(b) >= wire.HeaderLen; (err == nil) != whole || (viewErr == nil) != whole {
			t.Fatalf("%d bytes: %v, %v", len(b), err, viewErr)
		}
		if err != nil {
			return
		}
		raw := b[:wire.HeaderLen]
		if got := h.AppendTo(nil); !bytes.Equal(got, raw) {
			t.Fatalf("written again: %x", got)
		}
		if v.Header() != h {
			t.Fatalf("view %+v, value %+v", v.Header(), h)
		}
		if h.String() == "" || h.Flags.String() == "" {
			t.Fatal("no text")
		}
		sum := wordSum(raw)
		if sum == 0 {
			sum = 0xffff
		}
		if v.Sum() != sum || v.CsumOK() != (h.Csum == 0 || h.Csum == sum) {
			t.Fatalf("checksum 0x%04x, want 0x%04x; ok %v", v.Sum(), sum, v.CsumOK())
		}
		v.Seal()
		if h.Csum = sum; v.Header() != h || !v.CsumOK() {
			t.Fatalf("sealed: %+v", v.Header())
		}
	})
}

func FuzzHandshake(f *testing.F) {
	for _, v := range vectors(f, "X") {
		f.Add(unhex(f, v.fields[0]))
	}
	for _, h := range handshakes {
		f.Add(area(f, h.area)[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var ext [wire.ExtLen]byte
		copy(ext[:], b)
		before := ext
		h := wire.ParseHandshake(&ext)
		if ext != before {
			t.Fatal("parsing changed the area")
		}
		if sent(h) != h {
			t.Fatalf("%+v cannot have been in one area", h)
		}
		again := h.Area()
		if got := wire.ParseHandshake(&again); got != h {
			t.Fatalf("%x:\nfirst %+v\nagain %+v", ext, h, got)
		}
		if h.String() == "" {
			t.Fatal("no text")
		}
	})
}

func FuzzItems(f *testing.F) {
	for _, v := range vectors(f, "X") {
		f.Add(unhex(f, v.fields[0]))
	}
	for _, h := range handshakes {
		f.Add(area(f, h.area)[:])
	}
	f.Fuzz(func(t *testing.T, area []byte) {
		// The items are what the area begins with, byte for byte.
		var walked []byte
		last := wire.ItemNone
		for typ, d := range wire.Items(area) {
			if typ == wire.ItemNone || typ == wire.ItemCsum || typ > wire.ItemPrivate || len(d) == 0 {
				t.Fatalf("item %v with %d bytes", typ, len(d))
			}
			if last == wire.ItemPrivate {
				t.Fatalf("%v behind the private item", typ)
			}
			last = typ
			walked = append(append(walked, byte(typ)), d...)
		}
		if !bytes.HasPrefix(area, walked) {
			t.Fatalf("items %x of area %x", walked, area)
		}
	})
}

func FuzzCongMap(f *testing.F) {
	for _, v := range vectors(f, "M") {
		port := number(f, v.fields[0], 16)
		f.Add([]byte{1, byte(port >> 8), byte(port)})
		f.Add([]byte{1, byte(port >> 8), byte(port), 0, byte(port >> 8), byte(port)})
	}
	// Three bytes are one step: set or clear, and the port.
	f.Fuzz(func(t *testing.T, steps []byte) {
		var m, half wire.CongMap
		model := map[uint16]bool{}
		for i := 0; i+3 <= len(steps); i += 3 {
			if i == len(steps)/6*3 {
				half = m
			}
			port := uint16(steps[i+1])<<8 | uint16(steps[i+2])
			if steps[i]&1 != 0 {
				m.Set(port)
				model[port] = true
			} else {
				m.Clear(port)
				delete(model, port)
			}
			if m.Has(port) != model[port] {
				t.Fatalf("Has(%d) is %v", port, m.Has(port))
			}
		}
		found, last := 0, -1
		m.Diff(nil, func(port uint16, congested bool) {
			if !congested || !model[port] || int(port) <= last {
				t.Fatalf("port %d congested %v behind %d", port, congested, last)
			}
			found, last = found+1, int(port)
		})
		if found != len(model) {
			t.Fatalf("%d ports, want %d", found, len(model))
		}
		// A difference laid on the old map gives the new one.
		copied := half
		m.Diff(&half, func(port uint16, congested bool) {
			if copied.Has(port) == congested {
				t.Fatalf("port %d does not differ", port)
			}
			if congested {
				copied.Set(port)
			} else {
				copied.Clear(port)
			}
		})
		if copied != m {
			t.Fatal("the difference does not lead from one map to the other")
		}
		if again, err := wire.ParseMap(m[:]); err != nil || *again != m {
			t.Fatalf("%v", err)
		}
	})
}
