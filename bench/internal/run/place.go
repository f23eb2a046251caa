package run

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Place says on which processors the two processes of a measurement may run.
// Two processes that take turns settle into one of two rhythms, on the same
// processor or on different ones, whose round trips differ by a factor of three;
// left alone, a ratio compares one rhythm with the other as often as not.
type Place string

const (
	// Free leaves it to the scheduler, as does the zero value.
	Free Place = "free"
	// Apart gives each process its own half of the processors, as if it were a
	// host of its own.
	Apart Place = "apart"
	// Together confines both to one processor: no wake-up of an idle processor,
	// just the work.
	Together Place = "together"
)

// cpus returns the processors for the process that serves and for the one that
// measures.
func (p Place) cpus() (serve, measure *unix.CPUSet, err error) {
	if p != Apart && p != Together {
		return nil, nil, nil
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	serve, measure = new(unix.CPUSet), new(unix.CPUSet)
	n := all.Count()
	switch {
	case p == Apart && n < 2:
		return nil, nil, &skipped{"needs two processors"}
	case p == Apart:
		n /= 2
	default:
		n = 1
	}
	seen := 0
	for cpu := 0; seen < all.Count(); cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if seen < n {
			serve.Set(cpu)
		} else {
			measure.Set(cpu)
		}
		seen++
	}
	if p == Together {
		measure = serve
	}
	return serve, measure, nil
}

// A spot is where a process starts: on these processors, in this namespace.
type spot struct {
	cpus *unix.CPUSet // nil means any
	ns   string       // "" means that of the coordinator
}

// start starts a command there.
func (s spot) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		// The child inherits processors and namespace of the thread, which is not
		// unlocked: it is of no use to other goroutines, and ends with this one.
		runtime.LockOSThread()
		if s.ns != "" {
			if err := enter(s.ns); err != nil {
				result <- err
				return
			}
		}
		if s.cpus != nil {
			if err := unix.SchedSetaffinity(0, s.cpus); err != nil {
				result <- fmt.Errorf("sched_setaffinity: %w", err)
				return
			}
		}
		result <- cmd.Start()
	}()
	return <-result
}
