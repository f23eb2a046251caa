package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is what the live table shows of one node, or of all.
type row struct {
	name           string
	sent, received uint64
	paths          int // TCP connections that are up
	killed         uint64
	resent         uint64
	gaps           uint64 // missing now; on a healthy path only for a moment after a kill
	doubled        uint64
	reordered      uint64
}

func (r *row) add(o row) {
	r.sent += o.sent
	r.received += o.received
	r.paths += o.paths
	r.killed += o.killed
	r.resent += o.resent
	r.gaps += o.gaps
	r.doubled += o.doubled
	r.reordered += o.reordered
}

// table shows rows while the demo runs.
type table struct {
	w       io.Writer // nil: shows nothing
	repaint bool

	painted  int // lines on the screen
	last     time.Duration
	received map[string]uint64 // by row at last
}

// every is the time between two shows.
func (t *table) every() time.Duration {
	if t.repaint {
		return 250 * time.Millisecond
	}
	return time.Second
}

// show shows the rows of all nodes at the given time since the start.
func (t *table) show(at time.Duration, rows []row) {
	if t.w == nil {
		return
	}
	total := row{name: "all"}
	for _, r := range rows {
		total.add(r)
	}
	if t.repaint {
		t.paint(at, append(rows, total))
	} else {
		fmt.Fprintf(t.w, "%5.1f s  sent %d  received %d  connections %d  killed %d  resent %d  missing %d  doubled %d  reordered %d\n",
			at.Seconds(), total.sent, total.received, total.paths, total.killed, total.resent, total.gaps, total.doubled, total.reordered)
	}
}

// paint puts the rows over those painted before. No line is longer than 80 columns, so that none
// wraps and the cursor finds back.
func (t *table) paint(at time.Duration, rows []row) {
	var b strings.Builder
	if t.painted > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.painted)
	}
	line := func(format string, args ...any) {
		b.WriteString("\x1b[2K" + fmt.Sprintf(format, args...) + "\n")
	}
	line("%-15s %8s %8s %7s %5s %6s %7s %6s %4s %5s",
		fmt.Sprintf("%.1f s", at.Seconds()), "sent", "received", "msg/s", "conns", "killed", "resent", "gaps", "dbl", "reord")
	now := map[string]uint64{}
	for _, r := range rows {
		now[r.name] = r.received
		rate := uint64(0)
		if elapsed := (at - t.last).Seconds(); elapsed > 0 && r.received >= t.received[r.name] {
			rate = uint64(float64(r.received-t.received[r.name]) / elapsed)
		}
		line("%-15s %8d %8d %7d %5d %6d %7d %6d %4d %5d",
			r.name, r.sent, r.received, rate, r.paths, r.killed, r.resent, r.gaps, r.doubled, r.reordered)
	}
	t.painted, t.last, t.received = len(rows)+1, at, now
	io.WriteString(t.w, b.String())
}
