package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/framing"
)

type sendOptions struct {
	bind    string
	framing framing.Framing
	timeout time.Duration
	json    bool
}

// sendBuffer is S of the socket of rds send in bytes: room for the largest message and for a good many
// ordinary ones, and the bound of what is in memory.
const sendBuffer = 2 << 20

func sendCommand(c *common) *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send [flags] DEST:PORT...",
		Short: "Send standard input as messages",
		Long: `send reads messages from standard input and sends each one to every DEST:PORT.
At the end of the input, or when it is interrupted, it waits until all are
acknowledged, at most --timeout. A message that finds no room for that long,
because its receiver is gone or does not read, ends the command as well. Then it
says how many messages were not acknowledged; some of these may have arrived.

Acknowledged means: the node at DEST has the message. RDS drops messages to a
port where no socket is bound, and tells nobody.

Framings:
  line      each line is a message, without its newline
  len32be   the length of the message in 4 bytes, big endian, and the message
A message has at most 1048576 bytes; input that does not fit ends the command
after the messages before it were sent.

Without --bind the local address is the one that routing would use; towards
127.0.0.0/8 it is a random one of that network.

` + exitCodesHelp,
		Example: `  echo hello | rds send 10.0.0.2:4000
  rds send --bind 10.0.0.1:5000 10.0.0.2:4000 10.0.0.3:4000 < lines
  rds send --framing len32be --timeout 5s 10.0.0.2:4000 < messages`,
		Args: cobra.MinimumNArgs(1),
		RunE: run(func(ctx context.Context, args []string) error { return c.send(ctx, o, args) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.bind, "bind", "", "local address, ADDR or ADDR:PORT")
	f.Var(&o.framing, "framing", "how messages are told apart in the input")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for acknowledgements")
	f.BoolVar(&o.json, "json", false, "print a JSON summary at the end")
	return cmd
}

// sendSummary is what rds send --json prints.
type sendSummary struct {
	Messages uint64 `json:"messages"` // sent, counted for each destination
	Bytes    uint64 `json:"bytes"`    // payload of these
	// Unacknowledged messages had no acknowledgement in time; those that could not even be queued
	// are among them.
	Unacknowledged int `json:"unacknowledged"`
}

func (c *common) send(ctx context.Context, o sendOptions, args []string) (err error) {
	if o.timeout <= 0 {
		return usagef("--timeout %v is not positive", o.timeout)
	}
	var local rds.Addr
	if o.bind != "" {
		if local, err = binding(ctx, o.bind); err != nil {
			return err
		}
	}
	dests, err := destinations(ctx, local.IP, args)
	if err != nil {
		return err
	}
	var why trouble
	n, ip, err := c.open(rds.Config{SendBuffer: sendBuffer}, local.IP, dests[0].IP, why.events())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	s, err := n.Bind(rds.AddrFrom(ip, local.Port))
	if err != nil {
		return err
	}

	p := pump{in: o.framing.NewReader(c.In, rds.DefaultMaxMessage), out: s, dests: dests, timeout: o.timeout}
	sendErr := p.run(ctx)
	timeout := errors.Is(sendErr, rds.ErrTimeout)
	if !timeout {
		// An interrupt ends the reading of input, not the wait for acknowledgements.
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.timeout)
		defer cancel()
		if err := s.Flush(flush); errors.Is(err, rds.ErrTimeout) {
			timeout = true
		} else if err != nil {
			return errors.Join(sendErr, err)
		}
	}
	sum := sendSummary{Messages: p.messages, Bytes: p.bytes}
	left := map[rds.Addr]int{}
	for _, d := range dests {
		messages, _ := s.Pending(d)
		left[d] = messages
		if slices.Contains(p.unsent, d) {
			left[d]++
		}
		sum.Unacknowledged += left[d]
	}
	if o.json {
		if err := json.NewEncoder(c.Out).Encode(sum); err != nil {
			return err
		}
	}
	if timeout {
		return notAcknowledged(o.timeout, dests, left, &why)
	}
	if e := (*framing.Error)(nil); errors.As(sendErr, &e) {
		return usagef("%w (%s sent before it)", sendErr, plural(p.messages, "message"))
	}
	return sendErr
}

// destinations parses the arguments; local is the zero Addr when any will do.
func destinations(ctx context.Context, local netip.Addr, args []string) ([]rds.Addr, error) {
	var dests []rds.Addr
	seen := map[rds.Addr]bool{}
	for _, arg := range args {
		d, err := endpoint(ctx, "destination", arg)
		if err != nil {
			return nil, err
		}
		if d.Port == 0 {
			return nil, usagef("destination %q: port 0 is where pings go (see rds ping)", arg)
		}
		if seen[d] {
			return nil, usagef("destination %v is given twice", d)
		}
		seen[d] = true
		if !local.IsValid() {
			local = d.IP // the source will be of the family of the first
		}
		if err := sameFamily(local, d.IP); err != nil {
			return nil, err
		}
		dests = append(dests, d)
	}
	return dests, nil
}

// notAcknowledged says for each destination how many messages it did not acknowledge and why.
func notAcknowledged(timeout time.Duration, dests []rds.Addr, left map[rds.Addr]int, why *trouble) error {
	var lines []string
	for _, d := range dests {
		if left[d] > 0 {
			lines = append(lines, fmt.Sprintf("%s not acknowledged by %v within %v: %s", plural(left[d], "message"), d, timeout, why.with(d.IP, "the connection is up, the receiver may not be reading")))
		}
	}
	return unackedf("%s", strings.Join(lines, "\n"))
}

// sender is the part of *rds.Socket that a pump needs.
type sender interface {
	Send(ctx context.Context, to rds.Addr, p []byte) error
	TrySend(to rds.Addr, p []byte) error
}

// pump sends messages from in through out to each of dests.
type pump struct {
	in    framing.Reader
	out   sender
	dests []rds.Addr
	// timeout is how long one message may wait for room.
	timeout time.Duration

	messages uint64     // queued, counted for each destination
	bytes    uint64     // payload of these
	unsent   []rds.Addr // the destinations to which the last message could not be queued
}

// input is what the reading goroutine of a pump found: a message or the error that ended the input.
type input struct {
	message []byte
	err     error
}

// run pumps until the input ends or a message cannot be sent. The end of ctx stops it between two
// messages and is no error. It leaves a goroutine behind if that waits for input at the
// time: reading a terminal or pipe cannot be interrupted. What that one reads is not sent.
func (p *pump) run(ctx context.Context) error {
	inputs := make(chan input)
	next := make(chan struct{}) // the last message may be overwritten
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for {
			m, err := p.in.Next()
			select {
			case inputs <- input{m, err}:
			case <-quit:
				return
			}
			select {
			case <-next:
			case <-quit:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-inputs:
			if errors.Is(in.err, io.EOF) {
				return nil
			}
			if in.err != nil {
				return fmt.Errorf("standard input: %w", in.err)
			}
			if err := p.send(context.WithoutCancel(ctx), in.message); err != nil {
				return err
			}
			next <- struct{}{}
		}
	}
}

// send sends one message to each destination.
func (p *pump) send(ctx context.Context, m []byte) error {
	for i, d := range p.dests {
		err := p.out.TrySend(d, m)
		if errors.Is(err, rds.ErrAgain) || errors.Is(err, rds.ErrCongested) {
			wait, cancel := context.WithTimeout(ctx, p.timeout)
			err = p.out.Send(wait, d, m)
			cancel()
		}
		if err != nil {
			p.unsent = p.dests[i:]
			return err
		}
		p.messages++
		p.bytes += uint64(len(m))
	}
	return nil
}
