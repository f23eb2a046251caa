package run

import (
	"maps"
	"math"
	"testing"

	"github.com/rds-go/rds/bench/internal/worker"
)

func TestDerive(t *testing.T) {
	all := map[string]Figures{
		Raw:  {"ns": 1e9, "bytes": 1000, "p50_ns": 10, "p99_ns": 20},
		Ours: {"ns": 5e8, "bytes": 64, "messages": 2, "cpu_serve_ns": 30, "cpu_measure_ns": 10, "p50_ns": 15, "p99_ns": 60, "resident": 100},
		Peer: {"ns": 1e9, "bytes": 64, "messages": 2, "p50_ns": 30, "resident": 300},
	}
	for _, f := range all {
		rates(f)
	}
	f := all[Ours]
	if f[Rate] != 4 || f[Bytes] != 128 || f[CPU] != 20 {
		t.Fatalf("rates: %v", f)
	}
	for _, tt := range []struct {
		step Step
		want Figures
	}{
		{Step{Test: worker.OneWay, Size: 32}, Figures{Stream: 0.32, VersusZMQ: 2}},
		{Step{Test: worker.RoundTrip, Size: 32}, Figures{VersusRaw: 1.5, TailRaw: 3, VersusZMQ: 2}},
		{Step{Test: worker.Mesh}, Figures{VersusZMQ: 2}},
		{Step{Test: worker.Idle}, Figures{VersusZMQ: 3}},
	} {
		got := maps.Clone(f)
		derive(tt.step, got, all)
		for name, want := range tt.want {
			if math.Abs(got[name]-want) > 1e-9 {
				t.Errorf("%s: %s = %v, want %v", tt.step.Test, name, got[name], want)
			}
		}
		if len(got) != len(f)+len(tt.want) {
			t.Errorf("%s: %v, want %v added to %v", tt.step.Test, got, tt.want, f)
		}
	}
}

// A ratio to what was skipped or has failed does not exist.
func TestDeriveWithoutOthers(t *testing.T) {
	f := Figures{"ns": 1e9, "bytes": 64, "messages": 2, "p50_ns": 30}
	rates(f)
	n := len(f)
	for _, test := range []string{worker.OneWay, worker.RoundTrip, worker.Mesh, worker.Idle} {
		if derive(Step{Test: test}, f, map[string]Figures{Ours: f}); len(f) != n {
			t.Errorf("%s: %v", test, f)
		}
	}
}
