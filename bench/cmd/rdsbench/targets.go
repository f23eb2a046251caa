package main

import (
	"fmt"
	"io"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
	"github.com/rds-go/rds/bench/internal/worker"
	"github.com/rds-go/rds/bench/vm"
)

// targets are what this library has set out to reach; medians are held against
// them. Where a case has several placements, so has the target.
func targets() []report.Target {
	var all []report.Target
	add := func(t report.Target, cases ...string) {
		t.Contender = run.Ours
		for _, c := range cases {
			t.Case = c
			all = append(all, t)
		}
	}
	places := func(size string, more ...string) []string {
		cases := []string{size + " " + string(run.Apart), size + " " + string(run.Free)}
		for _, m := range more {
			cases = append(cases, size+" "+m)
		}
		return cases
	}
	stream := func(size string, least float64) {
		add(report.Target{Title: "stream ratio", Test: worker.OneWay, Figure: run.Stream, Least: least}, places(size)...)
	}
	stream("64 B", 0.5)
	stream("1 KiB", 0.7)
	for _, size := range []string{"8 KiB", "64 KiB", "1 MiB"} {
		stream(size, 0.85)
	}
	add(report.Target{Title: "round trip / raw TCP", Test: worker.RoundTrip, Figure: run.VersusRaw, Most: 1.5},
		places("64 B", string(run.Together))...)

	ahead := report.Target{Title: "x libzmq", Test: worker.OneWay, Figure: run.VersusZMQ, Least: 1}
	for _, size := range []string{"16 B", "64 B", "1 KiB", "8 KiB", "64 KiB", "1 MiB"} {
		add(ahead, places(size)...)
	}
	ahead.Test = worker.RoundTrip
	for _, size := range []string{"64 B", "8 KiB"} {
		add(ahead, places(size, string(run.Together))...)
	}
	ahead.Test = worker.Mesh
	add(ahead, "8 endpoints", "32 endpoints", "128 endpoints")
	ahead.Test = worker.Idle
	add(ahead, "1000 peers")

	add(report.Target{Title: "heap + stacks of an idle peer, KiB", Test: worker.Idle, Figure: "go", Most: 24, Scale: 1. / 1024}, "1000 peers")

	for _, kernel := range []string{"6.1", "7.x"} {
		kernels := report.Target{Title: "x kernel", Test: vm.Prefix + worker.OneWay, Figure: run.VersusKernel, Least: 5}
		add(kernels, places(kernel+" 64 B")...)
		add(kernels, places(kernel+" 1 KiB")...)
		kernels.Least = 1
		add(kernels, places(kernel+" 8 KiB")...)
		add(kernels, places(kernel+" 64 KiB")...)
		kernels.Test = vm.Prefix + worker.RoundTrip
		add(kernels, places(kernel+" 64 B", string(run.Together))...)
	}
	return all
}

// writeTargets says which targets of the tests that ran are met.
func writeTargets(w io.Writer, rep *report.Report) error {
	met, judged, err := rep.WriteTargets(w, targets())
	if err == nil && judged > 0 {
		_, err = fmt.Fprintf(w, "%d of %d targets met\n", met, judged)
	}
	return err
}
