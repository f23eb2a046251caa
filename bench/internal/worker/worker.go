// Package worker is what a process under measurement does: it makes one end of a
// link, sends or receives for a while, and prints one line of figures.
//
// Every measurement is a pair of processes. The first one listens and prints
// "ready ENDPOINT"; the second one dials that endpoint, is told the first one's
// process number, measures, and prints "result NAME=NUMBER …". Either may print
// "skip REASON" instead. zmq/zmqbench.c speaks the same lines, so that a library
// without Go is measured by the same coordinator (package run), which kills the
// first process when the second one is done.
package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/rds-go/rds/bench/internal/link"
)

// Tests with two processes.
const (
	// OneWay: the process that listened sends as fast as it can, the one that
	// dialled receives and measures.
	OneWay = "oneway"
	// RoundTrip: the process that dialled sends a message, waits for the
	// answer and measures, again and again.
	RoundTrip = "roundtrip"
)

// Roles of the two processes.
const (
	Serve   = "serve"
	Measure = "measure"
)

// Job is the work of one process.
type Job struct {
	Test, Role string
	Kind       string
	Load       link.Load
	At         netip.Addr
	// Endpoint and ServePID describe the process that listened. They are for
	// the one that measures.
	Endpoint string
	ServePID int
	// Warm is how long traffic flows before it counts, Span how long it counts.
	Warm, Span time.Duration
	// Limit ends the process in any case.
	Limit time.Duration
}

// Args are the command line of a job, for Main.
func (j Job) Args() []string {
	return []string{j.Test, j.Role,
		"-kind", j.Kind, "-size", fmt.Sprint(j.Load.Size), "-batch", fmt.Sprint(j.Load.Batch),
		"-buffer", fmt.Sprint(j.Load.Buffer), "-peers", fmt.Sprint(j.Load.Peers), "-port", fmt.Sprint(j.Load.Port), "-at", j.At.String(),
		"-to", j.Endpoint, "-pid", fmt.Sprint(j.ServePID),
		"-warm", j.Warm.String(), "-time", j.Span.String(), "-limit", j.Limit.String()}
}

func parse(args []string) (Job, error) {
	if len(args) < 2 {
		return Job{}, errors.New("a worker needs a test and a role")
	}
	j := Job{Test: args[0], Role: args[1]}
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	var port uint
	fs.StringVar(&j.Kind, "kind", "", "")
	fs.IntVar(&j.Load.Size, "size", 1, "")
	fs.IntVar(&j.Load.Batch, "batch", 1, "")
	fs.IntVar(&j.Load.Buffer, "buffer", 0, "")
	fs.IntVar(&j.Load.Peers, "peers", 0, "")
	fs.UintVar(&port, "port", 0, "")
	fs.TextVar(&j.At, "at", netip.Addr{}, "")
	fs.StringVar(&j.Endpoint, "to", "", "")
	fs.IntVar(&j.ServePID, "pid", 0, "")
	fs.DurationVar(&j.Warm, "warm", 0, "")
	fs.DurationVar(&j.Span, "time", time.Second, "")
	fs.DurationVar(&j.Limit, "limit", time.Minute, "")
	if err := fs.Parse(args[2:]); err != nil {
		return Job{}, err
	}
	j.Load.Port = uint16(port)
	j.Load.RoundTrip = j.Test == RoundTrip
	return j, nil
}

// Main runs the job of a command line and returns the exit status of the process.
func Main(args []string, out io.Writer) int {
	j, err := parse(args)
	if err == nil {
		// Calls that ignore the context, as those of AF_RDS do, end as well.
		time.AfterFunc(j.Limit+time.Second, func() {
			fmt.Fprintf(os.Stderr, "%s %s %s: no end after %v\n", j.Kind, j.Test, j.Role, j.Limit)
			os.Exit(3)
		})
		ctx, cancel := context.WithTimeout(context.Background(), j.Limit)
		defer cancel()
		if dir := os.Getenv(ProfileDir); dir != "" {
			stop, perr := j.profile(dir)
			if perr != nil {
				fmt.Fprintln(os.Stderr, perr)
				return 1
			}
			defer stop()
		}
		err = j.run(ctx, out)
	}
	var skip *link.SkipError
	switch {
	case errors.As(err, &skip):
		fmt.Fprintln(out, "skip", skip.Reason)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (j Job) run(ctx context.Context, out io.Writer) error {
	switch {
	case j.Test == Mesh:
		return j.mesh(ctx, out)
	case j.Test == Idle && j.Role == Serve:
		return j.crowd(ctx, out)
	case j.Test == Idle:
		return j.idle(ctx, out)
	}
	kind, err := link.Find(j.Kind)
	if err != nil {
		return err
	}
	if j.Role == Serve {
		l, err := kind.Listen(ctx, j.Load, j.At)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "ready", l.Endpoint())
		end, err := l.Accept()
		if err != nil {
			return err
		}
		if j.Test == RoundTrip {
			return echo(end)
		}
		return pour(end)
	}
	end, err := kind.Dial(ctx, j.Load, j.At, j.Endpoint)
	if err != nil {
		return err
	}
	if j.Test == RoundTrip {
		return j.turns(end, out)
	}
	return j.drain(end, out)
}

// pour sends until the coordinator kills the process.
func pour(end link.Link) error {
	for {
		if err := end.Send(); err != nil {
			return err
		}
	}
}

func echo(end link.Link) error {
	for {
		if _, _, err := end.Recv(); err != nil {
			return err
		}
		if err := end.Send(); err != nil {
			return err
		}
	}
}

// drain receives: first until the stream has warmed up, then for as long as it
// counts. What it counts has been delivered, whatever the sender has accepted.
func (j Job) drain(end link.Link, out io.Writer) error {
	// The clock is read once for about 64 KiB: reading it for every small
	// message would be a part of what is measured.
	stride := min(max(1, link.ChunkSize/max(1, j.Load.Size)), 256)
	receive := func(span time.Duration) (messages, bytes int, took time.Duration, err error) {
		start := time.Now()
		for took < span {
			for n := 0; n < stride; {
				m, b, err := end.Recv()
				if err != nil {
					return 0, 0, 0, err
				}
				messages, bytes = messages+m, bytes+b
				n += m
				if m == 0 {
					break // a chunk of a stream
				}
			}
			took = time.Since(start)
		}
		return messages, bytes, took, nil
	}
	if _, _, err := end.Recv(); err != nil { // the other end is at work
		return err
	}
	if _, _, _, err := receive(j.Warm); err != nil {
		return err
	}
	cpu, err := j.cpu()
	if err != nil {
		return err
	}
	messages, bytes, took, err := receive(j.Span)
	if err != nil {
		return err
	}
	used, err := j.cpuSince(cpu)
	if err != nil {
		return err
	}
	return result(out, used, "messages=%d bytes=%d ns=%d", messages, bytes, took.Nanoseconds())
}

// turns measures single round trips, one after the other.
func (j Job) turns(end link.Link, out io.Writer) error {
	turn := func() error {
		if err := end.Send(); err != nil {
			return err
		}
		_, _, err := end.Recv()
		return err
	}
	for start := time.Now(); time.Since(start) <= j.Warm; {
		if err := turn(); err != nil {
			return err
		}
	}
	cpu, err := j.cpu()
	if err != nil {
		return err
	}
	samples := make([]time.Duration, 0, 1<<20)
	start := time.Now()
	last := start
	for last.Sub(start) < j.Span {
		if err := turn(); err != nil {
			return err
		}
		now := time.Now()
		samples = append(samples, now.Sub(last))
		last = now
	}
	used, err := j.cpuSince(cpu)
	if err != nil {
		return err
	}
	p := quantiles(samples, 0.5, 0.99)
	return result(out, used, "messages=%d ns=%d p50_ns=%d p99_ns=%d",
		2*len(samples), last.Sub(start).Nanoseconds(), p[0].Nanoseconds(), p[1].Nanoseconds())
}

// usage is the processor time, user and system, of the two processes.
type usage struct{ serve, measure time.Duration }

func (j Job) cpu() (usage, error) {
	serve, err := processTime(j.ServePID)
	if err != nil {
		return usage{}, err
	}
	measure, err := processTime(os.Getpid())
	return usage{serve, measure}, err
}

func (j Job) cpuSince(start usage) (usage, error) {
	end, err := j.cpu()
	return usage{end.serve - start.serve, end.measure - start.measure}, err
}

func result(out io.Writer, used usage, format string, args ...any) error {
	_, err := fmt.Fprintf(out, "result "+format+" cpu_serve_ns=%d cpu_measure_ns=%d\n",
		append(args, used.serve.Nanoseconds(), used.measure.Nanoseconds())...)
	return err
}
