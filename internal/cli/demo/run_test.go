package demo

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The whole show over real TCP: it passes, kills in each manner, and leaves nothing behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t)
	var screen bytes.Buffer
	v, err := Run(t.Context(), Config{
		Nodes: 3, Sockets: 2, Duration: 2 * time.Second, Size: 500, Rate: 3000, Seed: 1, Screen: &screen,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !v.Pass || v.Received != v.Messages {
		t.Errorf("verdict %+v", v)
	}
	if v.Smaller == 0 || v.Larger == 0 || v.MidFrame == 0 {
		t.Errorf("resets by smaller %d, by larger %d, in mid-frame %d: want some of each", v.Smaller, v.Larger, v.MidFrame)
	}
	if !strings.Contains(screen.String(), " s  sent ") {
		t.Errorf("screen shows %q", screen.String())
	}
}

// An interrupt ends the sending, not the check.
func TestRunInterrupted(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	interrupt := writerFunc(func([]byte) { cancel() }) // with the first line of the table
	v, err := Run(ctx, Config{Nodes: 2, Sockets: 1, Duration: time.Hour, Size: 100, Rate: 1000, Seed: 1, Screen: interrupt})
	if err != nil {
		t.Fatal(err)
	}
	if v.Messages == 0 || v.Lost+v.Doubled+v.Reordered+v.Damaged+v.Unacknowledged > 0 {
		t.Errorf("verdict %+v", v)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
