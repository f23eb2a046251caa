package run

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// A measurement during which other processes of the machine were busy says little.
// It is repeated; after some attempts the least disturbed one counts, and the
// report says how many of those there were.
const (
	attempts = 4
	// breath is the pause before a measurement is repeated: what disturbed it
	// may be over by then.
	breath = time.Second
	// shortest is the least processor time over which the ticks of /proc/stat mean
	// anything.
	shortest = 200 * time.Millisecond
)

// undisturbed runs a measurement until others used no more than the share o.Foreign
// of all processors meanwhile. disturbed says that this was never so.
func undisturbed(ctx context.Context, o Options, measure func(own *time.Duration) (Figures, error)) (best Figures, disturbed bool, err error) {
	least := 0.0
	for try := range attempts {
		if try > 0 {
			select {
			case <-ctx.Done():
				return nil, false, ctx.Err()
			case <-time.After(breath):
			}
		}
		var own time.Duration
		before, start := busy(), time.Now()
		f, err := measure(&own)
		if err != nil || o.Foreign == 0 {
			return f, false, err
		}
		all := time.Since(start) * time.Duration(runtime.NumCPU())
		share := max(0, float64(busy()-before-own)/float64(all))
		if all < shortest {
			share = 0
		}
		if share <= o.Foreign {
			return f, false, nil
		}
		if best == nil || share < least {
			best, least = f, share
		}
	}
	return best, true, nil
}

// busy is the time that all processors together have not been idle since the
// machine was started, 0 where /proc/stat is not to be had. Its unit is a tick of
// 10 ms.
func busy() time.Duration {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0
	}
	defer f.Close()
	return parseStat(f)
}

func parseStat(r io.Reader) time.Duration {
	// proc_stat(5), first line. guest times are in user and nice already.
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Fscanf(r, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * 10 * time.Millisecond
}

// disturbance is the remark of a report on what undisturbed could not help.
func disturbance(n, of int, share float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("other processes used more than %.0f %% of the machine during %d of %d measurements, in %d attempts each",
		100*share, n, of, attempts)
}
