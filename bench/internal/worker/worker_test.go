package worker

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rds-go/rds/bench/internal/link"
)

func TestArgs(t *testing.T) {
	want := Job{
		Test: RoundTrip, Role: Measure, Kind: "rds", At: netip.MustParseAddr("127.1.2.3"), Endpoint: "127.1.2.4:4000", ServePID: 42,
		Load: link.Load{Size: 64, Batch: 3, Buffer: 5, Peers: 7, Port: 16386, RoundTrip: true},
		Warm: time.Second, Span: time.Minute, Limit: time.Hour,
	}
	got, err := parse(want.Args())
	if err != nil || got != want {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func TestMainFailures(t *testing.T) {
	var out bytes.Buffer
	if rc := Main([]string{"oneway"}, &out); rc != 1 {
		t.Errorf("no role: status %d", rc)
	}
	j := Job{Test: OneWay, Role: Serve, Kind: "pigeon", At: netip.MustParseAddr("127.0.0.1"), Limit: time.Minute}
	if rc := Main(j.Args(), &out); rc != 1 || out.Len() > 0 {
		t.Errorf("no such link: status %d, %q", rc, out.String())
	}
}

func TestQuantiles(t *testing.T) {
	s := make([]time.Duration, 100)
	for i := range s {
		s[i] = time.Duration(100 - i)
	}
	if q := quantiles(s, 0, 0.5, 0.99, 1); q[0] != 1 || q[1] != 51 || q[2] != 100 || q[3] != 100 {
		t.Errorf("%v", q)
	}
	if q := quantiles([]time.Duration{7}, 0.5, 0.99); q[0] != 7 || q[1] != 7 {
		t.Errorf("one sample: %v", q)
	}
}

// fake delivers a chunk of a stream, a message or a batch with each call.
type fake struct{ messages, calls int }

func (f *fake) Send() error { return nil }

func (f *fake) Recv() (int, int, error) {
	f.calls++
	return f.messages, 10, nil
}

func TestDrain(t *testing.T) {
	for _, messages := range []int{0, 1, 64} {
		f := &fake{messages: messages}
		var out strings.Builder
		j := Job{Load: link.Load{Size: 10}, Span: time.Millisecond, ServePID: os.Getpid()}
		if err := j.drain(f, &out); err != nil {
			t.Fatal(err)
		}
		figures := map[string]string{}
		for _, field := range strings.Fields(out.String()) {
			name, value, _ := strings.Cut(field, "=")
			figures[name] = value
		}
		if _, ok := figures["result"]; !ok || figures["bytes"] == "0" || (figures["messages"] == "0") != (messages == 0) {
			t.Errorf("%d messages a call: %s", messages, out.String())
		}
	}
}

func TestProcessTime(t *testing.T) {
	before, err := processTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum, i := 0, 0; i < 1e6; i++ {
		sum += i
	}
	if after, err := processTime(os.Getpid()); err != nil || after <= before {
		t.Errorf("%v after %v: %v", after, before, err)
	}
	// Process numbers are never this large.
	if d, err := processTime(1 << 27); err == nil {
		t.Errorf("no such process: %v", d)
	}
}
