package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds/bench/internal/link"
)

// Mesh: many endpoints in one process, each sending to all others in turn as
// fast as it can. There is no process that serves.
const Mesh = "mesh"

// settled is how many messages for each pair go before measuring: there are
// implementations that need seconds for their connections after the first one.
const settled = 20

// counter has a cache line to itself: each belongs to another endpoint.
type counter struct {
	atomic.Int64
	_ [56]byte
}

func (j Job) mesh(ctx context.Context, out io.Writer) error {
	// Both ends of each connection, and some for everything else.
	if err := wantFiles(uint64(j.Load.Peers)*uint64(j.Load.Peers) + 1000); err != nil {
		return err
	}
	m, err := link.OpenMesh(ctx, j.Kind, j.Load, consecutive(j.At, j.Load.Peers))
	if err != nil {
		return err
	}
	n := j.Load.Peers
	got := make([]counter, n)
	total := func() (sum int64) {
		for i := range got {
			sum += got[i].Load()
		}
		return sum
	}
	failed := make(chan error, 2*n)
	for i := range n {
		go func() { failed <- fmt.Errorf("receiving at endpoint %d: %w", i, m.Receive(i, &got[i].Int64)) }()
	}
	// One message for every pair first: connecting is not what is measured.
	flood := make(chan struct{})
	for i := range n {
		go func() {
			for round := 0; ; round++ {
				for d := 1; d < n; d++ {
					if err := m.Send(i, (i+d)%n); err != nil {
						failed <- fmt.Errorf("sending at endpoint %d: %w", i, err)
						return
					}
				}
				if round == 0 {
					<-flood
				}
			}
		}()
	}
	pairs := int64(n * (n - 1))
	reach := func(want int64) error {
		for total() < want {
			if err := pause(ctx, failed, 5*time.Millisecond); err != nil {
				return fmt.Errorf("%d of %d messages before measuring: %w", total(), want, err)
			}
		}
		return nil
	}
	if err := reach(pairs); err != nil {
		return err
	}
	close(flood)
	if err := reach(settled * pairs); err != nil {
		return err
	}
	if err := pause(ctx, failed, j.Warm); err != nil {
		return err
	}
	cpu, err := processTime(os.Getpid())
	if err != nil {
		return err
	}
	before, start := total(), time.Now()
	if err := pause(ctx, failed, j.Span); err != nil {
		return err
	}
	messages, took := total()-before, time.Since(start)
	end, err := processTime(os.Getpid())
	if err != nil {
		return err
	}
	return result(out, usage{measure: end - cpu}, "messages=%d bytes=%d ns=%d", messages, messages*int64(j.Load.Size), took.Nanoseconds())
}

func pause(ctx context.Context, failed <-chan error, d time.Duration) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// consecutive returns n addresses from the first one on.
func consecutive(first netip.Addr, n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = first
		first = first.Next()
	}
	return all
}

// wantFiles raises the limit of open files to n if it is lower.
func wantFiles(n uint64) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return err
	}
	if lim.Cur >= n {
		return nil
	}
	want := unix.Rlimit{Cur: n, Max: max(n, lim.Max)}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want)
	if errors.Is(err, unix.EPERM) {
		return &link.SkipError{Reason: fmt.Sprintf("needs %d open files, the limit is %d (ulimit -Hn)", n, lim.Max)}
	}
	return err
}
