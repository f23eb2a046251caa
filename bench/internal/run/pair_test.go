package run

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/worker"
)

// shell is a contender whose processes are shell scripts.
func shell(serve, measure string) Contender {
	return Contender{Name: "sh", Command: func(j worker.Job) ([]string, error) {
		script := serve
		if j.Role == worker.Measure {
			script = measure
		}
		return []string{"/bin/sh", "-c", script, "sh", j.Endpoint}, nil
	}}
}

func step(c Contender) Step {
	return Step{Test: worker.OneWay, Name: "case", Size: 1, Contenders: []Contender{c}}
}

func TestPair(t *testing.T) {
	const serve = "echo ready over there; exec sleep 100"
	for _, tt := range []struct{ name, serve, measure, want, skip, err string }{
		{name: "result", serve: serve, measure: `[ "$1" = "over there" ] && echo result messages=3 ns=1.5`, want: "3 1.5"},
		{name: "the one that serves skips", serve: "echo skip no such thing", measure: "", skip: "no such thing"},
		{name: "the one that measures skips", serve: serve, measure: "echo skip not here", skip: "not here"},
		{name: "a limit shows in the middle", serve: "echo ready x; read line </dev/null; echo skip too large", measure: "exit 1", skip: "too large"},
		{name: "failure", serve: serve, measure: "echo bad luck >&2; exit 1", err: "bad luck"},
		{name: "no result", serve: serve, measure: "", err: "EOF"},
		{name: "another line", serve: "echo hello", measure: "", err: `printed "hello", expected ready`},
		{name: "no number", serve: serve, measure: "echo result x=y", err: "x=y"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := shell(tt.serve, tt.measure)
			var own time.Duration
			f, err := pair(t.Context(), c, step(c), Options{Span: time.Millisecond}, &own)
			var skip *skipped
			switch {
			case tt.skip != "":
				if !errors.As(err, &skip) || skip.reason != tt.skip {
					t.Errorf("%v, want skipped: %s", err, tt.skip)
				}
			case tt.err != "":
				if err == nil || errors.As(err, &skip) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want an error with %q", err, tt.err)
				}
			case err != nil || f["messages"] != 3 || f["ns"] != 1.5:
				t.Errorf("%v, %v", f, err)
			}
		})
	}
}

// What fails or cannot be measured is in the report, and the others go on.
func TestRun(t *testing.T) {
	const serve = "echo ready x; exec sleep 100"
	named := func(name, measure string) Contender {
		c := shell(serve, measure)
		c.Name = name
		return c
	}
	s := Step{Test: worker.OneWay, Name: "case", Size: 1, Contenders: []Contender{
		named(Raw, "echo result ns=1e9 bytes=100"), named(Ours, "echo result ns=1e9 bytes=2 messages=2"),
		named("bad", "exit 1"), named("absent", "echo skip absent"), named("unwanted", "echo result"),
	}}
	rep := &report.Report{}
	o := Options{Rounds: 2, Span: time.Millisecond, Progress: io.Discard, Only: regexp.MustCompile("/(rds|bad|absent)$")}
	if err := Run(t.Context(), []Step{s}, o, rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Rows) != 4 {
		t.Errorf("%d rows, want 4: the yardstick comes along, the unwanted one does not", len(rep.Rows))
	}
	if row := rep.Find(worker.OneWay, "case", Ours); len(row.Figures[Stream]) != 2 || row.Figures[Stream].Median() != 49*2/100. {
		t.Errorf("ours: %+v", row)
	}
	if row := rep.Find(worker.OneWay, "case", "bad"); !strings.Contains(row.Failed, "exit status 1") {
		t.Errorf("bad: %+v", row)
	}
	if row := rep.Find(worker.OneWay, "case", "absent"); row.Skipped != "absent" {
		t.Errorf("absent: %+v", row)
	}

	o.Only = regexp.MustCompile("nonsense")
	if err := Run(t.Context(), []Step{s}, o, rep); err == nil {
		t.Error("nothing selected, and no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Only = nil
	if err := Run(ctx, []Step{s}, o, rep); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
