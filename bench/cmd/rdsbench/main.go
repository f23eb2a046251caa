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

func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("rdsbench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	rounds := fs.Int("rounds", 5, "how often everything is measured")
	span := fs.Duration("time", 500*time.Millisecond, "how long each measurement counts, after a fifth of it for warming up")
	only := fs.String("only", "", "measure only what matches this regular `expression`, against TEST/CASE/CONTENDER (\"oneway/64 B apart/rds$\"); what ratios are taken to always comes along")
	json := fs.String("json", "", "write all samples to this `file` as well")
	quick := fs.Bool("quick", false, "1 round of at most 20 ms each: shows that everything works, not how fast")
	buffer := fs.Int("buffer", 0, "send and receive buffer of RDS sockets in `bytes`; 0 chooses")
	foreign := fs.Float64("foreign", 0.1, "measure again while other processes use more than this `share` of the machine; 0 does not look")
	inVM := fs.Bool("vm", false, "compare with the kernel's RDS in virtual machines instead (interop/setup.sh prepares them)")
	quiet := fs.Bool("q", false, "say nothing while measuring")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o := run.Options{Rounds: *rounds, Span: *span, Buffer: *buffer, Foreign: *foreign, Progress: stderr}
	if *quick {
		o.Rounds, o.Span, o.Foreign = 1, min(o.Span, 20*time.Millisecond), 0
	}
	if *quiet {
		o.Progress = io.Discard
	}
	if o.Rounds < 1 || o.Span <= 0 {
		return fmt.Errorf("-rounds %d -time %v: both must be positive", o.Rounds, o.Span)
	}
	if o.Foreign < 0 || o.Foreign > 1 {
		return fmt.Errorf("-foreign %v: must be from 0 to 1", o.Foreign)
	}
	o.Warm = o.Span / 5
	if *only != "" {
		re, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-only: %w", err)
		}
		o.Only = re
	}
	rep := &report.Report{
		Machine: report.ThisMachine(), Command: strings.Join(append([]string{"rdsbench"}, args...), " "),
		Started: time.Now().UTC().Format(time.RFC3339), Rounds: o.Rounds, Span: o.Span.String(),
	}
	var runErr error
	if *inVM {
		runErr = vm.Run(ctx, o, rep)
	} else {
		runErr = run.Run(ctx, run.Host(), o, rep)
	}
	// What was measured before an interruption is worth seeing.
	rep.WriteHead(stdout)
	if err := errors.Join(run.WriteTables(stdout, rep), vm.WriteTables(stdout, rep), writeTargets(stdout, rep)); err != nil {
		return err
	}
	if *json != "" {
		f, err := os.Create(*json)
		if err != nil {
			return err
		}
		if err := rep.WriteJSON(f); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return runErr
}
