package worker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/rds-go/rds/bench/internal/link"
)

// Idle: the process that measures connects to many peers of the process that
// serves, and looks at its own memory before and after.
const Idle = "idle"

func (j Job) crowd(ctx context.Context, out io.Writer) error {
	if err := wantFiles(uint64(4*j.Load.Peers) + 1000); err != nil {
		return err
	}
	c, err := link.OpenCrowd(ctx, j.Kind, consecutive(j.At, j.Load.Peers))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready", c.Endpoint())
	<-ctx.Done()
	return ctx.Err()
}

// rest is how long peers are left alone before they count as idle.
const rest = 500 * time.Millisecond

// memory is what a process occupies in bytes.
type memory struct {
	heap, stack uint64 // live after a collection
	resident    uint64
}

func (j Job) idle(ctx context.Context, out io.Writer) error {
	if err := wantFiles(uint64(4*j.Load.Peers) + 1000); err != nil {
		return err
	}
	v, err := link.NewVisitor(ctx, j.Kind, j.Endpoint, j.At)
	if err != nil {
		return err
	}
	// The first few pay for what all share.
	const first = 3
	var before memory
	for i := range j.Load.Peers {
		if i == first {
			if before, err = readMemory(); err != nil {
				return err
			}
		}
		if err := v.Visit(); err != nil {
			return fmt.Errorf("peer %d: %w", i, err)
		}
	}
	// Acknowledgements and probes are still under way; memory of a peer that is
	// at rest is what counts.
	if err := pause(ctx, nil, rest); err != nil {
		return err
	}
	after, err := readMemory()
	if err != nil {
		return err
	}
	runtime.KeepAlive(v)
	n := float64(j.Load.Peers - first)
	_, err = fmt.Fprintf(out, "result heap=%.0f stack=%.0f go=%.0f resident=%.0f\n",
		float64(int64(after.heap-before.heap))/n, float64(int64(after.stack-before.stack))/n,
		float64(int64(after.heap+after.stack-before.heap-before.stack))/n, float64(int64(after.resident-before.resident))/n)
	return err
}

func readMemory() (memory, error) {
	// Twice: the first collection only makes pools forget what the second frees.
	runtime.GC()
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return memory{}, err
	}
	m := memory{heap: ms.HeapAlloc, stack: ms.StackInuse}
	for sc := bufio.NewScanner(bytes.NewReader(status)); sc.Scan(); {
		if rest, ok := bytes.CutPrefix(sc.Bytes(), []byte("VmRSS:")); ok {
			kb, err := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err != nil {
				return memory{}, fmt.Errorf("VmRSS of /proc/self/status: %w", err)
			}
			m.resident = kb << 10
		}
	}
	return m, nil
}
