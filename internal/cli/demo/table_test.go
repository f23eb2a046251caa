package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTablePlain(t *testing.T) {
	var out bytes.Buffer
	tab := table{w: &out}
	tab.show(1500*time.Millisecond, []row{
		{name: "a", sent: 10, received: 8, paths: 4, killed: 1, resent: 3},
		{name: "b", sent: 20, received: 9, paths: 4, gaps: 2, doubled: 1, reordered: 5},
	})
	want := "  1.5 s  sent 30  received 17  connections 8  killed 1  resent 3  missing 2  doubled 1  reordered 5\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// On a terminal each table covers the one before exactly and fits into 80 columns.
func TestTableRepaint(t *testing.T) {
	var out bytes.Buffer
	tab := table{w: &out, repaint: true}
	big := uint64(9_999_999)
	rows := []row{
		{name: "127.255.255.254", sent: big, received: 0, paths: 120, killed: 9999, resent: big, gaps: 999999, doubled: 9999, reordered: 99999},
		{name: "127.1.1.1"},
	}
	tab.show(time.Second, rows)
	rows[0].received = 500
	tab.show(2*time.Second, rows)

	frames := strings.Split(out.String(), "\x1b[4A") // two rows, header and total
	if len(frames) != 2 {
		t.Fatalf("%d frames in %q", len(frames), out.String())
	}
	for _, f := range frames {
		lines := strings.Split(strings.TrimSuffix(f, "\n"), "\n")
		if len(lines) != 4 {
			t.Errorf("%d lines in %q", len(lines), f)
		}
		for _, l := range lines {
			l, ok := strings.CutPrefix(l, "\x1b[2K")
			if !ok || len(l) > 80 {
				t.Errorf("line of %d columns, cleared first: %v: %q", len(l), ok, l)
			}
		}
	}
	if !strings.Contains(frames[1], " 500     500 ") {
		t.Errorf("no rate of 500 messages a second in %q", frames[1])
	}
}

func TestTableNowhere(t *testing.T) {
	var tab table
	tab.show(time.Second, []row{{name: "a"}}) // must not write to nil
}
