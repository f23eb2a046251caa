package cli

import (
	"math"
	"testing"
	"time"
)

func TestByteSize(t *testing.T) {
	for in, want := range map[string]int{
		"0": 0, "63": 63, "1K": 1024, "64k": 65536, "1M": 1 << 20, "2g": 2 << 30,
		"": -1, "K": -1, "-1": -1, "1.5K": -1, "1KB": -1, "K1": -1, "9223372036854775807": math.MaxInt, "9223372036854775808": -1, "9223372036854775807K": -1,
	} {
		got, err := parseByteSize(in)
		if want < 0 {
			got = -1
		}
		if (err != nil) != (want < 0) || got != want {
			t.Errorf("%q: got %d, %v, want %d", in, got, err, want)
		}
	}
}

func TestRunTime(t *testing.T) {
	for in, want := range map[string]time.Duration{"0": 0, "0.0": 0, "10": 10 * time.Second, "1.5": 1500 * time.Millisecond, "200msec": 200 * time.Millisecond, "2m": 2 * time.Minute, "-1": -1, "soon": -1, "": -1} {
		var r runTime
		err := r.Set(in)
		if (err != nil) != (want < 0) || err == nil && time.Duration(r) != want {
			t.Errorf("%q: got %v, %v, want %v", in, time.Duration(r), err, want)
		}
	}
}
