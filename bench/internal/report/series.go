// Package report holds what the benchmarks found out, as a table for people and
// as JSON for programs. In come samples, one of each round; it knows nothing of
// how they were made.
package report

import (
	"encoding/json"
	"slices"
)

// Series are the values of one figure, one of each round. A round in which the
// measurement failed has none.
type Series []float64

// Median is the middle value, the mean of the two middle ones of an even number,
// and 0 of none.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Min and Max are the spread, 0 of none.
func (s Series) Min() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Min(s)
}

// Max is the largest value.
func (s Series) Max() float64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

// MarshalJSON writes median, spread and all samples.
func (s Series) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Median  float64   `json:"median"`
		Min     float64   `json:"min"`
		Max     float64   `json:"max"`
		Samples []float64 `json:"samples"`
	}{s.Median(), s.Min(), s.Max(), s})
}

// UnmarshalJSON reads the samples back.
func (s *Series) UnmarshalJSON(b []byte) error {
	var v struct{ Samples []float64 }
	err := json.Unmarshal(b, &v)
	*s = v.Samples
	return err
}
