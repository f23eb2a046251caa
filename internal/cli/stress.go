package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/stress"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport/tcp"
)

type stressOptions struct {
	recvAddr, sendAddr string
	shared             stress.Options
	own                stress.Config
	summaryOnly, json  bool
	trace, realTime    bool
	tos                uint8
	resetEvery         time.Duration
}

func stressCommand(c *common) *cobra.Command {
	o := stressOptions{
		shared: stress.Options{Tasks: 1, Depth: 1, ReqBytes: 1024, AckBytes: 63},
		own:    stress.Config{Port: stress.DefaultPort, Timeout: 15 * time.Second},
	}
	var rdmaBytes, rdmaBuffers, rdmaMode string
	cmd := &cobra.Command{
		Use:   "stress [-r ADDR] [-s ADDR] [flags]",
		Short: "Load two nodes and check what arrives",
		Long: `stress sends requests between the tasks of two sides, as the classic rds-stress
does, and checks what arrives. Start the passive side first, without -s. The
active side, with -s, hands it its options over a TCP connection to the port
number of -p. Each task has an RDS socket, on the ports after -p, and keeps -d
requests outstanding to each task of the other side; it never sends to those of
its own. Both sides print a line each second:

` + stress.Header + `

tasks, messages sent and received a second, KiB of both, KiB by RDMA in and out,
microseconds in a send call that found room, microseconds from a request to its
answer, and the busy part of all processors in percent (-1 without -c). At the
end the active side prints an average line.

Messages carry numbers of their own. At the end, which is after -T on the active
side or an interrupt on either, both sides wait for what is still on the way and
tell each other what they sent. What was lost, doubled, reordered or damaged is
counted by these numbers, not by those of RDS, on both sides alike. -v fills the
messages with a pattern and checks that too.

--reset-every kills TCP connections at random: one or all, at once or in the
middle of a message, on this side; both sides may do so. Nothing is lost by it.

-t -d -q -a -o -v are given on the active side and hold for both; all other
flags hold for the side where they are given. Bytes may have the suffix K, M or
G. -T and other times are seconds, or have a suffix: sec, msec, usec, or Go's s,
ms, us, m, h.

Without -r the passive side listens on all addresses and uses the one to which
the active side connects; the active side uses the one that routing would,
towards 127.0.0.0/8 a random one of that network.

What differs from the classic rds-stress: the two do not understand each other's
control connection. Tasks are not processes. Sockets have room for all that is
outstanding, and never less than the default of RDS. -Q is accepted, but RDS over
TCP has only the type of service 0. -R is accepted, but the priority of the
process stays as it is. -c reads the kernel's account of processor time and needs
no idle machine. -V is the same as --log-level debug. -D, -I and -M (RDMA) are
refused, because there is no RDMA yet.

` + exitCodesHelp + `
stress exits 0 when both sides got all messages of the other one once and in
order, and 1 otherwise, also when the other side cannot be reached or goes away.`,
		Example: `  rds stress -r 10.0.0.2                            the passive side
  rds stress -s 10.0.0.2 -T 10                      the active side, for 10 s
  rds stress -s 10.0.0.2 -t 4 -d 8 -q 64K -v -T 60  more of everything, verified
  rds stress -s 10.0.0.2 -T 10 --reset-every 200ms  with killed connections
  rds stress -r 10.0.0.2 --recv-buffer 8K --read-delay 1ms
                                                    a slow receiver, congested
  rds stress -s 10.0.0.2 -T 10 -z --json            only the summary, as an object`,
		Args: noArgs,
	}
	f := cmd.Flags()
	f.StringVarP(&o.recvAddr, "recv-addr", "r", "", "local address; without -s wait there for the other side")
	f.StringVarP(&o.sendAddr, "send-addr", "s", "", "address of the passive side; makes this the active one")
	// This one and --verbose take the place of flags of all commands, whose letters and names the
	// classic rds-stress uses for something else.
	f.Uint16VarP(&o.own.Port, "port", "p", o.own.Port, "TCP port of the control connection; task i has RDS port p + i")
	f.IntVarP(&o.shared.Tasks, "tasks", "t", o.shared.Tasks, "tasks on each side")
	f.IntVarP(&o.shared.Depth, "depth", "d", o.shared.Depth, "requests outstanding per task of the other side")
	f.VarP((*byteSize)(&o.shared.ReqBytes), "req-bytes", "q", "length of requests, at least "+strconv.Itoa(stress.MinSize))
	f.VarP((*byteSize)(&o.shared.AckBytes), "ack-bytes", "a", "length of answers, at least "+strconv.Itoa(stress.MinSize))
	f.BoolVarP(&o.shared.OneWay, "one-way", "o", false, "only the active side makes requests")
	f.VarP((*runTime)(&o.own.Time), "time", "T", "how long to run, 0 = until interrupted")
	f.BoolVarP(&o.shared.Verify, "verify", "v", false, "fill messages with a pattern and check it")
	f.BoolVarP(&o.summaryOnly, "report-summary", "z", false, "only the summary")
	f.BoolVarP(&o.own.CPU, "report-cpu", "c", false, "measure the use of the processors")
	f.Uint8VarP(&o.tos, "tos", "Q", 0, "type of service; taken for the sake of scripts, without effect")
	f.BoolVarP(&o.realTime, "rtprio", "R", false, "real-time priority; taken for the sake of scripts, without effect")
	f.BoolVarP(&o.trace, "trace", "V", false, "same as --log-level debug")
	f.DurationVar(&o.resetEvery, "reset-every", 0, "mean time between two killed connections, 0 = none are killed")
	f.Var((*runTime)(&o.own.ReadDelay), "read-delay", "how long each task waits before it receives a message")
	f.Var((*byteSize)(&o.own.SendBuffer), "send-buffer", "send buffer of each socket, 0 = room for all that is outstanding")
	f.Var((*byteSize)(&o.own.RecvBuffer), "recv-buffer", "receive buffer of each socket, 0 = room for all that is outstanding")
	f.DurationVar(&o.own.Timeout, "timeout", o.own.Timeout, "how long to wait for the other side")
	f.BoolVar(&o.json, "json", false, "print JSON: an object each second, then a summary")
	f.CountVar(&c.verbose, "verbose", "same as --log-level info; twice: debug")

	f.StringVarP(&rdmaBytes, "rdma-bytes", "D", "", "bytes by RDMA with each request: not possible yet")
	f.StringVarP(&rdmaBuffers, "rdma-buffers", "I", "", "buffers for RDMA: not possible yet")
	f.StringVarP(&rdmaMode, "rdma-mode", "M", "", "reads, writes or both by RDMA: not possible yet")
	for _, name := range []string{"rdma-bytes", "rdma-buffers", "rdma-mode"} {
		if err := f.MarkHidden(name); err != nil {
			panic(err)
		}
	}
	cmd.RunE = run(func(ctx context.Context, _ []string) error {
		if err := o.heed(f); err != nil {
			return err
		}
		for _, note := range o.notes(f) {
			fmt.Fprintf(c.Err, "rds stress: %s\n", note)
		}
		return c.stress(ctx, o)
	})
	return cmd
}

// heed refuses flags that make no sense.
func (o *stressOptions) heed(f *pflag.FlagSet) error {
	for _, name := range []string{"rdma-bytes", "rdma-buffers", "rdma-mode"} {
		if flag := f.Lookup(name); flag.Changed {
			return usagef("-%s (--%s) asks for RDMA, which this version does not have: leave out -D, -I and -M", flag.Shorthand, name)
		}
	}
	if o.resetEvery < 0 {
		return usagef("--reset-every %v is negative", o.resetEvery)
	}
	shared := o.shared
	if o.sendAddr == "" {
		// What the active side will hand over cannot be known yet.
		shared = stress.Options{Tasks: 1, Depth: 1, ReqBytes: stress.MinSize, AckBytes: stress.MinSize}
	}
	if err := errors.Join(shared.Check(), o.own.Check(&shared)); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// notes says which flags cannot be honoured.
func (o *stressOptions) notes(f *pflag.FlagSet) (notes []string) {
	if o.tos != 0 {
		notes = append(notes, fmt.Sprintf("-Q %d has no effect: RDS over TCP has only the type of service 0", o.tos))
	}
	if o.realTime {
		notes = append(notes, "-R has no effect: the priority stays as it is (chrt changes it)")
	}
	if o.sendAddr == "" {
		var ignored []string
		for _, name := range []string{"tasks", "depth", "req-bytes", "ack-bytes", "one-way", "time", "verify"} {
			if flag := f.Lookup(name); flag.Changed {
				ignored = append(ignored, "-"+flag.Shorthand)
			}
		}
		if ignored != nil {
			notes = append(notes, strings.Join(ignored, " ")+" without effect on the passive side: the active one decides")
		}
	}
	return notes
}

func (c *common) stress(ctx context.Context, o stressOptions) error {
	if o.trace {
		c.level = "debug"
	}
	var local, dest netip.Addr
	var err error
	if o.recvAddr != "" {
		if local, err = resolve(ctx, o.recvAddr); err != nil {
			return err
		}
	}
	if o.sendAddr != "" {
		if dest, err = resolve(ctx, o.sendAddr); err != nil {
			return err
		}
		if local.IsValid() {
			if err := sameFamily(local, dest); err != nil {
				return err
			}
		}
	}
	r := &stressRun{common: c, o: o}
	defer r.close()
	if !o.summaryOnly {
		r.o.own.Each = r.printInterval
	}
	r.o.own.Started = r.started
	if o.resetEvery > 0 {
		r.network = fault.Wrap(&tcp.OSNetwork{}, fault.Options{})
		r.killer = &stress.Killer{Network: r.network, Every: o.resetEvery, Kernel: r.kernelPeer}
		r.o.own.During = r.killer.Run
	}
	if dest.IsValid() {
		return r.active(ctx, local, dest)
	}
	return r.passive(ctx, local)
}

// stressRun is one side of a run.
type stressRun struct {
	*common
	o       stressOptions
	node    *rds.Node      // nil: not made yet
	network *fault.Network // nil: connections are not killed
	killer  *stress.Killer // nil: connections are not killed
	seconds int            // printed
}

// open makes the node.
func (r *stressRun) open(local, dest netip.Addr) (_ netip.Addr, err error) {
	r.node, local, err = r.openWith(r.newNode, rds.Config{}, local, dest, nil)
	return local, err
}

func (r *stressRun) newNode(cfg rds.Config) (*rds.Node, error) {
	if r.network == nil {
		return rds.NewNode(cfg)
	}
	return seam.New[*rds.Node](cfg, r.network)
}

// kernelPeer says whether the other side is known to be a kernel.
func (r *stressRun) kernelPeer() bool {
	for _, c := range r.node.Connections() {
		if c.Known && !c.Own {
			return true
		}
	}
	return false
}

func (r *stressRun) close() {
	if r.node != nil {
		r.node.Close()
	}
}

func (r *stressRun) active(ctx context.Context, local, dest netip.Addr) error {
	local, err := r.open(local, dest)
	if err != nil {
		return err
	}
	conn, err := r.dial(ctx, local, netip.AddrPortFrom(dest, r.o.own.Port))
	if err != nil {
		return err
	}
	sum, err := stress.Active(ctx, conn, stress.Library{Node: r.node}, r.o.shared, r.o.own)
	return r.finish(sum, err, true)
}

// dialPause is the time between two attempts to reach the passive side.
const dialPause = 100 * time.Millisecond

// dial opens the control connection. The passive side may be a little late.
func (r *stressRun) dial(ctx context.Context, local netip.Addr, to netip.AddrPort) (net.Conn, error) {
	limit, cancel := context.WithTimeout(ctx, r.o.own.Timeout)
	defer cancel()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))}
	for {
		conn, err := d.DialContext(limit, "tcp", to.String())
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			select {
			case <-limit.Done():
			case <-time.After(dialPause):
				continue
			}
		}
		if ctx.Err() != nil {
			return nil, negativef("no passive side at %v before the interrupt: %w", to, err)
		}
		return nil, negativef("no passive side at %v within %v: %w", to, r.o.own.Timeout, err)
	}
}

func (r *stressRun) passive(ctx context.Context, local netip.Addr) error {
	if local.IsValid() {
		// Now, so that an address that cannot be used is known at once.
		if _, err := r.open(local, netip.Addr{}); err != nil {
			return err
		}
	}
	at := net.JoinHostPort("", strconv.Itoa(int(r.o.own.Port)))
	if local.IsValid() {
		at = netip.AddrPortFrom(local, r.o.own.Port).String()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(r.Err, "rds stress: waiting for the active side on %s\n", at)

	node := func(local netip.Addr) (stress.Node, error) {
		if r.node == nil {
			if _, err := r.open(local, netip.Addr{}); err != nil {
				return nil, err
			}
		}
		l.Close() // one run, so nobody else is to wait for another
		return stress.Library{Node: r.node}, nil
	}
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return negativef("no active side before the interrupt")
		}
		if err != nil {
			return fmt.Errorf("control connection: %w", err)
		}
		sum, err := stress.Passive(ctx, conn, node, r.o.own)
		if errors.Is(err, stress.ErrHello) && ctx.Err() == nil {
			fmt.Fprintf(r.Err, "rds stress: %v; still waiting\n", err)
			continue
		}
		return r.finish(sum, err, false)
	}
}

// started tells what begins now.
func (r *stressRun) started(o stress.Options) {
	text := fmt.Sprintf("%s, %d outstanding, requests of %d bytes, answers of %d", plural(uint64(o.Tasks), "task"), o.Depth, o.ReqBytes, o.AckBytes)
	if o.OneWay {
		text += ", one way"
	}
	if o.Verify {
		text += ", verified"
	}
	fmt.Fprintf(r.Err, "rds stress: starting: %s\n", text)
}

// jsonSecond is the object of one second.
type jsonSecond struct {
	Second int `json:"second"`
	stress.Interval
}

func (r *stressRun) printInterval(iv stress.Interval) error {
	r.seconds++
	if r.o.json {
		return json.NewEncoder(r.Out).Encode(jsonSecond{r.seconds, iv})
	}
	head := ""
	if r.seconds == 1 {
		head = stress.Header + "\n"
	}
	_, err := fmt.Fprintf(r.Out, "%s%v\n", head, iv)
	return err
}

// finish prints the summary and returns the verdict as an error.
func (r *stressRun) finish(sum stress.Summary, err error, active bool) error {
	if r.killer != nil {
		sum.Killed = r.killer.Killed()
	}
	if sum.Seconds > 0 {
		if perr := r.printSummary(sum, active); perr != nil {
			return errors.Join(err, perr)
		}
	}
	switch {
	case errors.Is(err, stress.ErrPeer):
		return negativef("%w%s", err, found(sum))
	case errors.Is(err, context.Canceled):
		return negativef("interrupted before the beginning")
	case err != nil:
		return err
	case !sum.Pass:
		return negativef("failed: %s", strings.Join(sum.Reasons, ", "))
	}
	killed := ""
	if r.killer != nil {
		killed = fmt.Sprintf("; %s killed", plural(sum.Killed, "connection"))
	}
	fmt.Fprintf(r.Err, "rds stress: passed: %s of %v, and %d to it, arrived once and in order%s\n",
		plural(sum.Received, "message"), sum.Remote, sum.Peer.Received, killed)
	return nil
}

// found says what was wrong before a run broke off.
func found(sum stress.Summary) string {
	if sum.Clean() {
		return ""
	}
	return fmt.Sprintf("; until then %d messages doubled, %d out of order, %d damaged, and %d that came late or never",
		sum.Doubled, sum.Reordered, sum.Damaged, sum.Lost)
}

func (r *stressRun) printSummary(sum stress.Summary, active bool) error {
	if r.o.json {
		return json.NewEncoder(r.Out).Encode(sum)
	}
	if !active {
		return nil
	}
	line := "---------------------------------------------"
	if r.seconds == 0 {
		line = stress.Header
	}
	_, err := fmt.Fprintf(r.Out, "%s\n%v  (average)\n", line, sum.Mean)
	return err
}
