package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rds-go/rds/internal/cli/stress"
)

// The classic letters and names are all there, and mean what they meant.
func TestStressFlags(t *testing.T) {
	f := stressCommand(&common{}).Flags()
	for letter, name := range map[string]string{
		"r": "recv-addr", "s": "send-addr", "p": "port", "t": "tasks", "d": "depth", "q": "req-bytes", "a": "ack-bytes",
		"o": "one-way", "T": "time", "D": "rdma-bytes", "I": "rdma-buffers", "M": "rdma-mode", "Q": "tos", "c": "report-cpu",
		"R": "rtprio", "v": "verify", "V": "trace", "z": "report-summary",
	} {
		if flag := f.ShorthandLookup(letter); flag == nil || flag.Name != name {
			t.Errorf("-%s is %v, want --%s", letter, flag, name)
		}
	}
	for name, want := range map[string]string{"port": "4000", "tasks": "1", "depth": "1", "req-bytes": "1024", "ack-bytes": "63", "time": "0s", "tos": "0"} {
		if got := f.Lookup(name).DefValue; got != want {
			t.Errorf("--%s is %s by default, want %s", name, got, want)
		}
	}
}

// What comes out of a summary: columns for people, objects for programs, and the exit code.
func TestStressFinish(t *testing.T) {
	good := stress.Summary{
		Remote: netip.MustParseAddr("10.0.0.2"), Seconds: 2, Mean: stress.Interval{Tasks: 3, CPU: -1},
		Complete: true, Pass: true, Tally: stress.Tally{Received: 7}, Peer: stress.Tally{Received: 9},
	}
	bad := good
	bad.Pass, bad.Reasons = false, []string{"1 messages lost"}
	broken := stress.Summary{Seconds: 2, Tally: stress.Tally{Doubled: 1}}
	for _, tt := range []struct {
		name   string
		sum    stress.Summary
		err    error
		active bool
		code   int
		text   string // of the error
		out    string
	}{
		{"passed", good, nil, true, exitOK, "", "   3      0      0       0.00       0.00       0.00    0.00     0.00 -1.00  (average)\n"},
		{"passed, passive", good, nil, false, exitOK, "", ""},
		{"failed", bad, nil, true, exitNegative, "failed: 1 messages lost", "(average)"},
		{"failed, passive", bad, nil, false, exitNegative, "failed: 1 messages lost", ""},
		{"peer gone", broken, fmt.Errorf("x: %w", stress.ErrPeer), true, exitNegative, "until then 1 messages doubled", "(average)"},
		{"never began", stress.Summary{}, fmt.Errorf("x: %w", stress.ErrPeer), true, exitNegative, "x: ", ""},
		{"interrupted", stress.Summary{}, context.Canceled, true, exitNegative, "interrupted", ""},
		{"own fault", stress.Summary{}, errors.New("no socket"), true, exitLocal, "no socket", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			r := &stressRun{common: &common{Streams: Streams{Out: &out, Err: &errs}}}
			err := r.finish(tt.sum, tt.err, tt.active)
			if exitCode(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("exit code %d, %v", exitCode(err), err)
			}
			if (out.Len() > 0) != (tt.out != "") || !strings.Contains(out.String(), tt.out) {
				t.Errorf("output %q, want %q", out.String(), tt.out)
			}
			if tt.code == exitOK && !strings.Contains(errs.String(), "passed: 7 messages of 10.0.0.2, and 9 to it, arrived once and in order") {
				t.Errorf("said %q", errs.String())
			}
		})
	}
}
