package interop

import (
	"strings"
	"testing"
	"time"
)

const sampleLog = `=== RUN   TestA
    a_test.go:10: FIGURE rate 12 msg/s
=== RUN   TestA/v4
hello
=== NAME  TestA
    a_test.go:12: back in A
=== RUN   TestA/v6
--- FAIL: TestA (1.50s)
    --- PASS: TestA/v4 (0.25s)
    --- FAIL: TestA/v6 (0.10s)
=== RUN   TestB
    b_test.go:3: not here
--- SKIP: TestB (0.00s)
=== RUN   TestC
panic: test timed out
goroutine 1 [running]:
`

func TestParse(t *testing.T) {
	rep, err := Parse(strings.NewReader(sampleLog))
	if err != nil {
		t.Fatal(err)
	}
	want := []Test{
		{Name: "TestA", Status: "FAIL", Elapsed: 1500 * time.Millisecond,
			Output: []string{"    a_test.go:10: FIGURE rate 12 msg/s", "    a_test.go:12: back in A"}},
		{Name: "TestA/v4", Status: "PASS", Elapsed: 250 * time.Millisecond, Output: []string{"hello"}},
		{Name: "TestA/v6", Status: "FAIL", Elapsed: 100 * time.Millisecond},
		{Name: "TestB", Status: "SKIP", Output: []string{"    b_test.go:3: not here"}},
		{Name: "TestC"},
	}
	if len(rep.Tests) != len(want) {
		t.Fatalf("%d tests, want %d", len(rep.Tests), len(want))
	}
	for i, w := range want {
		g := rep.Tests[i]
		if g.Name != w.Name || g.Status != w.Status || g.Elapsed != w.Elapsed ||
			strings.Join(g.Output, "\n") != strings.Join(w.Output, "\n") {
			t.Errorf("test %d: %+v, want %+v", i, *g, w)
		}
	}
	if len(rep.Figures) != 1 || rep.Figures[0] != (Figure{"TestA", "rate", "12 msg/s"}) {
		t.Errorf("figures %+v", rep.Figures)
	}
	if len(rep.Stray) != 2 || rep.Stray[0] != "panic: test timed out" {
		t.Errorf("stray lines %q", rep.Stray)
	}
	if crash := rep.Crash(); len(crash) != 2 {
		t.Errorf("crash %q", crash)
	}
	if rep.Ran() != 4 {
		t.Errorf("%d tests ran, want 4", rep.Ran())
	}
	if rep.Count("FAIL") != 2 || rep.Count("PASS") != 1 || rep.Count("SKIP") != 1 {
		t.Errorf("counts: %d failed, %d passed, %d skipped", rep.Count("FAIL"), rep.Count("PASS"), rep.Count("SKIP"))
	}
}

func TestWriteFigures(t *testing.T) {
	var b strings.Builder
	err := WriteFigures(&b, []string{"6.1", "7.x"}, map[string][]Figure{
		"6.1": {{"TestA", "lost", "1"}, {"TestA", "lost", "0"}},
		"7.x": {{"TestA", "lost", "2"}, {"TestB", "rate", "5 msg/s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `test   figure  6.1  7.x
TestA  lost    0    2
TestB  rate    -    5 msg/s
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// The script that runs inside must pass any argument through a shell unharmed.
func TestRunScriptQuotes(t *testing.T) {
	s := runScript(Job{Args: []string{"-test.run=^(A|B)$", "it's"}, Env: map[string]string{"X": "a b"}})
	for _, want := range []string{`'-test.run=^(A|B)$'`, `'it'\''s'`, `export X='a b'`} {
		if !strings.Contains(s, want) {
			t.Errorf("no %s in\n%s", want, s)
		}
	}
}
