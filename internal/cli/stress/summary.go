package stress

import (
	"fmt"
	"net/netip"

	"github.com/rds-go/rds/internal/cli/witness"
)

// Tally is what one side got of the messages of the other one.
type Tally = witness.Tally

// Summary is the result of a run, as one side sees it. Its JSON form is the last line of
// `rds stress --json`.
type Summary struct {
	Local   netip.Addr `json:"local"`
	Remote  netip.Addr `json:"remote"`
	Options Options    `json:"options"`
	// Seconds is how long requests were made, and Mean is about that time.
	Seconds float64  `json:"seconds"`
	Mean    Interval `json:"mean"`

	TxMessages uint64 `json:"tx_messages"`
	TxBytes    uint64 `json:"tx_bytes"` // payload
	RxMessages uint64 `json:"rx_messages"`
	RxBytes    uint64 `json:"rx_bytes"`
	// Congested and Full are the messages that had to wait because their destination was congested
	// (ENOBUFS) or the send buffer full (EAGAIN), WaitSeconds the time that took.
	Congested   uint64  `json:"waits_congested"`
	Full        uint64  `json:"waits_full"`
	WaitSeconds float64 `json:"wait_seconds"`

	// Killed counts the connections killed by this side on purpose. The other numbers are what its
	// node says, and stay 0 where it says nothing.
	Killed          uint64 `json:"killed"`
	Resets          uint64 `json:"resets"`
	Retransmissions uint64 `json:"retransmissions"`
	Filtered        uint64 `json:"filtered"`

	// Complete says that both sides came to the end and could compare. Otherwise nothing is known of
	// losses.
	Complete bool `json:"complete"`
	Tally         // what this side got of the messages of the other one
	// Unanswered requests of this side had no answer at the end.
	Unanswered uint64 `json:"unanswered"`
	// Strays are messages of somebody else, or of an earlier run. They were ignored.
	Strays uint64 `json:"strays"`
	// Peer is what the other side got of the messages of this one.
	Peer Tally `json:"peer"`

	Pass bool `json:"pass"`
	// Reasons say why not.
	Reasons []string `json:"reasons,omitempty"`
}

// judge fills in Pass and Reasons.
func (s *Summary) judge() {
	s.Reasons = nil
	for _, r := range []struct {
		bad  bool
		text string
	}{
		{!s.Complete, "the two sides could not compare what they sent and got"},
		{s.Lost > 0, fmt.Sprintf("%d messages lost", s.Lost)},
		{s.Doubled > 0, fmt.Sprintf("%d messages doubled", s.Doubled)},
		{s.Reordered > 0, fmt.Sprintf("%d messages out of order", s.Reordered)},
		{s.Damaged > 0, fmt.Sprintf("%d messages damaged", s.Damaged)},
		{s.Complete && s.Unanswered > 0, fmt.Sprintf("%d requests not answered in time", s.Unanswered)},
		{!s.Peer.Clean(), fmt.Sprintf("of the messages to the other side %d lost, %d doubled, %d out of order, %d damaged",
			s.Peer.Lost, s.Peer.Doubled, s.Peer.Reordered, s.Peer.Damaged)},
		{s.Complete && s.TxMessages == 0, "no message was sent, so nothing was shown"},
	} {
		if r.bad {
			s.Reasons = append(s.Reasons, r.text)
		}
	}
	s.Pass = len(s.Reasons) == 0
}
