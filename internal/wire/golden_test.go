package wire_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds/internal/wire"
	"github.com/rds-go/rds/internal/wire/pcaptest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each capture as a trace, one line per frame, is in testdata/*.golden.
func TestCaptureGolden(t *testing.T) {
	for _, name := range pcaptest.Names(t) {
		t.Run(name, func(t *testing.T) {
			got := trace(pcaptest.Load(t, name))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

func trace(c *pcaptest.Capture) string {
	var b strings.Builder
	for _, f := range c.Frames {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// Whatever a kernel sent comes out of this package byte for byte as it went in.
func TestCaptureRoundTrip(t *testing.T) {
	for _, name := range pcaptest.Names(t) {
		t.Run(name, func(t *testing.T) {
			c := pcaptest.Load(t, name)
			for _, f := range c.Frames {
				if got := f.Header.AppendTo(nil); !bytes.Equal(got, f.Raw) {
					t.Errorf("%v: header written again:\n got %x\nwant %x", f, got, f.Raw)
				}
				if got := view(t, f.Raw).Header(); got != f.Header {
					t.Errorf("%v: the view says %v", f, &got)
				}
				if got := f.Handshake().Area(); got != f.Header.Ext {
					t.Errorf("%v: area written again:\n got %x\nwant %x", f, got, f.Header.Ext)
				}
				if f.Kind() == "MAP" {
					var m wire.CongMap
					for _, port := range f.Congested() {
						m.Set(port)
					}
					if !bytes.Equal(m[:], f.Payload) {
						t.Errorf("%v: the map written again differs", f)
					}
				}
			}
		})
	}
}

// What vectors from kernels have in common: the fields that TCP does not use
// are zero, a map has its shape, payload is i modulo 251, and no byte of a
// stream is left over.
func TestCaptureInvariants(t *testing.T) {
	for _, name := range pcaptest.Names(t) {
		t.Run(name, func(t *testing.T) {
			c := pcaptest.Load(t, name)
			for _, f := range c.Frames {
				h := f.Header
				if h.Ack != 0 || h.Credit != 0 || h.Pad != 0 || h.Csum != 0 {
					t.Errorf("%v: a field that kernels leave zero is not", f)
				}
				if h.IsPureAck() {
					t.Errorf("%v: a kernel's frame is taken as a pure ack", f)
				}
				switch kind := f.Kind(); kind {
				case "MAP":
					if want := (wire.Header{Len: wire.MapLen, Flags: wire.FlagCongBitmap}); h != want {
						t.Errorf("%v: header %v, want %v", f, &h, &want)
					}
				case "PROBE", "PROBE-PONG":
					if h.Seq == 0 || h.Len != 0 || f.Handshake().NPaths == 0 {
						t.Errorf("%v: no proper handshake: %v", f, &h)
					}
				default:
					if h.Seq == 0 || h.Ext != [wire.ExtLen]byte{} {
						t.Errorf("%v: no number, or an area that is not empty", f)
					}
					if kind == "DATA" && !scripted(name) && !bytes.Equal(f.Payload, pattern(len(f.Payload))) {
						t.Errorf("%v: payload %.32x…", f, f.Payload)
					}
				}
			}
			for _, conn := range c.Conns {
				for _, from := range []pcaptest.Node{pcaptest.A, pcaptest.B} {
					if s := conn.From(from); len(s.Rest) != 0 || s.Held != 0 {
						t.Errorf("tcp%d from %v: %d bytes are no frame, %d behind a gap", conn.ID, from, len(s.Rest), s.Held)
					}
				}
			}
		})
	}
}

// scripted captures have payloads of their own.
func scripted(name string) bool {
	return name == "rds-tcp-npaths3" || name == "rds-tcp7-userpeer"
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}
