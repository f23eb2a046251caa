package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main runs the command of this process and returns its exit code. The first SIGINT or SIGTERM asks the
// command to end in good order, the second one ends the process.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, os.Args[1:], Streams{os.Stdin, os.Stdout, os.Stderr})
}

// Run runs the command given by args and returns its exit code. The end of ctx asks the command to end
// in good order.
func Run(ctx context.Context, args []string, std Streams) int {
	root := newRoot(std)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	// Commands return their errors as *outcome (see run). What is not one comes from cobra: an
	// unknown command or flag, or wrong arguments.
	var o *outcome
	code := exitUsage
	if errors.As(err, &o) {
		code = exitCode(o.err)
	}
	fmt.Fprintf(std.Err, "%s: %s\n", cmd.CommandPath(), strings.TrimPrefix(err.Error(), "rds: "))
	if code == exitUsage {
		fmt.Fprintf(std.Err, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// outcome marks the error of a command that ran, in contrast to one that could not be started.
type outcome struct{ err error }

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }

// run makes a command's RunE out of f.
func run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return &outcome{err}
		}
		return nil
	}
}

// noArgs is cobra.NoArgs with a message for commands that have no subcommands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// common is what all commands share: streams and persistent flags.
type common struct {
	Streams
	port    uint16
	level   string
	verbose int
}

func newRoot(std Streams) *cobra.Command {
	c := &common{Streams: std}
	root := &cobra.Command{
		Use:   "rds",
		Short: "Reliable Datagram Sockets in user space",
		Long: `rds speaks Reliable Datagram Sockets: messages of up to 1 MiB between
IP addresses, delivered once and in order over connections that heal by
themselves. On the wire it is the Linux kernel's RDS over TCP, so the other
end may be a kernel.

` + exitCodesHelp,
		Example: `  rds demo                                  four nodes, killed connections, a verdict
  rds ping 10.0.0.2                         is there RDS at 10.0.0.2?
  rds recv --bind 10.0.0.2:4000             print what comes
  echo hello | rds send 10.0.0.2:4000       send a line`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)

	flags := root.PersistentFlags()
	flags.StringVar(&c.level, "log-level", "off", "events on standard error: off, error, warn, info or debug")
	flags.CountVarP(&c.verbose, "verbose", "v", "same as --log-level info; twice: debug")
	flags.Uint16Var(&c.port, "port", 0, "TCP port of RDS, 0 = 16385")
	if err := flags.MarkHidden("port"); err != nil {
		panic(err)
	}

	root.AddCommand(demoCommand(c), pingCommand(c), recvCommand(c), sendCommand(c), stressCommand(c), versionCommand(c))
	return root
}

// logger returns where events go; nil for nowhere.
func (c *common) logger() (*slog.Logger, error) {
	var level slog.Level
	switch {
	case c.level != "off":
		if err := level.UnmarshalText([]byte(c.level)); err != nil {
			return nil, usagef("unknown --log-level %q: one of off, error, warn, info, debug", c.level)
		}
	case c.verbose == 0:
		return nil, nil
	case c.verbose > 1:
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: level})), nil
}

// plural says how many of a thing there are.
func plural[N int | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
