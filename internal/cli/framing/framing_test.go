package framing

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// read returns all messages of in and the error that ended them, nil for io.EOF.
func read(f Framing, in io.Reader, largest int) ([]string, error) {
	r := f.NewReader(in, largest)
	var got []string
	for {
		p, err := r.Next()
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(p))
	}
}

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 200<<10) // longer than any buffer inside
	for _, tt := range []struct {
		name    string
		framing Framing
		in      string
		largest int
		want    []string
		err     string // "" = the input ends in good order
	}{
		{"no lines", Line, "", 10, nil, ""},
		{"lines", Line, "a\nbc\n", 10, []string{"a", "bc"}, ""},
		{"last line without newline", Line, "a\nbc", 10, []string{"a", "bc"}, ""},
		{"empty lines are messages", Line, "\n\na\n\n", 10, []string{"", "", "a", ""}, ""},
		{"carriage return is a byte", Line, "a\r\n", 10, []string{"a\r"}, ""},
		{"largest line", Line, "0123456789\n0123456789", 10, []string{"0123456789", "0123456789"}, ""},
		{"line too long", Line, "a\n01234567890\nb\n", 10, []string{"a"}, "line 2 of the input: longer than the largest message, 10 bytes"},
		{"last line too long", Line, "01234567890", 10, nil, "line 1 of the input: longer than the largest message, 10 bytes"},
		{"long line", Line, "a\n" + long + "\nb\n", len(long), []string{"a", long, "b"}, ""},
		{"long last line", Line, "a\n" + long, len(long), []string{"a", long}, ""},
		{"long line too long", Line, long + "x\n", len(long), nil, "line 1 of the input: longer than the largest message, 204800 bytes"},

		{"no frames", Len32BE, "", 10, nil, ""},
		{"frames", Len32BE, "\x00\x00\x00\x02a\n\x00\x00\x00\x01b", 10, []string{"a\n", "b"}, ""},
		{"empty frames", Len32BE, "\x00\x00\x00\x00\x00\x00\x00\x00", 10, []string{"", ""}, ""},
		{"largest frame", Len32BE, "\x00\x00\x00\x0a0123456789", 10, []string{"0123456789"}, ""},
		{"frame too long", Len32BE, "\x00\x00\x00\x00\xff\xff\xff\xff01234567890", 10, []string{""},
			"frame 2 of the input: announces 4294967295 bytes, more than the largest message, 10 bytes"},
		{"cut in the length", Len32BE, "\x00\x00\x00", 10, nil, "frame 1 of the input: the input ends after 3 of the 4 bytes of the length"},
		{"cut after the length", Len32BE, "\x00\x00\x00\x05", 10, nil, "frame 1 of the input: announces 5 bytes, but the input ends after 0"},
		{"cut in the message", Len32BE, "\x00\x00\x00\x05abc", 10, nil, "frame 1 of the input: announces 5 bytes, but the input ends after 3"},
	} {
		for way, in := range map[string]io.Reader{
			"at once":    strings.NewReader(tt.in),
			"in crumbs":  iotest.OneByteReader(strings.NewReader(tt.in)),
			"with error": iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			t.Run(tt.name+" "+way, func(t *testing.T) {
				got, err := read(tt.framing, in, tt.largest)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				text := ""
				if err != nil {
					text = err.Error()
					if e := (*Error)(nil); !errors.As(err, &e) {
						t.Errorf("error %v is no *Error", err)
					}
				}
				if text != tt.err {
					t.Errorf("error %q, want %q", text, tt.err)
				}
			})
		}
	}
}

// A failing stream is not mistaken for its end: what came before is still delivered.
func TestReadFails(t *testing.T) {
	broken := errors.New("broken")
	for f, in := range map[Framing]string{Line: "a\nb", Len32BE: "\x00\x00\x00\x01a\x00\x00\x00\x02b"} {
		got, err := read(f, io.MultiReader(strings.NewReader(in), iotest.ErrReader(broken)), 10)
		if diff := cmp.Diff([]string{"a"}, got); diff != "" {
			t.Errorf("%v: messages (-want +got):\n%s", f, diff)
		}
		if !errors.Is(err, broken) {
			t.Errorf("%v: error %v, want %v", f, err, broken)
		}
	}
}

// What is written reads as the same messages.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, f := range []Framing{Line, Len32BE} {
		var want []string
		for range 500 {
			p := make([]byte, rnd.IntN(4)*rnd.IntN(1000))
			for i := range p {
				if p[i] = byte(rnd.Uint32()); f == Line && p[i] == '\n' {
					p[i] = ' '
				}
			}
			want = append(want, string(p))
		}
		var stream bytes.Buffer
		w := f.NewWriter(&stream)
		for _, m := range want {
			if err := w.WriteMessage([]byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got, err := read(f, &stream, 3000)
		if err != nil {
			t.Errorf("%v: %v", f, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: messages (-want +got):\n%s", f, diff)
		}
	}
}

func TestWriteFails(t *testing.T) {
	for _, f := range []Framing{Line, Len32BE} {
		r, stream := io.Pipe()
		r.Close()
		w := f.NewWriter(stream)
		err := w.WriteMessage(make([]byte, 200<<10))
		if err == nil {
			err = w.Flush()
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%v: error %v, want %v", f, err, io.ErrClosedPipe)
		}
	}
}

func TestNames(t *testing.T) {
	for _, f := range []Framing{Line, Len32BE} {
		var got Framing
		if err := got.Set(f.String()); err != nil || got != f {
			t.Errorf("Set(%q) = %v, %v", f, got, err)
		}
	}
	var f Framing
	if err := f.Set("json"); err == nil || !strings.Contains(err.Error(), "line, len32be") {
		t.Errorf("Set of an unknown name: %v", err)
	}
}
