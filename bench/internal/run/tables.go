package run

import (
	"io"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/worker"
)

// WriteTables writes a table for each test that has rows.
func WriteTables(w io.Writer, rep *report.Report) error {
	for _, t := range []struct {
		test, title, cases string
		columns            []report.Column
	}{
		{worker.OneWay, "One way", "size", []report.Column{
			{Figure: Rate, Title: "msg/s"},
			{Figure: Bytes, Title: "MB/s", Scale: 1e-6},
			{Figure: Stream, Title: "stream ratio", Spread: true},
			{Figure: VersusZMQ, Title: "x libzmq", Spread: true},
			{Figure: CPU, Title: "CPU us/msg", Scale: 1e-3},
		}},
		{worker.RoundTrip, "Round trip", "size", []report.Column{
			{Figure: "p50_ns", Title: "p50 us", Scale: 1e-3},
			{Figure: "p99_ns", Title: "p99 us", Scale: 1e-3},
			{Figure: VersusRaw, Title: "p50 / raw TCP", Spread: true},
			{Figure: TailRaw, Title: "p99 / raw TCP", Spread: true},
			{Figure: VersusZMQ, Title: "x libzmq", Spread: true},
			{Figure: CPU, Title: "CPU us/msg", Scale: 1e-3},
		}},
		{worker.Mesh, "All to all, 64 B", "mesh", []report.Column{
			{Figure: Rate, Title: "msg/s"},
			{Figure: VersusMsg, Title: "x tcp-msg", Spread: true},
			{Figure: VersusZMQ, Title: "x libzmq", Spread: true},
			{Figure: CPU, Title: "CPU us/msg", Scale: 1e-3},
		}},
		{worker.Idle, "Memory of an idle peer", "peers", []report.Column{
			{Figure: "heap", Title: "heap KiB", Scale: 1. / 1024},
			{Figure: "stack", Title: "stacks KiB", Scale: 1. / 1024},
			{Figure: "go", Title: "heap + stacks KiB", Scale: 1. / 1024, Spread: true},
			{Figure: "resident", Title: "resident KiB", Scale: 1. / 1024, Spread: true},
			{Figure: VersusZMQ, Title: "x libzmq", Spread: true},
		}},
	} {
		if err := rep.WriteTable(w, t.test, t.title, t.cases, t.columns); err != nil {
			return err
		}
	}
	return nil
}
