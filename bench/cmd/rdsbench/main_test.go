package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
	"github.com/rds-go/rds/bench/internal/worker"
	"github.com/rds-go/rds/bench/vm"
)

// TestMain: the processes under measurement are this program, which is the test
// binary here.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(worker.Main(os.Args[2:], os.Stdout))
	}
	os.Exit(m.Run())
}

// TestQuick does everything once, for a moment, except the largest mesh, which
// takes many seconds to connect. Figures are of no interest.
func TestQuick(t *testing.T) {
	file, doc := filepath.Join(t.TempDir(), "run.json"), filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("<!-- rdsbench -->\n<!-- /rdsbench -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, progress strings.Builder
	err := bench(t.Context(), []string{"-q", "-quick", "-time", "5ms", "-json", file, "-record", doc, "-only", "^(oneway|roundtrip|mesh/8 |idle)"}, &out, &progress)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rep := new(report.Report)
	if err := json.Unmarshal(b, rep); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, s := range run.Host() {
		if s.Test == worker.Mesh && s.Peers > 8 {
			continue
		}
		for _, c := range s.Contenders {
			rows++
			switch row := rep.Find(s.Test, s.Name, c.Name); {
			case row == nil:
				t.Errorf("%s %s %s: no row", s.Test, s.Name, c.Name)
			case row.Failed != "":
				t.Errorf("%s %s %s: %s", s.Test, s.Name, c.Name, row.Failed)
			case row.Skipped != "":
				t.Logf("%s %s %s: %s", s.Test, s.Name, c.Name, row.Skipped)
			case len(row.Figures) == 0:
				t.Errorf("%s %s %s: no figures", s.Test, s.Name, c.Name)
			}
		}
	}
	if len(rep.Rows) != rows {
		t.Errorf("%d rows, want %d", len(rep.Rows), rows)
	}
	for _, want := range []string{"* machine: ", "One way\n", "Round trip\n", "All to all", "Memory of an idle peer\n", "Targets\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if b, err := os.ReadFile(doc); err != nil || !strings.Contains(string(b), strings.TrimSpace(out.String())) {
		t.Errorf("%v, recorded:\n%s", err, b)
	}
	if progress.Len() > 0 {
		t.Errorf("-q, and yet: %s", progress.String())
	}
}

// Every target is about a row that exists, or it would never be missed.
func TestTargetsExist(t *testing.T) {
	rows := map[string]bool{}
	for _, s := range run.Host() {
		for _, c := range s.Contenders {
			rows[s.Test+"/"+s.Name+"/"+c.Name] = true
		}
	}
	for _, s := range run.Namespaces(run.Net{}) {
		for _, c := range s.Contenders {
			for _, kernel := range []string{"6.1", "7.x"} {
				rows[vm.Prefix+s.Test+"/"+kernel+" "+s.Name+"/"+c.Name] = true
			}
		}
	}
	for _, target := range targets() {
		if key := target.Test + "/" + target.Case + "/" + target.Contender; !rows[key] {
			t.Errorf("%s: there is no row %s", target.Title, key)
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-time", "0s"}, {"-foreign", "-1"}, {"-only", "("}, {"-only", "nonsense"}, {"-nonsense"}, {"oneway"}} {
		var out strings.Builder
		if err := bench(t.Context(), args, &out, &out); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
