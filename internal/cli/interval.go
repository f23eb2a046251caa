package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// interval is a flag value: a duration in the notation of the classic rds-ping (a number of seconds,
// or a number with one of the suffixes sec, msec, usec; decimals allowed) or of Go (1.5s, 200ms).
// It must be positive.
type interval time.Duration

// classicUnits are the suffixes of rds-ping, the longer ones first because "sec" ends them all.
var classicUnits = []struct {
	suffix string
	unit   time.Duration
}{{"usec", time.Microsecond}, {"msec", time.Millisecond}, {"sec", time.Second}, {"", time.Second}}

func parseInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		for _, u := range classicUnits {
			number, ok := strings.CutSuffix(s, u.suffix)
			if !ok {
				continue
			}
			f, ferr := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if ferr != nil || math.IsNaN(f) {
				return 0, fmt.Errorf("%q is not a time: want 1, 0.5, 200msec, 50usec, 2sec, or 1.5s, 200ms, 50us", s)
			}
			f *= float64(u.unit)
			if f >= math.MaxInt64 {
				return 0, fmt.Errorf("%q is too long: at most %v", s, time.Duration(math.MaxInt64))
			}
			d = time.Duration(f)
			break
		}
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not a positive time (the shortest is 1ns)", s)
	}
	return d, nil
}

func (i *interval) Set(s string) error {
	d, err := parseInterval(s)
	if err == nil {
		*i = interval(d)
	}
	return err
}

func (i *interval) String() string { return time.Duration(*i).String() }
func (*interval) Type() string     { return "time" }
