package vm

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rds-go/rds/bench/internal/report"
	"github.com/rds-go/rds/bench/internal/run"
)

func TestMerge(t *testing.T) {
	guest, rep := &report.Report{}, &report.Report{}
	guest.Row("oneway", "64 B free", run.Ours).Add(run.VersusKernel, 7)
	merge(rep, "6.1", guest)
	if row := rep.Find("vm oneway", "6.1 64 B free", run.Ours); row == nil || row.Figures[run.VersusKernel].Median() != 7 {
		t.Errorf("%+v", rep.Rows)
	}
	var b strings.Builder
	if err := WriteTables(&b, rep); err != nil || !strings.Contains(b.String(), "7.00 [7.00..7.00]") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestGuestOutside(t *testing.T) {
	if os.Getenv("RDS_IN_VM") == "1" {
		t.Skip("inside the machine")
	}
	if err := Guest(t.Context(), nil); err == nil {
		t.Error("the guest ran outside the machine")
	}
}

// TestRun boots both kernels, for a moment each.
func TestRun(t *testing.T) {
	if os.Getenv("RDS_VM") != "1" {
		t.Skip("booting two kernels takes a minute: set RDS_VM=1")
	}
	rep := &report.Report{}
	o := run.Options{Rounds: 1, Span: 20 * time.Millisecond, Progress: io.Discard}
	if err := Run(t.Context(), o, rep); err != nil {
		t.Fatal(err)
	}
	for _, label := range []string{"6.1", "7.x"} {
		for _, s := range run.Namespaces(run.Net{}) {
			for _, c := range s.Contenders {
				row := rep.Find(Prefix+s.Test, label+" "+s.Name, c.Name)
				if row == nil || len(row.Figures) == 0 {
					t.Errorf("%s %s %s %s: %+v", label, s.Test, s.Name, c.Name, row)
				}
			}
		}
	}
}
