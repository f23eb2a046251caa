package stress

import (
	"bytes"
	"os"
	"strconv"
)

// jiffies is the time that all processors together have been busy, and that there was in all, since
// the machine was started. The unit does not matter.
type jiffies struct{ busy, all uint64 }

// readCPU reads Linux's account; ok is false where there is none.
func readCPU() (j jiffies, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return j, false
	}
	return parseCPU(text)
}

// parseCPU reads the first line of /proc/stat: "cpu user nice system idle iowait irq softirq steal
// guest guest_nice" (proc(5)). Guest time is part of user time already.
func parseCPU(text []byte) (j jiffies, ok bool) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[0]) != "cpu" {
		return j, false
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return j, false
		}
		j.all += n
		if i != 3 && i != 4 { // idle, iowait
			j.busy += n
		}
	}
	return j, true
}

// unmeasured is Interval.CPU when nothing was measured.
const unmeasured = -1

// percent returns which part of the time since before the processors were busy.
func (j jiffies) percent(before jiffies) float64 {
	if j.all <= before.all || j.busy < before.busy {
		return unmeasured
	}
	return 100 * float64(j.busy-before.busy) / float64(j.all-before.all)
}
