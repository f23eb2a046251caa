package report

import (
	"encoding/json"
	"strings"
	"testing"
)

func sample() *Report {
	r := &Report{Machine: Machine{CPU: "abacus", Cores: 2}, Command: "rdsbench", Rounds: 3}
	for _, v := range []float64{1000, 3000, 2000} {
		r.Row("oneway", "64 B", "tcp").Add("rate", v)
	}
	r.Row("oneway", "64 B", "rds").Add("rate", 123456)
	r.Row("oneway", "1 KiB", "tcp").Failed = "round 1: no luck"
	r.Row("oneway", "1 KiB", "libzmq").Skipped = "not here"
	r.Row("mesh", "8", "rds").Add("rate", 1)
	return r
}

func TestWriteTable(t *testing.T) {
	var b strings.Builder
	err := sample().WriteTable(&b, "oneway", "One way", "size", []Column{
		{Figure: "rate", Title: "msg/s", Spread: true}, {Figure: "rate", Title: "k", Scale: 1e-3}, {Figure: "other", Title: "x"},
	})
	want := `### One way

| size  | contender |                   msg/s |       k |       x |
|-------|-----------|------------------------:|--------:|--------:|
| 64 B  | tcp       |        2000 [1000..3000] |    2.00 |         |
|       | rds       | 123456 [123456..123456] |     123 |         |
| 1 KiB | tcp       |                  failed |  failed |  failed |
|       | libzmq    |                 skipped | skipped | skipped |

1 KiB, tcp: round 1: no luck

1 KiB, libzmq: not here

`
	want = strings.Replace(want, "        2000", "       2000", 1)
	if err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
	b.Reset()
	if err := sample().WriteTable(&b, "idle", "Idle", "peers", nil); err != nil || b.Len() > 0 {
		t.Errorf("a test without rows: %v, %q", err, b.String())
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if row := back.Find("oneway", "64 B", "tcp"); row == nil || row.Figures["rate"].Median() != 2000 {
		t.Errorf("read back: %+v", row)
	}
}

func TestTargets(t *testing.T) {
	var b strings.Builder
	target := func(least, most, scale float64, contender string) Target {
		return Target{Title: "rate", Test: "oneway", Case: "64 B", Contender: contender, Figure: "rate", Least: least, Most: most, Scale: scale}
	}
	met, judged, err := sample().WriteTargets(&b, []Target{
		target(2000, 0, 0, "tcp"), target(2001, 0, 0, "tcp"), target(0, 1.99, 1e-3, "tcp"), target(0, 2, 1e-3, "tcp"),
		target(1, 0, 0, "nobody"),
	})
	if err != nil || met != 2 || judged != 4 {
		t.Errorf("%d of %d met, %v\n%s", met, judged, err, b.String())
	}
	verdicts := ""
	for line := range strings.Lines(b.String()) {
		for _, v := range []string{" met |", " missed |"} {
			if strings.Contains(line, v) {
				verdicts += v
			}
		}
	}
	if want := " met | missed | missed | met |"; verdicts != want {
		t.Errorf("verdicts %q, want %q", verdicts, want)
	}
}

func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.Cores < 1 || m.Go == "" || !strings.Contains(m.String(), m.Go) {
		t.Errorf("%+v", m)
	}
}
