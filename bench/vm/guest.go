package vm

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
)

// GuestCommand is the first argument of the program inside the machine.
const GuestCommand = "vm-guest"

// reportFile is what the guest leaves in its output directory.
const reportFile = "report.json"

// The two ends. User space runs on another TCP port than the kernel, which
// listens in both namespaces.
const (
	serveNS, measureNS = "serve", "measure"
	serveAt, measureAt = "10.66.0.2", "10.66.0.1"
	userPort           = 16386
)

// Guest is the work inside the machine: args are those of guestArgs.
func Guest(ctx context.Context, args []string) error {
	out := os.Getenv("RDS_OUT")
	if os.Getenv("RDS_IN_VM") != "1" || out == "" {
		return errors.New("this command is for the inside of the test machine: use rdsbench -vm")
	}
	fs := flag.NewFlagSet(GuestCommand, flag.ContinueOnError)
	o := run.Options{Progress: os.Stdout}
	fs.IntVar(&o.Rounds, "rounds", 1, "")
	fs.DurationVar(&o.Span, "time", time.Second, "")
	fs.DurationVar(&o.Warm, "warm", 0, "")
	fs.IntVar(&o.Buffer, "buffer", 0, "")
	only := fs.String("only", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.Only = regexp.MustCompile(*only)
	if err := network(ctx); err != nil {
		return err
	}
	rep := &report.Report{Machine: report.ThisMachine(), Rounds: o.Rounds}
	runErr := run.Run(ctx, run.Namespaces(run.Net{
		ServeNS: serveNS, MeasureNS: measureNS,
		ServeAt: netip.MustParseAddr(serveAt), MeasureAt: netip.MustParseAddr(measureAt), Port: userPort,
	}), o, rep)
	// What was measured before a failure is worth having.
	b, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	return errors.Join(runErr, os.WriteFile(filepath.Join(out, reportFile), b, 0o644))
}

func guestArgs(o run.Options) []string {
	args := []string{GuestCommand, "-rounds", fmt.Sprint(o.Rounds), "-time", o.Span.String(), "-warm", o.Warm.String(), "-buffer", fmt.Sprint(o.Buffer)}
	if o.Only != nil {
		args = append(args, "-only", o.Only.String())
	}
	return args
}

// network makes the two namespaces and joins them by a pair of veth devices.
func network(ctx context.Context) error {
	batch := fmt.Sprintf(`netns add %[1]s
netns add %[2]s
link add vs netns %[1]s type veth peer name vm netns %[2]s
`, serveNS, measureNS)
	// By path: the machine's shell has another ip.
	if err := ip(ctx, batch); err != nil {
		return err
	}
	for _, end := range []struct{ ns, dev, at string }{{serveNS, "vs", serveAt}, {measureNS, "vm", measureAt}} {
		batch := fmt.Sprintf("link set lo up\naddr add %s/24 dev %s\nlink set %[2]s up\n", end.at, end.dev)
		if err := ip(ctx, batch, "-n", end.ns); err != nil {
			return err
		}
	}
	return nil
}

func ip(ctx context.Context, batch string, args ...string) error {
	cmd := exec.CommandContext(ctx, "/sbin/ip", append(args, "-batch", "-")...)
	cmd.Stdin = strings.NewReader(batch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
