package interop

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

// Test is one test or subtest found in the output of a -test.v run.
type Test struct {
	Name    string
	Status  string // "PASS", "FAIL", "SKIP", or "" if it never ended
	Elapsed time.Duration
	Output  []string // its own lines, without those of its subtests
}

// Figure is a measured value that a guest test printed.
type Figure struct {
	Test, Name, Value string
}

// Report is the parsed output of a test binary.
type Report struct {
	Tests   []*Test
	Figures []Figure
	Stray   []string // lines of no test: panics, goroutine dumps, the final PASS
}

var (
	startLine  = regexp.MustCompile(`^=== (RUN|NAME|CONT|PAUSE)\s+(\S*)`)
	endLine    = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)
	figureLine = regexp.MustCompile(`(?:^|\s)FIGURE (\S+) (.+)$`)
	crashLine  = regexp.MustCompile(`^(panic|fatal error|SIG[A-Z]+): `)
	// These end the output of all tests.
	finalLine = regexp.MustCompile(`^(PASS|FAIL|exit status \d+|panic: .*|fatal error: .*|SIG[A-Z]+: .*|goroutine \d+ .*)$`)
)

// Parse reads the output of a test binary that ran with -test.v.
func Parse(r io.Reader) (*Report, error) {
	rep := &Report{}
	byName := map[string]*Test{}
	get := func(name string) *Test {
		t := byName[name]
		if t == nil {
			t = &Test{Name: name}
			byName[name] = t
			rep.Tests = append(rep.Tests, t)
		}
		return t
	}
	var current *Test
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		line := strings.TrimRight(sc.Text(), "\r")
		if m := startLine.FindStringSubmatch(line); m != nil {
			current = nil
			if m[2] != "" {
				current = get(m[2])
			}
			continue
		}
		if m := endLine.FindStringSubmatch(line); m != nil {
			t := get(m[2])
			t.Status = m[1]
			t.Elapsed, _ = time.ParseDuration(m[3] + "s")
			continue
		}
		if finalLine.MatchString(line) {
			current = nil
		}
		if m := figureLine.FindStringSubmatch(line); m != nil {
			f := Figure{Name: m[1], Value: strings.TrimSpace(m[2])}
			if current != nil {
				f.Test = current.Name
			}
			rep.Figures = append(rep.Figures, f)
		}
		if current != nil {
			current.Output = append(current.Output, line)
		} else if strings.TrimSpace(line) != "" {
			rep.Stray = append(rep.Stray, line)
		}
	}
	return rep, sc.Err()
}

// Count returns how many tests ended with this status.
func (r *Report) Count(status string) int {
	n := 0
	for _, t := range r.Tests {
		if t.Status == status {
			n++
		}
	}
	return n
}

// Ran returns how many tests were begun and not skipped.
func (r *Report) Ran() int { return len(r.Tests) - r.Count("SKIP") }

// Crash returns the end of a test binary that died: from the first panic, fatal
// error or signal on. It is empty after an orderly end.
func (r *Report) Crash() []string {
	for i, line := range r.Stray {
		if crashLine.MatchString(line) {
			return r.Stray[i:]
		}
	}
	return nil
}

// WriteFigures prints the figures of several kernels side by side. A test that
// prints one figure twice shows the last value.
func WriteFigures(w io.Writer, labels []string, figures map[string][]Figure) error {
	type row struct{ test, name string }
	var rows []row
	values := map[row]map[string]string{}
	for _, l := range labels {
		for _, f := range figures[l] {
			r := row{f.Test, f.Name}
			if values[r] == nil {
				values[r] = map[string]string{}
				rows = append(rows, r)
			}
			values[r][l] = f.Value
		}
	}
	if len(rows) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "test\tfigure\t%s\n", strings.Join(labels, "\t"))
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s", r.test, r.name)
		for _, l := range labels {
			v := values[r][l]
			if v == "" {
				v = "-"
			}
			fmt.Fprintf(tw, "\t%s", v)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}
