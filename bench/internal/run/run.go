package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/rds-go/rds/bench/internal/link"
	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/worker"
)

// Options of a run.
type Options struct {
	Rounds int
	// Span is how long each measurement counts, Warm how long it runs before.
	Span, Warm time.Duration
	// Only selects measurements by their name, TEST/CASE/CONTENDER; nil means
	// all. A ratio needs both its sides: see Run.
	Only *regexp.Regexp
	// Buffer is the send and receive buffer of RDS sockets in bytes; 0 means
	// a default for each size.
	Buffer int
	// Foreign is the share of all processors that other processes of the machine
	// may use while something is measured, from 0 to 1; with more it is measured
	// again. 0 means not to look: the work of a kernel's own threads is foreign
	// as well.
	Foreign float64
	// Progress is told what is going on; it may be io.Discard.
	Progress io.Writer
}

// Run measures everything of the plan that is selected and adds it to rep. The
// yardstick of a step, its first contender, is measured in every step of which
// anything is selected, since most ratios need it. What fails is noted in its row;
// the error is that of ctx, or that nothing is selected.
func Run(ctx context.Context, plan []Step, o Options, rep *report.Report) error {
	var selected []Step
	for _, s := range plan {
		if s.Contenders = o.choose(s); s.Contenders != nil {
			selected = append(selected, s)
		}
	}
	if selected == nil {
		return fmt.Errorf("nothing is called %v", o.Only)
	}
	defer func() { rep.Remark = disturbance(rep.Disturbed, rep.Measured, o.Foreign) }()
	for round := range o.Rounds {
		for _, s := range selected {
			fmt.Fprintf(o.Progress, "round %d of %d: %s %s\n", round+1, o.Rounds, s.Test, s.Name)
			if err := s.measure(ctx, o, round, rep); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o Options) choose(s Step) []Contender {
	var chosen []Contender
	for _, c := range s.Contenders {
		if o.Only == nil || o.Only.MatchString(fmt.Sprintf("%s/%s/%s", s.Test, s.Name, c.Name)) {
			chosen = append(chosen, c)
		}
	}
	if first := s.Contenders[0]; chosen != nil && chosen[0].Name != first.Name {
		chosen = append([]Contender{first}, chosen...)
	}
	return chosen
}

// measure lets the contenders of a step have their turn once.
func (s Step) measure(ctx context.Context, o Options, round int, rep *report.Report) error {
	got := map[string]Figures{}
	for _, c := range s.Contenders {
		f, disturbed, err := undisturbed(ctx, o, func(own *time.Duration) (Figures, error) { return pair(ctx, c, s, o, own) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		row := rep.Row(s.Test, s.Name, c.Name)
		var skip *skipped
		switch {
		case errors.As(err, &skip):
			row.Skipped = skip.reason
		case err != nil:
			row.Failed = fmt.Sprintf("round %d: %v", round+1, err)
			fmt.Fprintf(o.Progress, "%s: %v\n", c.Name, err)
		default:
			rates(f)
			got[c.Name] = f
			rep.Measured++
			if disturbed {
				rep.Disturbed++
			}
		}
	}
	for name, f := range got {
		derive(s, f, got)
		row := rep.Row(s.Test, s.Name, name)
		for figure, v := range f {
			row.Add(figure, v)
		}
	}
	return nil
}

// job is the work of a step, but for what differs between the two processes.
func (s Step) job(o Options) worker.Job {
	j := worker.Job{
		Test: s.Test, Warm: o.Warm, Span: o.Span, Limit: o.Warm + o.Span + s.grace(),
		Load: link.Load{
			Size: s.Size, Batch: batchOf(s.Size), Buffer: o.Buffer, Peers: s.Peers, Port: s.Net.Port,
			RoundTrip: s.Test == worker.RoundTrip,
		},
	}
	if j.Load.Buffer == 0 {
		j.Load.Buffer = defaultBuffer(s.Test)
	}
	return j
}

// grace is how long processes may take besides warming up and measuring: starting,
// connecting, sorting samples.
func (s Step) grace() time.Duration {
	if s.Test == worker.Mesh {
		// 128 endpoints have 8128 connections to make.
		return time.Minute
	}
	return 20 * time.Second
}

// batchOf is the number of messages in a batch call: 64, as long as that is no
// more than 512 KiB, and at least 2.
func batchOf(size int) int { return min(max(2, 8*link.ChunkSize/size), 64) }

// defaultBuffer is the buffer of RDS sockets: enough for some messages of the
// largest size, and less where there are many sockets.
func defaultBuffer(test string) int {
	if test == worker.Mesh {
		return 256 << 10
	}
	return 4 << 20
}
