// Command rdsbench compares Reliable Datagram Sockets in user space with what a
// program might use in their place, all in one run, and prints ratios. See
// docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
	"github.com/rds-go/rds/bench/internal/worker"
	"github.com/rds-go/rds/bench/vm"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(worker.Main(os.Args[2:], os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == vm.GuestCommand {
		err = vm.Guest(ctx, os.Args[2:])
	} else {
		err = bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdsbench:", err)
		os.Exit(1)
	}
}

// settings are what the command line says.
type settings struct {
	run.Options
	vm           bool
	json, record string
}

func parse(args []string, stderr io.Writer) (settings, error) {
	s := settings{Options: run.Options{Progress: stderr}}
	fs := flag.NewFlagSet("rdsbench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&s.Rounds, "rounds", 5, "how often everything is measured")
	fs.DurationVar(&s.Span, "time", 500*time.Millisecond, "how long each measurement counts, after a fifth of it for warming up")
	fs.Func("only", "measure only what matches this regular `expression`, against TEST/CASE/CONTENDER (\"oneway/64 B apart/rds$\"); what ratios are taken to always comes along",
		func(text string) (err error) {
			s.Only, err = regexp.Compile(text)
			return err
		})
	fs.IntVar(&s.Buffer, "buffer", 0, "send and receive buffer of RDS sockets in `bytes`; 0 chooses")
	fs.Float64Var(&s.Foreign, "foreign", 0.1, "measure again while other processes use more than this `share` of the machine; 0 does not look")
	fs.BoolVar(&s.vm, "vm", false, "compare with the kernel's RDS in virtual machines instead (interop/setup.sh prepares them)")
	fs.StringVar(&s.json, "json", "", "write all samples to this `file` as well")
	fs.StringVar(&s.record, "record", "", "put the output into this `file` as well, between its lines <!-- rdsbench --> and <!-- /rdsbench -->, or rdsbench-vm")
	quick := fs.Bool("quick", false, "1 round of at most 20 ms each: shows that everything works, not how fast")
	quiet := fs.Bool("q", false, "say nothing while measuring")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if *quick {
		s.Rounds, s.Span, s.Foreign = 1, min(s.Span, 20*time.Millisecond), 0
	}
	if *quiet {
		s.Progress = io.Discard
	}
	s.Warm = s.Span / 5
	switch {
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.Rounds < 1 || s.Span <= 0:
		return s, fmt.Errorf("-rounds %d -time %v: both must be positive", s.Rounds, s.Span)
	case s.Foreign < 0 || s.Foreign > 1:
		return s, fmt.Errorf("-foreign %v: must be from 0 to 1", s.Foreign)
	}
	return s, nil
}

func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	rep := &report.Report{
		Machine: report.ThisMachine(), Revision: report.Revision(), Command: strings.Join(append([]string{"rdsbench"}, args...), " "),
		Started: time.Now().UTC().Format(time.RFC3339), Rounds: s.Rounds, Span: s.Span.String(),
	}
	place := "rdsbench"
	var runErr error
	if s.vm {
		place = "rdsbench-vm"
		runErr = vm.Run(ctx, s.Options, rep)
	} else {
		runErr = run.Run(ctx, run.Host(), s.Options, rep)
	}
	// What was measured before an interruption is worth seeing, though not
	// worth recording.
	text, err := render(rep)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if s.json != "" {
		runErr = errors.Join(runErr, writeJSON(s.json, rep))
	}
	if s.record != "" && runErr == nil {
		return report.Record(s.record, place, text)
	}
	return runErr
}

func render(rep *report.Report) (string, error) {
	var b strings.Builder
	rep.WriteHead(&b)
	err := errors.Join(run.WriteTables(&b, rep), vm.WriteTables(&b, rep), writeTargets(&b, rep))
	return b.String(), err
}

func writeJSON(file string, rep *report.Report) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(rep.WriteJSON(f), f.Close())
}
