package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// byteSize is a flag value: a number of bytes, with one of the suffixes K, M, G (of either case) times
// 1024, 1024² or 1024³.
type byteSize int

func parseByteSize(s string) (int, error) {
	number, shift := s, 0
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		}
		if shift > 0 {
			number = s[:len(s)-1]
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of bytes: want 1024, 1K, 1M or 1G", s)
	}
	if n > math.MaxInt>>shift {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return int(n) << shift, nil
}

func (b *byteSize) Set(s string) error {
	n, err := parseByteSize(s)
	if err == nil {
		*b = byteSize(n)
	}
	return err
}

func (b *byteSize) String() string { return strconv.Itoa(int(*b)) }
func (*byteSize) Type() string     { return "bytes" }

// runTime is a flag value like interval, but may be 0, for what 0 switches off.
type runTime time.Duration

func (r *runTime) Set(s string) error {
	if n, err := strconv.ParseFloat(s, 64); err == nil && n == 0 {
		*r = 0
		return nil
	}
	d, err := parseInterval(s)
	if err == nil {
		*r = runTime(d)
	}
	return err
}

func (r *runTime) String() string { return time.Duration(*r).String() }
func (*runTime) Type() string     { return "time" }
