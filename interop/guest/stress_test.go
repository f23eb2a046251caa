//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli"
	"github.com/rds-go/rds/internal/cli/stress"
)

// With this variable the test binary is the command rds.
func init() {
	if os.Getenv("RDS_GUEST_COMMAND") != "" {
		os.Exit(cli.Main())
	}
}

// kernelNode is the kernel of a side, for the tasks of package stress.
type kernelNode struct {
	p *Pair
	s Side
}

// Bind implements stress.Node.
func (n kernelNode) Bind(at rds.Addr, sendBuffer, recvBuffer int) (stress.Socket, error) {
	s, err := OpenSocket(n.p.Namespace(n.s))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.SetSendBuffer(sendBuffer), s.SetRecvBuffer(recvBuffer), s.Bind(netip.AddrPortFrom(at.IP, at.Port))); err != nil {
		s.Close()
		return nil, err
	}
	return kernelTask{s}, nil
}

// Traffic implements stress.Node. The kernel's counters are those of all namespaces.
func (kernelNode) Traffic() stress.Traffic { return stress.Traffic{} }

// kernelTask is a kernel socket with the calls that a task makes.
type kernelTask struct{ s *Socket }

func (k kernelTask) TrySend(to rds.Addr, m []byte) error {
	return k.s.TrySend(m, netip.AddrPortFrom(to.IP, to.Port))
}

// round is how long a call waits before it looks whether its context has ended.
const round = 100 * time.Millisecond

func (k kernelTask) Send(ctx context.Context, to rds.Addr, m []byte) error {
	for {
		err := k.s.Send(m, netip.AddrPortFrom(to.IP, to.Port), round)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (k kernelTask) Recv(ctx context.Context, p []byte) (int, rds.Addr, error) {
	for {
		m, err := recvData(k.s, round)
		if err == nil && m.Flags&unix.MSG_TRUNC != 0 {
			err = fmt.Errorf("a message of more than %d bytes from %v", len(m.Data), m.From)
		}
		if err == nil {
			return copy(p, m.Data), toRDS(m.From), nil
		}
		if ctx.Err() != nil {
			return 0, rds.Addr{}, ctx.Err()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, rds.Addr{}, err
		}
	}
}

func (k kernelTask) Close() error { return k.s.Close() }

// stressPort is the control port; the RDS ports are those after it.
const stressPort = 4000

// stressOptions is the load of the test.
var stressOptions = stress.Options{Tasks: 4, Depth: 8, ReqBytes: 1024, AckBytes: 63, Verify: true}

// TestStress: the command `rds stress` in one namespace, kernel sockets in the other one, for a while of
// verified load, with the smaller and the larger address: as the active side, with receivers on both sides that
// are slower than the senders, and as the passive side, while connections are killed.
func TestStress(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		t.Run("active-congested", func(t *testing.T) { testStress(t, ours, true) })
		t.Run("passive-resets", func(t *testing.T) { testStress(t, ours, false) })
	})
}

func testStress(t *testing.T, ours Side, active bool) {
	const (
		load = 2 * time.Second
		// Of the active run: 32 requests of 1 KiB are outstanding to each task, and it receives 1000 messages
		// a second at most.
		slow, small = time.Millisecond, 8 << 10
	)
	p := NewPair(t)
	p.Free(ours)
	theirs := ours.Other()
	at := netip.AddrPortFrom(p.Addr(ours, false), stressPort)
	kernelAt := netip.AddrPortFrom(p.Addr(theirs, false), stressPort)
	ctx, cancel := context.WithTimeout(context.Background(), load+2*Patience)
	defer cancel()

	args := []string{"stress", "-r", at.Addr().String(), "-p", fmt.Sprint(stressPort), "-z", "--json", "--timeout", Patience.String()}
	if active {
		args = append(args, "-s", kernelAt.Addr().String(), "-t", "4", "-d", "8", "-q", "1024", "-a", "63", "-v", "-T", fmt.Sprint(load.Seconds()),
			"--read-delay", slow.String(), "--recv-buffer", fmt.Sprint(small))
	} else if ours == A {
		// Besides those that are killed on both sides below. Not with the larger address, where it is
		// the resets that put the acceptor to the test.
		args = append(args, "--reset-every", "300ms")
	}
	cfg := stress.Config{Port: stressPort, Time: load, Timeout: Patience}
	requesting := make(chan context.Context, 1)
	cfg.During = func(ctx context.Context) { requesting <- ctx; <-ctx.Done() }

	type outcome struct {
		sum stress.Summary
		err error
	}
	kernel := make(chan outcome, 1)
	var cmd *stressCommand
	if active {
		cfg.ReadDelay, cfg.RecvBuffer = slow, small
		l, err := p.ListenTCP(theirs, kernelAt)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd = startStress(t, p, ours, args)
		go func() {
			var o outcome
			l.SetDeadline(time.Now().Add(Patience))
			conn, err := l.Accept()
			if o.err = err; err == nil {
				o.sum, o.err = stress.Passive(ctx, conn, func(netip.Addr) (stress.Node, error) { return kernelNode{p, theirs}, nil }, cfg)
			}
			kernel <- o
		}()
	} else {
		cmd = startStress(t, p, ours, args)
		conn := dialStress(ctx, t, p, theirs, at)
		go func() {
			var o outcome
			o.sum, o.err = stress.Active(ctx, conn, kernelNode{p, theirs}, stressOptions, cfg)
			kernel <- o
		}()
	}
	killed := 0
	if !active {
		killed = killWhile(t, p, requesting)
	}
	k := <-kernel
	sum := cmd.wait(t)

	Figure(t, "load", fmt.Sprintf("%.0f tx/s, %.0f rx/s, rtt %.0f us, %d+%d waits; kernel %.0f tx/s, rtt %.0f us, %d+%d waits",
		sum.Mean.TxPerSec, sum.Mean.RxPerSec, sum.Mean.RTTMicros, sum.Congested, sum.Full,
		k.sum.Mean.TxPerSec, k.sum.Mean.RTTMicros, k.sum.Congested, k.sum.Full))
	if k.err != nil {
		t.Errorf("kernel's side: %v", k.err)
	}
	if !k.sum.Pass {
		t.Errorf("kernel's side: %v: %+v", k.sum.Reasons, k.sum)
	}
	if !sum.Pass || sum.Options != stressOptions || sum.Received == 0 || sum.Peer.Received == 0 {
		t.Errorf("our side: %+v", sum)
	}
	if active {
		if sum.Congested == 0 || k.sum.Congested == 0 {
			t.Errorf("%d and %d messages waited for congestion: nothing was shown", sum.Congested, k.sum.Congested)
		}
	} else {
		Figure(t, "resets", fmt.Sprintf("%d of %d+%d killed, %d messages sent again, %d filtered", sum.Resets, killed, sum.Killed, sum.Retransmissions, sum.Filtered))
		if killed == 0 || (sum.Killed == 0) == (ours == A) || sum.Resets == 0 {
			t.Errorf("%d connections killed on the way, %d by the command, %d resets seen: nothing was shown", killed, sum.Killed, sum.Resets)
		}
	}
}

// killWhile kills the connections, on both sides in turns, as long as requests are made. It returns how many.
func killWhile(t *testing.T, p *Pair, requesting <-chan context.Context) (killed int) {
	t.Helper()
	var load context.Context
	select {
	case load = <-requesting:
	case <-time.After(Patience):
		t.Error("no requests were made")
		return 0
	}
	for side := A; ; side = side.Other() {
		select {
		case <-load.Done():
			return killed
		case <-time.After(150 * time.Millisecond):
			killed += p.KillTCP(side)
		}
	}
}

// dialStress connects to the control port of the command, when it is ready.
func dialStress(ctx context.Context, t *testing.T, p *Pair, from Side, to netip.AddrPort) net.Conn {
	t.Helper()
	for {
		conn, err := p.DialTCP(ctx, from, netip.AddrPortFrom(p.Addr(from, false), 0), to)
		if err == nil {
			return conn
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no command at %v: %v", to, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stressCommand is a running `rds stress --json -z`.
type stressCommand struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

func startStress(t *testing.T, p *Pair, s Side, args []string) *stressCommand {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &stressCommand{cmd: exec.Command(exe, args...)}
	c.cmd.Env = append(os.Environ(), "RDS_GUEST_COMMAND=1")
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	if err := p.Start(s, c.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill() })
	return c
}

// wait waits for the end of the command and returns its summary.
func (c *stressCommand) wait(t *testing.T) (sum stress.Summary) {
	t.Helper()
	timer := time.AfterFunc(Patience, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("rds stress: %v\n%s", err, c.err.String())
	}
	if err := json.Unmarshal(c.out.Bytes(), &sum); err != nil {
		t.Errorf("rds stress printed %q: %v", c.out.String(), err)
	}
	return sum
}
