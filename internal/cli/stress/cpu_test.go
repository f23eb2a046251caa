package stress

import "testing"

func TestParseCPU(t *testing.T) {
	for _, tt := range []struct {
		text string
		want jiffies
		ok   bool
	}{
		{"cpu  100 1 10 1000 20 3 4 5 6 7\ncpu0 1 1 1 1\n", jiffies{busy: 123, all: 1143}, true},
		{"cpu 1 2 3 4", jiffies{busy: 6, all: 10}, true},
		{"cpu 1 2 x 4 5", jiffies{}, false},
		{"cpu0 1 2 3 4 5", jiffies{}, false},
		{"", jiffies{}, false},
	} {
		if got, ok := parseCPU([]byte(tt.text)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: got %+v, %v", tt.text, got, ok)
		}
	}
}

func TestPercent(t *testing.T) {
	before := jiffies{busy: 100, all: 1000}
	for _, tt := range []struct {
		now  jiffies
		want float64
	}{
		{jiffies{busy: 125, all: 1100}, 25},
		{jiffies{busy: 100, all: 1100}, 0},
		{before, unmeasured},
		{jiffies{}, unmeasured}, // cannot be read any more
	} {
		if got := tt.now.percent(before); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.now, got, tt.want)
		}
	}
}
