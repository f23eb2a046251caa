package cli

import (
	"net/netip"
	"testing"
	"time"
)

func TestRounds(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var r rounds
	for i := range 10 { // sockets 0 and 1 have two each
		socket, ok := r.begin(at(i))
		if !ok || socket != i%pingSockets {
			t.Fatalf("ping %d goes from socket %d, %v", i+1, socket, ok)
		}
	}
	for _, tt := range []struct {
		socket int
		at     int
		number uint64
		rtt    int
		ok     bool
	}{
		{socket: 1, at: 20, number: 2, rtt: 19, ok: true},
		{socket: 0, at: 21, number: 1, rtt: 21, ok: true},
		{socket: 1, at: 22, number: 10, rtt: 13, ok: true},
		{socket: 1, at: 23}, // nothing asked any more
		{socket: 0, at: 24, number: 9, rtt: 16, ok: true},
	} {
		number, rtt, ok := r.end(tt.socket, at(tt.at))
		if number != tt.number || rtt != time.Duration(tt.rtt)*time.Millisecond || ok != tt.ok {
			t.Errorf("answer to socket %d: ping %d after %v, %v; want ping %d after %d ms, %v",
				tt.socket, number, rtt, ok, tt.number, tt.rtt, tt.ok)
		}
	}
	dest := netip.MustParseAddr("10.0.0.2")
	want := pingSummary{Dest: dest, Sent: 10, Answered: 4, MinUsec: 13000, AvgUsec: (19 + 21 + 13 + 16) * 1000 / 4, MaxUsec: 21000}
	if got := r.summary(dest); got != want {
		t.Errorf("summary %+v, want %+v", got, want)
	}
}

// A peer that never answers costs a bounded number of messages, and pinging goes on when it does.
func TestRoundsBounded(t *testing.T) {
	var r rounds
	now := time.Unix(1000, 0)
	for range 10 * pingSockets * maxUnanswered {
		r.begin(now)
	}
	if r.sent != pingSockets*maxUnanswered {
		t.Errorf("%d pings wait, limit %d", r.sent, pingSockets*maxUnanswered)
	}
	if _, ok := r.begin(now); ok {
		t.Error("a ping beyond the limit")
	}
	if _, _, ok := r.end(0, now); !ok {
		t.Error("answer not taken")
	}
	if socket, ok := r.begin(now); !ok || socket != 0 {
		t.Errorf("after an answer: socket %d, %v", socket, ok)
	}
}
