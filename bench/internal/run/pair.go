// Package run is the coordinator: it starts the processes that package worker
// describes, one measurement after the other, round by round, and makes rows of
// package report from what they print.
//
// The two sides of a ratio are always of the same round and at most seconds apart,
// so that a machine whose speed drifts does not spoil it.
package run

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rds-go/rds/bench/internal/worker"
)

// Figures are what one measurement printed: name -> number.
type Figures map[string]float64

// skipped says that a contender cannot do this on this machine. It is a result.
type skipped struct{ reason string }

func (e *skipped) Error() string { return "skipped: " + e.reason }

// A process is one worker whose lines are read.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stderr bytes.Buffer
}

func start(ctx context.Context, c Contender, job worker.Job, on spot) (*process, error) {
	argv, err := c.Command(job)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	if err := on.start(p.cmd); err != nil {
		return nil, err
	}
	return p, nil
}

// expect reads the next line and returns what follows its first word, which must
// be want or "skip".
func (p *process) expect(want string) (string, error) {
	if !p.lines.Scan() {
		err := p.lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		// Waiting also completes stderr.
		if werr := p.cmd.Wait(); werr != nil {
			err = werr
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, strings.TrimSpace(p.stderr.String()))
	}
	word, rest, _ := strings.Cut(p.lines.Text(), " ")
	switch word {
	case "skip":
		return "", &skipped{rest}
	case want:
		return rest, nil
	}
	return "", fmt.Errorf("%s: printed %q, expected %s", strings.Join(p.cmd.Args, " "), p.lines.Text(), want)
}

// end ends a process that has no end of its own, and adds the processor time it
// has used to own. It is asked first: it may want to complete a profile.
func (p *process) end(own *time.Duration) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Second, func() { p.cmd.Process.Kill() }).Stop()
	p.cmd.Wait()
	if state := p.cmd.ProcessState; state != nil {
		*own += state.UserTime() + state.SystemTime()
	}
}

// pair runs one measurement: the process that serves, if the test has one, and
// then the one that measures. The processor time of both is added to own.
func pair(ctx context.Context, c Contender, s Step, o Options, own *time.Duration) (Figures, error) {
	job := s.job(o)
	ctx, cancel := context.WithTimeout(ctx, job.Limit+2*time.Second)
	defer cancel()
	serveOn, measureOn, err := s.Place.cpus()
	if err != nil {
		return nil, err
	}
	serveAt, measureAt := s.Net.addresses()

	var serve *process
	if s.Test != worker.Mesh {
		job.Role, job.At = worker.Serve, serveAt
		if serve, err = start(ctx, c, job, spot{serveOn, s.Net.ServeNS}); err != nil {
			return nil, err
		}
		defer serve.end(own)
		if job.Endpoint, err = serve.expect("ready"); err != nil {
			return nil, err
		}
		job.ServePID = serve.cmd.Process.Pid
	}
	job.Role, job.At = worker.Measure, measureAt
	p, err := start(ctx, c, job, spot{measureOn, s.Net.MeasureNS})
	if err != nil {
		return nil, err
	}
	defer p.end(own)
	line, err := p.expect("result")
	var skip *skipped
	if err == nil {
		return parseFigures(line)
	}
	if serve == nil || errors.As(err, &skip) {
		return nil, err
	}
	// A limit of the machine may show at the side that sends. If that one is
	// well, it has nothing to say until it is killed.
	defer time.AfterFunc(time.Second, func() { serve.cmd.Process.Kill() }).Stop()
	if _, serr := serve.expect("skip"); errors.As(serr, &skip) {
		return nil, skip
	}
	return nil, err
}

func parseFigures(line string) (Figures, error) {
	f := Figures{}
	for _, field := range strings.Fields(line) {
		name, value, _ := strings.Cut(field, "=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("result %q: %w", line, err)
		}
		f[name] = v
	}
	return f, nil
}
