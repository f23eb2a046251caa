// Package vm compares this library with the kernel's RDS, between the same two
// network namespaces of one machine in QEMU, on each kernel that package interop
// has. In come the options of a run, out come its rows.
//
// The machine is emulated, so its absolute figures mean nothing; both sides of a
// ratio suffer alike.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
	"github.com/rds-go/rds/interop"
)

// Run boots each kernel, runs the plan of run.Namespaces in it and adds the rows
// to rep, with tests named "vm TEST" and cases named "KERNEL CASE". A kernel that
// is not prepared is an error that says how to prepare it.
func Run(ctx context.Context, o run.Options, rep *report.Report) error {
	dir, err := os.MkdirTemp("", "rdsbench-vm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "rdsbench")
	if err := build(ctx, binary); err != nil {
		return err
	}
	for _, label := range interop.Labels {
		k, err := interop.Find(label)
		if err != nil {
			return err
		}
		fmt.Fprintf(o.Progress, "kernel %s\n", k.Version)
		guest, err := boot(ctx, k, o, binary, filepath.Join(dir, label))
		if guest != nil {
			merge(rep, label, guest)
		}
		if err != nil {
			return fmt.Errorf("kernel %s: %w", k.Version, err)
		}
	}
	return nil
}

// build compiles this program for the machine, which has no C library.
func build(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, "github.com/rds-go/rds/bench/cmd/rdsbench")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the guest (run rdsbench inside its source tree): %w\n%s", err, out)
	}
	return nil
}

// boot returns what the guest left, even if it failed in the end.
func boot(ctx context.Context, k interop.Kernel, o run.Options, binary, dir string) (*report.Report, error) {
	measurements := 0
	for _, s := range run.Namespaces(run.Net{}) {
		measurements += len(s.Contenders)
	}
	// Starting processes takes an emulated machine long.
	each := o.Warm + o.Span + 3*time.Second
	res, bootErr := interop.Boot(ctx, k, interop.Job{
		Binary: binary, Args: guestArgs(o), OutDir: dir,
		Timeout: 2*time.Minute + time.Duration(o.Rounds*measurements)*each,
	})
	if res == nil {
		return nil, bootErr
	}
	if bootErr == nil && res.RC != 0 {
		log, _ := os.ReadFile(res.Log)
		bootErr = fmt.Errorf("the guest ended with status %d:\n%s", res.RC, log)
	}
	b, err := os.ReadFile(filepath.Join(res.Out, reportFile))
	if err != nil {
		return nil, errors.Join(bootErr, err)
	}
	guest := new(report.Report)
	if err := json.Unmarshal(b, guest); err != nil {
		return nil, fmt.Errorf("%s of the guest: %w", reportFile, err)
	}
	fmt.Fprintf(o.Progress, "kernel %s: %s, %v\n", k.Version, res.Accel, res.Elapsed.Round(time.Second))
	return guest, bootErr
}

// Prefix of the names of tests in the machine.
const Prefix = "vm "

func merge(rep *report.Report, label string, guest *report.Report) {
	for _, row := range guest.Rows {
		row.Test, row.Case = Prefix+row.Test, label+" "+row.Case
		rep.Rows = append(rep.Rows, row)
	}
}

// WriteTables writes the tables of the rows that Run added.
func WriteTables(w io.Writer, rep *report.Report) error {
	for _, t := range []struct {
		test, title string
		columns     []report.Column
	}{
		{"oneway", "One way in the VM", []report.Column{
			{Figure: run.Rate, Title: "msg/s"},
			{Figure: run.Bytes, Title: "MB/s", Scale: 1e-6},
			{Figure: run.VersusKernel, Title: "x kernel", Spread: true},
			{Figure: run.Stream, Title: "stream ratio", Spread: true},
		}},
		{"roundtrip", "Round trip in the VM", []report.Column{
			{Figure: "p50_ns", Title: "p50 us", Scale: 1e-3},
			{Figure: "p99_ns", Title: "p99 us", Scale: 1e-3},
			{Figure: run.VersusKernel, Title: "x kernel", Spread: true},
			{Figure: run.VersusRaw, Title: "p50 / raw TCP", Spread: true},
		}},
	} {
		if err := rep.WriteTable(w, Prefix+t.test, t.title, "kernel, size", t.columns); err != nil {
			return err
		}
	}
	return nil
}
