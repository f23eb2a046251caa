package report

import (
	"encoding/json"
	"testing"
)

func TestSeries(t *testing.T) {
	for _, tt := range []struct {
		s                Series
		median, min, max float64
	}{
		{nil, 0, 0, 0},
		{Series{3}, 3, 3, 3},
		{Series{9, 1, 2}, 2, 1, 9},
		{Series{4, 1, 2, 9}, 3, 1, 9},
	} {
		if m, lo, hi := tt.s.Median(), tt.s.Min(), tt.s.Max(); m != tt.median || lo != tt.min || hi != tt.max {
			t.Errorf("%v: median %v of %v..%v, want %v of %v..%v", tt.s, m, lo, hi, tt.median, tt.min, tt.max)
		}
	}
	s := Series{9, 1, 2}
	s.Median()
	if s[0] != 9 {
		t.Error("Median sorts the rounds themselves")
	}
}

func TestSeriesJSON(t *testing.T) {
	b, err := json.Marshal(Series{9, 1, 2})
	if want := `{"median":2,"min":1,"max":9,"samples":[9,1,2]}`; err != nil || string(b) != want {
		t.Fatalf("%s, %v; want %s", b, err, want)
	}
	var back Series
	if err := json.Unmarshal(b, &back); err != nil || len(back) != 3 || back[0] != 9 {
		t.Errorf("read back as %v, %v", back, err)
	}
}
