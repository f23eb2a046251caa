package cli

import (
	"strings"
	"testing"
	"time"
)

func TestParseInterval(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want time.Duration
		err  string
	}{
		{in: "1", want: time.Second},
		{in: "0.5", want: 500 * time.Millisecond},
		{in: ".25", want: 250 * time.Millisecond},
		{in: "2sec", want: 2 * time.Second},
		{in: "1.5sec", want: 1500 * time.Millisecond},
		{in: "200msec", want: 200 * time.Millisecond},
		{in: "0.5msec", want: 500 * time.Microsecond},
		{in: "50usec", want: 50 * time.Microsecond},
		{in: "10 msec", want: 10 * time.Millisecond},
		{in: "1.5s", want: 1500 * time.Millisecond},
		{in: "200ms", want: 200 * time.Millisecond},
		{in: "1m30s", want: 90 * time.Second},
		{in: "0", err: "not a positive time"},
		{in: "-1", err: "not a positive time"},
		{in: "0usec", err: "not a positive time"},
		{in: "-5ms", err: "not a positive time"},
		{in: "0.0000000001", err: "not a positive time"},
		{in: "", err: "is not a time"},
		{in: "sec", err: "is not a time"},
		{in: "nan", err: "is not a time"},
		{in: "abc", err: "is not a time"},
		{in: "1e300", err: "too long"},
		{in: "inf", err: "too long"},
	} {
		got, err := parseInterval(tt.in)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%q: got %v, %v, want %v", tt.in, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: got %v, %v, want error with %q", tt.in, got, err, tt.err)
		}
	}
}
