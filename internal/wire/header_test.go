package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/wire"
)

// headerLines is what each header of headers.hex says, by its comment there.
var headerLines = map[string]string{
	"K1":  "len 8192 flags CONG_BITMAP",
	"K2":  "seq 1 sport 1 ext 05000800000000000000000000000000",
	"K3":  "seq 2 dport 1 ext 05000800000000000000000000000000",
	"K4":  "seq 1 sport 21876",
	"K5":  "seq 1 dport 21876",
	"K6":  "seq 1 sport 5001 dport 5002",
	"K7":  "seq 2 len 1 sport 5001 dport 5002",
	"K8":  "seq 3 len 100 sport 5001 dport 5002",
	"K9":  "seq 4 len 4096 sport 5001 dport 5002",
	"K10": "seq 5 len 65536 sport 5001 dport 5002",
	"K11": "seq 1 len 200000 sport 5003 dport 5004",
	"K12": "seq 1 len 50 sport 5001 dport 5002 flags RETRANSMITTED",
	"K13": "seq 8 len 1000 sport 5005 dport 5006",
	"S1":  "seq 1 sport 1 ext 05000806deadbeef0800000000000000",
	"S2":  "seq 7 dport 1 ext 05000100000000000000000000000000",
	"S3":  "seq 7 dport 1",
	"S4":  "seq 72623859790382856 ack 1230066625199609624 len 14593470 sport 43981 dport 4660 flags ACK_REQUIRED|RETRANSMITTED credit 85 csum 0x2ca4",
	"S5":  "seq 2 len 7 sport 7001 dport 7000 csum 0xc945",
	"S6":  "seq 1099511627776 len 4 sport 7001 dport 7000",
	"S7":  "len 8192 flags CONG_BITMAP|RETRANSMITTED",
}

func TestHeaderVectors(t *testing.T) {
	seen := 0
	for _, v := range vectors(t, "K", "S") {
		t.Run(v.name, func(t *testing.T) {
			raw := unhex(t, v.fields[0])
			if len(raw) != wire.HeaderLen {
				t.Fatalf("%d bytes, want %d", len(raw), wire.HeaderLen)
			}
			h, err := wire.ParseHeader(raw)
			if err != nil {
				t.Fatal(err)
			}
			if got := h.String(); got != headerLines[v.name] {
				t.Errorf("parsed:\n got %s\nwant %s", got, headerLines[v.name])
			}
			if got := h.AppendTo(nil); !bytes.Equal(got, raw) {
				t.Errorf("written again:\n got %x\nwant %x", got, raw)
			}
			if got := h.IsMap(); got != (v.name == "K1") {
				t.Errorf("IsMap %v", got)
			}
			if got := h.IsProbe(); got != (v.name == "K2" || v.name == "S1") {
				t.Errorf("IsProbe %v", got)
			}
			if got := h.IsProbePong(); got != (v.name == "K3" || v.name == "S2" || v.name == "S3") {
				t.Errorf("IsProbePong %v", got)
			}
			if h.IsPureAck() {
				t.Error("IsPureAck: no kernel sends one")
			}
		})
		seen++
	}
	if seen != len(headerLines) {
		t.Errorf("%d headers in the file, %d expected", seen, len(headerLines))
	}
}

// everyField has a different value in every byte.
var everyField = wire.Header{
	Seq: 0x0001020304050607, Ack: 0x08090a0b0c0d0e0f, Len: 0x10111213, SPort: 0x1415, DPort: 0x1617,
	Flags: 0x18, Credit: 0x19, Pad: 0x1a1b1c1d, Csum: 0x1e1f,
	Ext: [16]byte{0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f},
}

func TestHeaderLayout(t *testing.T) {
	raw := make([]byte, wire.HeaderLen)
	for i := range raw {
		raw[i] = byte(i)
	}
	h, err := wire.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(everyField, h); diff != "" {
		t.Errorf("parsed (-want +got):\n%s", diff)
	}
	if got := h.AppendTo(nil); !bytes.Equal(got, raw) {
		t.Errorf("written: %x", got)
	}
}

func TestHeaderAppendTo(t *testing.T) {
	got := everyField.AppendTo([]byte("before"))
	if len(got) != 6+wire.HeaderLen || string(got[:6]) != "before" || got[6] != 0 || got[len(got)-1] != 0x2f {
		t.Errorf("got %x", got)
	}
}

func TestHeaderPut(t *testing.T) {
	b := bytes.Repeat([]byte{0xee}, wire.HeaderLen+1)
	everyField.Put(b)
	if b[wire.HeaderLen-1] != 0x2f || b[wire.HeaderLen] != 0xee {
		t.Errorf("Put did not write exactly %d bytes: %x", wire.HeaderLen, b)
	}

	large := bytes.Repeat([]byte{0xee}, 2*wire.HeaderLen)
	defer func() {
		if recover() == nil {
			t.Error("Put into a short buffer did not panic")
		}
		if !bytes.Equal(large, bytes.Repeat([]byte{0xee}, 2*wire.HeaderLen)) {
			t.Errorf("Put wrote before it panicked: %x", large)
		}
	}()
	everyField.Put(large[:wire.HeaderLen-1]) // the capacity is there, the bytes are not
}

func TestParseHeaderShort(t *testing.T) {
	for n := range wire.HeaderLen {
		_, err := wire.ParseHeader(make([]byte, n))
		if !errors.Is(err, wire.ErrShort) {
			t.Fatalf("%d bytes: error %v, want ErrShort", n, err)
		}
	}
	_, err := wire.ParseHeader(make([]byte, 47))
	if got, want := err.Error(), "wire: header of 47 bytes, want 48: too short"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if _, err := wire.ParseHeader(make([]byte, wire.HeaderLen+1)); err != nil {
		t.Errorf("bytes behind the header: %v", err)
	}
}

func TestHeaderKinds(t *testing.T) {
	for _, test := range []struct {
		name  string
		h     wire.Header
		kinds string
	}{
		{"map", wire.Header{Flags: 0x01, Len: wire.MapLen}, "map"},
		{"map with another flag", wire.Header{Flags: 0x03, Len: wire.MapLen}, ""},
		{"map of odd length", wire.Header{Flags: 0x01, Len: 100}, "map"},
		{"probe", wire.Header{Seq: 1, SPort: 1}, "probe"},
		{"retransmitted probe", wire.Header{Seq: 1, SPort: 1, Flags: 0x04}, "probe"},
		{"pong", wire.Header{Seq: 1, DPort: 1}, "pong"},
		{"data to the probe port", wire.Header{Seq: 1, SPort: 5001, DPort: 1}, ""},
		{"ping", wire.Header{Seq: 1, SPort: 5001}, ""},
		{"pure ack", wire.Header{Ack: 7}, "ack"},
		{"pure ack, sealed", wire.Header{Ack: 7, Csum: 0xfff8}, "ack"},
		{"numbered", wire.Header{Seq: 1, Ack: 7}, ""},
	} {
		var kinds []string
		for _, k := range []struct {
			name string
			is   bool
		}{{"map", test.h.IsMap()}, {"probe", test.h.IsProbe()}, {"pong", test.h.IsProbePong()}, {"ack", test.h.IsPureAck()}} {
			if k.is {
				kinds = append(kinds, k.name)
			}
		}
		if got := strings.Join(kinds, " "); got != test.kinds {
			t.Errorf("%s: %q, want %q", test.name, got, test.kinds)
		}
	}
}

func TestHeaderString(t *testing.T) {
	for _, test := range []struct {
		h    wire.Header
		want string
	}{
		{wire.Header{}, "zero"},
		{wire.Header{Seq: 3, Len: 52, SPort: 5001, DPort: 5002, Flags: 0x04}, "seq 3 len 52 sport 5001 dport 5002 flags RETRANSMITTED"},
		{everyField, "seq 283686952306183 ack 579005069656919567 len 269554195 sport 5141 dport 5655 flags 0x18 credit 25 pad 0x1a1b1c1d csum 0x1e1f ext 202122232425262728292a2b2c2d2e2f"},
	} {
		if got := test.h.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestFlagsString(t *testing.T) {
	for _, test := range []struct {
		f    wire.Flags
		want string
	}{
		{0, "0"},
		{wire.FlagCongBitmap, "CONG_BITMAP"},
		{wire.FlagCongBitmap | wire.FlagRetransmitted, "CONG_BITMAP|RETRANSMITTED"},
		{0x42, "ACK_REQUIRED|0x40"},
		{0xd8, "0xd8"},
		{0xff, "CONG_BITMAP|ACK_REQUIRED|RETRANSMITTED|EXTHDR_EXTENSION|0xd8"},
	} {
		if got := test.f.String(); got != test.want {
			t.Errorf("0x%02x: got %q, want %q", uint8(test.f), got, test.want)
		}
	}
}

func TestHeaderAllocs(t *testing.T) {
	raw := everyField.AppendTo(nil)
	buf := make([]byte, 0, 4*wire.HeaderLen)
	var h wire.Header
	noAllocs(t, "ParseHeader", func() { h, _ = wire.ParseHeader(raw) })
	noAllocs(t, "AppendTo", func() { buf = h.AppendTo(h.AppendTo(buf[:0])) })
	noAllocs(t, "Put", func() { h.Put(raw) })
}

func BenchmarkParseHeader(b *testing.B) {
	raw := everyField.AppendTo(nil)
	for b.Loop() {
		wire.ParseHeader(raw)
	}
}

func BenchmarkHeaderAppendTo(b *testing.B) {
	buf := make([]byte, 0, wire.HeaderLen)
	for b.Loop() {
		buf = everyField.AppendTo(buf[:0])
	}
}
