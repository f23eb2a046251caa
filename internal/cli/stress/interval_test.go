package stress

import (
	"strings"
	"testing"
	"time"
)

func TestInterval(t *testing.T) {
	before := counts{txMessages: 1000, txBytes: 1 << 20, answers: 7, roundTrips: time.Hour}
	now := before
	now.add(counts{
		txMessages: 3000, rxMessages: 5000, txBytes: 3 << 20, rxBytes: 1 << 20, sends: 2000, sendTime: 5 * time.Millisecond,
		answers: 1000, roundTrips: 123456 * time.Microsecond, congested: 3, full: 4, waited: time.Second,
	})
	iv := interval(4, before, now, 2*time.Second, 12.345)
	want := "   4   1500   2500    2048.00       0.00       0.00    2.50   123.46 12.35"
	if got := iv.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if idle := interval(1, now, now, 0, unmeasured).String(); idle != "   1      0      0       0.00       0.00       0.00    0.00     0.00 -1.00" {
		t.Errorf("idle: %q", idle)
	}
}

// Each column ends where its head ends.
func TestHeader(t *testing.T) {
	line := Interval{}.String()
	if len(line) != len(Header)-2 && len(line) != len(Header) {
		t.Fatalf("%d and %d columns", len(line), len(Header))
	}
	for _, name := range []string{"tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %"} {
		end := strings.Index(Header, name) + len(name)
		if end == 0 || end > len(line) || end < len(line) && line[end] != ' ' {
			t.Errorf("no column ends below %q", name)
		}
	}
}
