package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/framing"
)

type recvOptions struct {
	bind    string
	framing framing.Framing
	count   uint64
	timeout time.Duration
	json    bool
}

func recvCommand(c *common) *cobra.Command {
	var o recvOptions
	cmd := &cobra.Command{
		Use:   "recv --bind ADDR:PORT [flags]",
		Short: "Write received messages to standard output",
		Long: `recv binds an RDS socket and writes each message that it receives to standard
output, until it is interrupted, has --count messages, or --timeout is over. A
sender that finds the reader slow waits: nothing is dropped.

Framings:
  line      each message and a newline; a message that has a newline in it reads
            as several
  len32be   the length of the message in 4 bytes, big endian, and the message
--json writes an object for each message instead: from, len, and text, or base64
when the message is no UTF-8.

What was received before an interrupt is written. What a peer sends after it, or
after the last of --count messages, is lost, as it is whenever an RDS socket is
closed.

` + exitCodesHelp,
		Example: `  rds recv --bind 10.0.0.2:4000
  rds recv --bind 10.0.0.2:4000 --count 1 --timeout 30s
  rds recv --bind 10.0.0.2:4000 --framing len32be > messages
  rds recv --bind [fd00::2]:4000 --json`,
		Args: noArgs,
		RunE: run(func(ctx context.Context, _ []string) error { return c.recv(ctx, o) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.bind, "bind", "", "local address and RDS port, port 0 = any free one (required)")
	f.Var(&o.framing, "framing", "how messages are told apart in the output")
	f.Uint64Var(&o.count, "count", 0, "end after this many messages, 0 = never")
	f.DurationVar(&o.timeout, "timeout", 0, "end after this time, 0 = never")
	f.BoolVar(&o.json, "json", false, "write a JSON object for each message")
	if err := cmd.MarkFlagRequired("bind"); err != nil {
		panic(err)
	}
	return cmd
}

func (c *common) recv(ctx context.Context, o recvOptions) (err error) {
	local, err := endpoint(ctx, "--bind", o.bind)
	if err != nil {
		return err
	}
	if o.timeout < 0 {
		return usagef("--timeout %v is negative", o.timeout)
	}
	// Peers that wait for this address connect as soon as it listens. None may get in before the
	// socket is there, or its messages would find nobody and be dropped.
	n, _, err := c.open(rds.Config{MaxMessage: rds.DefaultMaxMessage, Hold: true}, local.IP, netip.Addr{}, nil)
	if err != nil {
		return err
	}
	// Close lets the acknowledgements out that are still due.
	defer func() { err = errors.Join(err, n.Close()) }()
	s, err := n.Bind(local)
	if err != nil {
		return err
	}
	n.Start()
	if local.Port == 0 {
		fmt.Fprintf(c.Err, "rds recv: bound to %v\n", s.Addr())
	}

	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	var w sink = &framed{o.framing.NewWriter(c.Out)}
	if o.json {
		w = &jsonLines{framing.Line.NewWriter(c.Out)}
	}
	got, err := pour(ctx, s, w, o.count)
	if err != nil {
		return err
	}
	if got < o.count {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return negativef("%d of %s came within %v", got, plural(o.count, "message"), o.timeout)
		}
		return negativef("%d of %s came before the interrupt", got, plural(o.count, "message"))
	}
	return nil
}

// receiver is the part of *rds.Socket that pour needs.
type receiver interface {
	Recv(ctx context.Context, p []byte) (int, rds.Addr, error)
	TryRecv(p []byte) (int, rds.Addr, error)
}

// sink is where messages go.
type sink interface {
	put(from rds.Addr, p []byte) error
	Flush() error
}

// pour writes messages from r to w, count of them if count is not 0, until ctx ends. It flushes
// whenever no message is waiting, and when ctx ends it takes first what had come before.
func pour(ctx context.Context, r receiver, w sink, count uint64) (got uint64, err error) {
	defer func() { err = errors.Join(err, w.Flush()) }()
	if count == 0 {
		count = math.MaxUint64
	}
	buf := make([]byte, rds.DefaultMaxMessage)
	for got < count {
		n, from, err := r.TryRecv(buf)
		if errors.Is(err, rds.ErrAgain) {
			if ctx.Err() != nil {
				return got, nil
			}
			if err := w.Flush(); err != nil {
				return got, err
			}
			n, from, err = r.Recv(ctx, buf)
			if err != nil && ctx.Err() != nil {
				continue // once more round, for a message that came at the same time
			}
		}
		if err != nil {
			return got, err
		}
		if err := w.put(from, buf[:n]); err != nil {
			return got, err
		}
		got++
	}
	return got, nil
}

// framed is a sink of bare messages.
type framed struct{ framing.Writer }

func (f *framed) put(_ rds.Addr, p []byte) error { return f.WriteMessage(p) }

// jsonLines is a sink of JSON objects, one a line.
type jsonLines struct{ framing.Writer }

// jsonMessage is a message as rds recv --json writes it: as text if it is UTF-8, in base64 otherwise.
type jsonMessage struct {
	From   rds.Addr `json:"from"`
	Len    int      `json:"len"`
	Text   *string  `json:"text,omitempty"`
	Base64 []byte   `json:"base64,omitempty"`
}

func (j *jsonLines) put(from rds.Addr, p []byte) error {
	m := jsonMessage{From: from, Len: len(p)}
	if utf8.Valid(p) {
		text := string(p)
		m.Text = &text
	} else {
		m.Base64 = p
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return j.WriteMessage(line)
}
