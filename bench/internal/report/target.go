package report

import (
	"fmt"
	"io"
)

// A Target is a bound on the median of one figure.
type Target struct {
	Title                         string
	Test, Case, Contender, Figure string
	// Least or Most is the bound; the other one is 0. Both are in units of the
	// figure times Scale; 0 means 1.
	Least, Most float64
	Scale       float64
}

// WriteTargets writes a table of the targets whose figures were measured, and
// returns how many of them were met.
func (r *Report) WriteTargets(w io.Writer, targets []Target) (met, judged int, err error) {
	lines := [][]string{{"target", "test, case", "wanted", "measured", ""}}
	for _, t := range targets {
		row := r.Find(t.Test, t.Case, t.Contender)
		if row == nil || len(row.Figures[t.Figure]) == 0 {
			continue
		}
		scale := t.Scale
		if scale == 0 {
			scale = 1
		}
		median := row.Figures[t.Figure].Median() * scale
		wanted, ok := ">= "+number(t.Least), median >= t.Least
		if t.Most > 0 {
			wanted, ok = "<= "+number(t.Most), median <= t.Most
		}
		judged++
		verdict := "missed"
		if ok {
			verdict = "met"
			met++
		}
		cell := Column{Figure: t.Figure, Scale: t.Scale, Spread: true}.cell(row)
		lines = append(lines, []string{t.Title, t.Test + ", " + t.Case, wanted, cell, verdict})
	}
	if judged == 0 {
		return 0, 0, nil
	}
	if _, err := fmt.Fprintf(w, "### Targets\n\n"); err != nil {
		return 0, 0, err
	}
	writeMarkdown(w, lines)
	_, err = fmt.Fprintln(w)
	return met, judged, err
}
