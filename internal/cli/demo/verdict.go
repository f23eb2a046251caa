package demo

import (
	"fmt"
	"io"
	"strings"
)

// Verdict is the result of a demo. Its JSON form is what `rds demo --json` prints.
type Verdict struct {
	Nodes   int     `json:"nodes"`
	Sockets int     `json:"sockets"`
	Flows   int     `json:"flows"` // pairs of a sending and a receiving socket
	Seconds float64 `json:"seconds"`
	Seed    uint64  `json:"seed"`

	Messages uint64 `json:"messages"` // sent
	Bytes    uint64 `json:"bytes"`    // payload of these
	Received uint64 `json:"received"` // doubles not counted

	// Resets counts the connections killed, by manner of killing.
	Resets   uint64 `json:"resets"`
	Smaller  uint64 `json:"resets_by_smaller"`
	Larger   uint64 `json:"resets_by_larger"`
	MidFrame uint64 `json:"resets_in_mid_frame"`

	// Retransmissions counts messages sent again, Filtered those that came twice on the wire and were
	// thrown away by RDS. Both are what the nodes say.
	Retransmissions uint64 `json:"retransmissions"`
	Filtered        uint64 `json:"filtered"`

	Lost           uint64 `json:"lost"`
	Doubled        uint64 `json:"doubled"`
	Reordered      uint64 `json:"reordered"`
	Damaged        uint64 `json:"damaged"`
	Unacknowledged uint64 `json:"unacknowledged"` // at the end

	Pass bool `json:"pass"`
	// Reasons say why not.
	Reasons []string `json:"reasons,omitempty"`
}

// judge fills in Pass and Reasons.
func (v *Verdict) judge() {
	v.Reasons = nil
	for _, r := range []struct {
		bad  bool
		text string
	}{
		{v.Lost > 0, fmt.Sprintf("%d messages lost", v.Lost)},
		{v.Doubled > 0, fmt.Sprintf("%d messages doubled", v.Doubled)},
		{v.Reordered > 0, fmt.Sprintf("%d messages out of order", v.Reordered)},
		{v.Damaged > 0, fmt.Sprintf("%d messages damaged", v.Damaged)},
		{v.Unacknowledged > 0, fmt.Sprintf("%d messages not acknowledged at the end", v.Unacknowledged)},
		{v.Messages == 0, "no message was sent, so nothing was shown"},
		{v.Resets == 0, "no connection was killed, so nothing was shown"},
	} {
		if r.bad {
			v.Reasons = append(v.Reasons, r.text)
		}
	}
	v.Pass = len(v.Reasons) == 0
}

// Print writes the verdict for people.
func (v *Verdict) Print(w io.Writer) error {
	text := fmt.Sprintf(`%d nodes, %d sockets each, %d flows, %.1f s, seed %d
messages         %8d   %.1f MiB
resets           %8d   %d by the smaller address, %d by the larger, %d in mid-frame
retransmissions  %8d   %d of them had arrived already and were filtered out
lost             %8d
doubled          %8d
reordered        %8d
damaged          %8d
`,
		v.Nodes, v.Sockets, v.Flows, v.Seconds, v.Seed,
		v.Messages, float64(v.Bytes)/(1<<20),
		v.Resets, v.Smaller, v.Larger, v.MidFrame,
		v.Retransmissions, v.Filtered,
		v.Lost, v.Doubled, v.Reordered, v.Damaged)
	if v.Pass {
		text += "verdict: passed: every message arrived once and in order\n"
	} else {
		text += "verdict: failed: " + strings.Join(v.Reasons, ", ") + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
