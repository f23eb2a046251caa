package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A Row is what one contender did in one case of one test.
type Row struct {
	// Test is what was done, such as "oneway", and Case with what, such as
	// "64 B" or "128 endpoints".
	Test string `json:"test"`
	Case string `json:"case"`
	// Contender did it.
	Contender string `json:"contender"`
	// Figures are the values, by name; see Columns.
	Figures map[string]Series `json:"figures,omitempty"`
	// Skipped says why there are none, Failed what went wrong in some rounds.
	Skipped string `json:"skipped,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// Add appends a sample.
func (r *Row) Add(figure string, v float64) {
	if r.Figures == nil {
		r.Figures = map[string]Series{}
	}
	r.Figures[figure] = append(r.Figures[figure], v)
}

// A Column shows one figure of the rows of a test.
type Column struct {
	Figure string
	Title  string
	// Scale is multiplied with the figure; 0 means 1.
	Scale float64
	// Spread says to show the smallest and largest value as well.
	Spread bool
}

// Report is one run.
type Report struct {
	Machine Machine `json:"machine"`
	// Revision is the commit of the source.
	Revision string `json:"revision"`
	Command  string `json:"command"`
	Started  string `json:"started"`
	Rounds   int    `json:"rounds"`
	Span     string `json:"span"`
	// Measured is the number of samples of rows, Disturbed how many of them were
	// taken while the machine was busy with something else, which Remark says in
	// words.
	Measured  int    `json:"measured"`
	Disturbed int    `json:"disturbed"`
	Remark    string `json:"remark,omitempty"`
	Rows      []*Row `json:"rows"`
}

// Row finds or makes a row.
func (r *Report) Row(test, name, contender string) *Row {
	if row := r.Find(test, name, contender); row != nil {
		return row
	}
	row := &Row{Test: test, Case: name, Contender: contender}
	r.Rows = append(r.Rows, row)
	return row
}

// Find returns a row, or nil.
func (r *Report) Find(test, name, contender string) *Row {
	for _, row := range r.Rows {
		if row.Test == test && row.Case == name && row.Contender == contender {
			return row
		}
	}
	return nil
}

// WriteJSON writes the whole run.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteHead writes what the figures depend on.
func (r *Report) WriteHead(w io.Writer) {
	// A Markdown list, which can be read as it stands.
	fmt.Fprintf(w, "* machine: %s\n* commit: %s\n* command: `%s`, started %s\n* medians of %d rounds, %s each; in brackets the smallest and the largest round\n",
		r.Machine, r.Revision, r.Command, r.Started, r.Rounds, r.Span)
	if r.Remark != "" {
		fmt.Fprintf(w, "* disturbed: %s\n", r.Remark)
	}
	fmt.Fprintln(w)
}

// WriteTable writes the rows of a test as a Markdown table that can be read as
// it stands. There is no output for a test without rows.
func (r *Report) WriteTable(w io.Writer, test, title, caseTitle string, columns []Column) error {
	lines := [][]string{{caseTitle, "contender"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.Title)
	}
	var notes []string
	last := ""
	for _, row := range r.Rows {
		if row.Test != test {
			continue
		}
		name := row.Case
		if name == last {
			name = "" // easier on the eye
		}
		last = row.Case
		line := []string{name, row.Contender}
		for _, c := range columns {
			line = append(line, c.cell(row))
		}
		lines = append(lines, line)
		for _, n := range []string{row.Skipped, row.Failed} {
			if n != "" {
				notes = append(notes, fmt.Sprintf("%s, %s: %s", row.Case, row.Contender, n))
			}
		}
	}
	if len(lines) == 1 {
		return nil
	}
	fmt.Fprintf(w, "### %s\n\n", title)
	writeMarkdown(w, lines)
	for _, n := range notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (c Column) cell(row *Row) string {
	s := row.Figures[c.Figure]
	switch {
	case row.Skipped != "":
		return "skipped"
	case len(s) == 0 && row.Failed != "":
		return "failed"
	case len(s) == 0:
		return ""
	}
	scale := c.Scale
	if scale == 0 {
		scale = 1
	}
	text := number(s.Median() * scale)
	if c.Spread {
		text += fmt.Sprintf(" [%s..%s]", number(s.Min()*scale), number(s.Max()*scale))
	}
	return text
}

// number writes three significant digits, whole numbers from 1000 on.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// writeMarkdown aligns cells: text to the left, the others to the right.
func writeMarkdown(w io.Writer, lines [][]string) {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, cell := range l {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, l := range lines {
		for i, cell := range l {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i < 2 {
				fmt.Fprintf(w, "| %s%s ", cell, pad)
			} else {
				fmt.Fprintf(w, "| %s%s ", pad, cell)
			}
		}
		fmt.Fprintln(w, "|")
		if n > 0 {
			continue
		}
		for i := range l {
			rule := strings.Repeat("-", width[i]+1)
			if i < 2 {
				fmt.Fprintf(w, "|%s-", rule)
			} else {
				fmt.Fprintf(w, "|%s:", rule)
			}
		}
		fmt.Fprintln(w, "|")
	}
}
