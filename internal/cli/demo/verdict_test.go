package demo

import (
	"bytes"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	good := Verdict{Messages: 100, Received: 100, Resets: 3, Retransmissions: 5}
	for _, tt := range []struct {
		name   string
		change func(*Verdict)
		reason string // "" = passed
	}{
		{"good", func(*Verdict) {}, ""},
		{"nothing had to be sent again", func(v *Verdict) { v.Retransmissions = 0 }, ""},
		{"lost", func(v *Verdict) { v.Lost = 1 }, "1 messages lost"},
		{"doubled", func(v *Verdict) { v.Doubled = 2 }, "2 messages doubled"},
		{"reordered", func(v *Verdict) { v.Reordered = 3 }, "3 messages out of order"},
		{"damaged", func(v *Verdict) { v.Damaged = 4 }, "4 messages damaged"},
		{"unacknowledged", func(v *Verdict) { v.Unacknowledged = 5 }, "5 messages not acknowledged"},
		{"nothing sent", func(v *Verdict) { v.Messages = 0 }, "no message was sent"},
		{"nothing killed", func(v *Verdict) { v.Resets = 0 }, "no connection was killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := good
			tt.change(&v)
			v.judge()
			var out bytes.Buffer
			if err := v.Print(&out); err != nil {
				t.Fatal(err)
			}
			want := "verdict: passed"
			if tt.reason != "" {
				want = "verdict: failed: " + tt.reason
			}
			if v.Pass != (tt.reason == "") || !strings.Contains(out.String(), want) {
				t.Errorf("pass %v, output\n%swant %q", v.Pass, out.String(), want)
			}
		})
	}
}
