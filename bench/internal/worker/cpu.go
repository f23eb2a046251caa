package worker

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// processTime is the processor time that a process has used so far, user and
// system. It is the clock of clock_getcpuclockid(3): the sum that getrusage(2)
// shows, but of any process and not rounded to ticks.
func processTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// quantiles sorts the samples, of which there must be some.
func quantiles(samples []time.Duration, at ...float64) []time.Duration {
	slices.Sort(samples)
	q := make([]time.Duration, len(at))
	for i, p := range at {
		q[i] = samples[min(int(p*float64(len(samples))), len(samples)-1)]
	}
	return q
}
