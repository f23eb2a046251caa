package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/framing"
)

var peer = func() rds.Addr {
	a, err := rds.ParseAddr("127.0.0.9:4000")
	if err != nil {
		panic(err)
	}
	return a
}()

// script is a receiver whose messages come in bursts: TryRecv finds those of the present burst, Recv
// waits for the next. What arrives in the moment when ctx ends is in atEnd.
type script struct {
	bursts [][]string
	atEnd  []string
	end    context.CancelFunc
	onWait func()
}

func (s *script) TryRecv(p []byte) (int, rds.Addr, error) {
	if len(s.bursts) == 0 || len(s.bursts[0]) == 0 {
		return 0, rds.Addr{}, rds.ErrAgain
	}
	m := s.bursts[0][0]
	s.bursts[0] = s.bursts[0][1:]
	return copy(p, m), peer, nil
}

func (s *script) Recv(ctx context.Context, p []byte) (int, rds.Addr, error) {
	s.onWait()
	if len(s.bursts) > 0 {
		s.bursts = s.bursts[1:]
	}
	if len(s.bursts) == 0 {
		s.bursts = [][]string{s.atEnd}
		s.end()
		return 0, rds.Addr{}, ctx.Err()
	}
	return s.TryRecv(p)
}

func TestPour(t *testing.T) {
	for _, tt := range []struct {
		name  string
		in    script
		count uint64
		got   uint64
		want  string
	}{
		{"until the end", script{bursts: [][]string{{"a", "b"}, {"c"}}}, 0, 3, "a\nb\nc\n"},
		{"what came before the end is written", script{bursts: [][]string{{"a"}}, atEnd: []string{"y", "z"}}, 0, 3, "a\ny\nz\n"},
		{"count", script{bursts: [][]string{{"a", "b", "c"}}}, 2, 2, "a\nb\n"},
		{"fewer than count", script{bursts: [][]string{{"a"}}}, 2, 1, "a\n"},
		{"empty messages count", script{bursts: [][]string{{"", ""}, {""}}}, 3, 3, "\n\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var out bytes.Buffer
			written := 0
			tt.in.end = cancel
			tt.in.onWait = func() { written = out.Len() }
			got, err := pour(ctx, &tt.in, &framed{framing.Line.NewWriter(&out)}, tt.count)
			if err != nil || got != tt.got {
				t.Errorf("poured %d messages, error %v, want %d", got, err, tt.got)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if tt.count == 0 && written+2*len(tt.in.atEnd) < out.Len() {
				t.Errorf("%d of %d bytes were flushed before waiting", written, out.Len())
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestPourOutputFails(t *testing.T) {
	in := script{bursts: [][]string{{"a"}, {"b"}}, onWait: func() {}}
	_, err := pour(context.Background(), &in, &framed{framing.Line.NewWriter(full{})}, 0)
	if exitCode(err) != exitLocal {
		t.Errorf("error %v", err)
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	w := &jsonLines{framing.Line.NewWriter(&out)}
	for _, m := range []string{"hello\n", "", "\xff\x00"} {
		if err := w.put(peer, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `{"from":"127.0.0.9:4000","len":6,"text":"hello\n"}
{"from":"127.0.0.9:4000","len":0,"text":""}
{"from":"127.0.0.9:4000","len":2,"base64":"/wA="}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
