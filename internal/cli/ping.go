package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/rds-go/rds"
)

type pingOptions struct {
	count    uint64
	interval interval
	local    string
	tos      uint8
	timeout  interval
	json     bool
}

func pingCommand(c *common) *cobra.Command {
	o := pingOptions{interval: interval(time.Second), timeout: interval(5 * time.Second)}
	cmd := &cobra.Command{
		Use:   "ping [flags] DEST",
		Short: "Ask a node whether it is there",
		Long: `ping sends an empty message to RDS port 0 of DEST each interval, from eight
sockets in turn, and prints the round trip time of each answer. Without -c it
goes on until it is interrupted. With -c it ends when all answers are in, or
--timeout after the last ping; a peer that cannot be reached is tried all that
time.

Times are numbers of seconds, or have a suffix: sec, msec, usec, or Go's s, ms,
us, m. Decimals are allowed.

Without -I the local address is the one that routing would use; towards
127.0.0.0/8 it is a random one of that network, because 127.0.0.1 often belongs
to another process already.

` + exitCodesHelp + `
ping exits 0 when at least one answer came and 1 when none did.`,
		Example: `  rds ping 10.0.0.2
  rds ping -c 3 -i 200msec 10.0.0.2
  rds ping -c 1 --timeout 30s -I 10.0.0.1 10.0.0.2
  rds ping -c 5 --json fd00::2`,
		Args: cobra.ExactArgs(1),
		RunE: run(func(ctx context.Context, args []string) error { return c.ping(ctx, o, args[0]) }),
	}
	f := cmd.Flags()
	f.Uint64VarP(&o.count, "count", "c", 0, "end after this many pings, 0 = never")
	f.VarP(&o.interval, "interval", "i", "time between pings")
	f.StringVarP(&o.local, "local", "I", "", "local address")
	f.Uint8VarP(&o.tos, "tos", "Q", 0, "type of service; taken for the sake of scripts, RDS over TCP maps all to 0")
	f.Var(&o.timeout, "timeout", "how long to wait for answers after the last ping")
	f.BoolVar(&o.json, "json", false, "print JSON: an object for each answer, then a summary")
	return cmd
}

// upNoPong is what to say of a peer that is connected and does not answer.
const upNoPong = "the connection is up, but pings are not answered; they may be disabled there"

// pingSockets is the number of sockets that take turns, as in the classic rds-ping: with several paths
// to a peer they try more than one.
const pingSockets = 8

func (c *common) ping(ctx context.Context, o pingOptions, host string) error {
	dest, err := resolve(ctx, host)
	if err != nil {
		return err
	}
	var local netip.Addr
	if o.local != "" {
		if local, err = netip.ParseAddr(o.local); err != nil {
			return usagef("-I %q is not an IP address", o.local)
		}
		if err := sameFamily(local, dest); err != nil {
			return err
		}
	}
	var why trouble
	n, local, err := c.open(rds.Config{}, local, dest, why.events())
	if err != nil {
		return err
	}
	defer n.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan pong)
	sockets := make([]*rds.Socket, pingSockets)
	for i := range sockets {
		if sockets[i], err = n.Bind(rds.AddrFrom(local, 0)); err != nil {
			return err
		}
		go pongs(ctx, sockets[i], i, dest, answers)
	}
	r := rounds{timeout: time.Duration(o.timeout)}
	if err := c.pingLoop(ctx, o, dest, sockets, answers, &r, &why); err != nil {
		return err
	}
	if o.json {
		if err := json.NewEncoder(c.Out).Encode(r.summary(dest)); err != nil {
			return err
		}
	}
	switch missing := r.sent - r.answered; {
	case r.answered == 0 && ctx.Err() != nil:
		return negativef("no answer from %v before the interrupt: %s", dest, why.with(dest, upNoPong))
	case r.answered == 0:
		return negativef("no answer from %v within %v: %s", dest, r.timeout, why.with(dest, upNoPong))
	case missing > 0 && ctx.Err() == nil:
		fmt.Fprintf(c.Err, "rds ping: %d of %s not answered within %v: %s\n", missing, plural(r.sent, "ping"), r.timeout, why.with(dest, upNoPong))
	}
	return nil
}

// pingLoop sends the pings and prints the answers. It ends when all of a counted number are answered,
// when the time for that is over, or with ctx.
func (c *common) pingLoop(ctx context.Context, o pingOptions, dest netip.Addr, sockets []*rds.Socket, answers <-chan pong, r *rounds, why *trouble) error {
	ticker := time.NewTicker(time.Duration(o.interval))
	defer ticker.Stop()
	var over <-chan time.Time // set after the last ping
	silence := time.NewTimer(r.timeout)
	defer silence.Stop()

	send := func() error {
		i, ok := r.begin(time.Now())
		if !ok {
			return nil // too many unanswered: leave this turn out
		}
		if err := sockets[i].TrySend(rds.AddrFrom(dest, 0), nil); err != nil {
			return err
		}
		if o.count > 0 && r.sent == o.count {
			ticker.Stop()
			over = time.After(r.timeout)
		}
		return nil
	}
	if err := send(); err != nil {
		return err
	}
	for o.count == 0 || r.answered < o.count {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		case <-ticker.C:
			if err := send(); err != nil {
				return err
			}
		case <-silence.C:
			if r.answered == 0 && o.count == 0 {
				fmt.Fprintf(c.Err, "rds ping: no answer from %v within %v, still trying: %s\n", dest, r.timeout, why.with(dest, upNoPong))
			}
		case a := <-answers:
			if number, rtt, ok := r.end(a.socket, a.at); ok {
				if err := c.printPong(o, number, rtt); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *common) printPong(o pingOptions, number uint64, rtt time.Duration) error {
	if o.json {
		return json.NewEncoder(c.Out).Encode(struct {
			N    uint64 `json:"n"`
			Usec int64  `json:"usec"`
		}{number, rtt.Microseconds()})
	}
	_, err := fmt.Fprintf(c.Out, "%4d: %d usec\n", number, rtt.Microseconds())
	return err
}

// pong is an answer that arrived at a socket.
type pong struct {
	socket int
	at     time.Time
}

// pongs hands on the answers of dest to one socket, until ctx or the socket ends.
func pongs(ctx context.Context, s *rds.Socket, socket int, dest netip.Addr, answers chan<- pong) {
	for {
		_, from, err := s.Recv(ctx, nil)
		if err != nil {
			return
		}
		if from != rds.AddrFrom(dest, 0) {
			continue // somebody else's message
		}
		select {
		case answers <- pong{socket, time.Now()}:
		case <-ctx.Done():
			return
		}
	}
}

// maxUnanswered bounds the pings of one socket that wait for an answer. A ping without answer stays
// queued in RDS as long as its socket lives.
const maxUnanswered = 128

// rounds matches answers to pings. A pong does not say which ping it answers, but one socket's messages
// to one peer stay in order and none is lost, so the first answer belongs to the first ping.
type rounds struct {
	timeout        time.Duration
	sent, answered uint64
	waiting        [pingSockets][]round
	min, max, sum  time.Duration
}

type round struct {
	number uint64
	at     time.Time
}

// begin notes a ping at the given time and returns the socket whose turn it is; ok is false when that
// one has too many unanswered already.
func (r *rounds) begin(at time.Time) (socket int, ok bool) {
	socket = int(r.sent % pingSockets)
	if len(r.waiting[socket]) == maxUnanswered {
		return 0, false
	}
	r.sent++
	r.waiting[socket] = append(r.waiting[socket], round{r.sent, at})
	return socket, true
}

// end notes an answer to a socket at the given time and returns which ping it answers and how long that
// took; ok is false when the socket has not asked.
func (r *rounds) end(socket int, at time.Time) (number uint64, rtt time.Duration, ok bool) {
	w := r.waiting[socket]
	if len(w) == 0 {
		return 0, 0, false
	}
	rtt = at.Sub(w[0].at)
	number = w[0].number
	r.waiting[socket] = w[:copy(w, w[1:])]
	if r.answered == 0 || rtt < r.min {
		r.min = rtt
	}
	r.max = max(r.max, rtt)
	r.sum += rtt
	r.answered++
	return number, rtt, true
}

// pingSummary is the last JSON object of rds ping. Times are in microseconds, 0 without answers.
type pingSummary struct {
	Dest     netip.Addr `json:"dest"`
	Sent     uint64     `json:"sent"`
	Answered uint64     `json:"answered"`
	MinUsec  int64      `json:"min_usec"`
	AvgUsec  int64      `json:"avg_usec"`
	MaxUsec  int64      `json:"max_usec"`
}

func (r *rounds) summary(dest netip.Addr) pingSummary {
	s := pingSummary{Dest: dest, Sent: r.sent, Answered: r.answered, MinUsec: r.min.Microseconds(), MaxUsec: r.max.Microseconds()}
	if r.answered > 0 {
		s.AvgUsec = (r.sum / time.Duration(r.answered)).Microseconds()
	}
	return s
}
