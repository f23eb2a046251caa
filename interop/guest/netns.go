//go:build linux

// Package guest holds the tests that run inside the test machine, next to a
// real AF_RDS, and what they need: pairs of network namespaces, kernel RDS
// sockets without cgo, raw frames for scripted peers. Outside the machine all
// tests skip. It may use the packages of this module as their users do.
package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the TCP port of RDS.
const Port = 16385

// Patience is the deadline of a single step that normally takes
// milliseconds. An emulated machine on a busy host is slow, and a kernel may
// wait for TCP's own SYN retries (1, 3, 7 s); nothing here measures time.
const Patience = 30 * time.Second

// Side is one of the two nodes of a pair. A has the smaller address: it is the
// one that dials.
type Side int

const (
	A Side = iota
	B
)

func (s Side) String() string { return [2]string{"A", "B"}[s] }

// Other returns the opposite side.
func (s Side) Other() Side { return 1 - s }

// Pair is two fresh network namespaces joined by a veth, both with a kernel
// RDS/TCP listener. The addresses are used by no other pair of this process:
// the kernel's port table and congestion maps do not know namespaces. All
// methods may be called from any goroutine, except that those without an error
// result end the test and so belong to the test's goroutine.
type Pair struct {
	t    testing.TB
	n    int
	ns   [2]string
	dev  [2]string
	port [2]atomic.Uint32 // groups of source ports handed out
}

var pairs atomic.Int32

// InVM says whether this process runs inside the test machine.
func InVM() bool { return os.Getenv("RDS_IN_VM") == "1" }

// RequireVM skips a test outside the machine.
func RequireVM(t testing.TB) {
	t.Helper()
	if !InVM() {
		t.Skip("runs only inside the test machine (RDS_IN_VM is unset): use go test ./interop")
	}
}

// Full says whether long runs are wanted (RDS_VM_FULL=1).
func Full() bool { return os.Getenv("RDS_VM_FULL") == "1" }

// Kernel7 says whether this kernel has the RDS/TCP of 2026 (7.x).
func Kernel7() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	major, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), ".")
	return major != "5" && major != "6"
}

// Figure prints a measured value; the host collects it into its table.
func Figure(t testing.TB, name string, value any) {
	t.Helper()
	t.Logf("FIGURE %s %v", strings.ReplaceAll(name, " ", "-"), value)
}

// NewPair makes the namespaces and removes them at the end of the test. Close
// what lives in them in cleanups registered later, that is, after NewPair.
func NewPair(t testing.TB) *Pair {
	t.Helper()
	RequireVM(t)
	p := &Pair{t: t, n: int(pairs.Add(1))}
	for _, s := range []Side{A, B} {
		p.ns[s] = fmt.Sprintf("%s%d", strings.ToLower(s.String()), p.n)
		p.dev[s] = fmt.Sprintf("v%s%d", strings.ToLower(s.String()), p.n)
	}
	t.Cleanup(p.remove)
	p.must(run("/sbin/ip", "netns", "add", p.ns[A]))
	p.must(run("/sbin/ip", "netns", "add", p.ns[B]))
	p.join(A, B)
	if os.Getenv("RDS_VM_PCAP") == "1" {
		p.Capture(A, captureName(t.Name(), p.n))
	}
	return p
}

// join connects the namespaces by a veth and gives the sides their addresses.
func (p *Pair) join(sides ...Side) {
	p.must(run("/sbin/ip", "link", "add", p.dev[A], "netns", p.ns[A], "type", "veth", "peer", "name", p.dev[B], "netns", p.ns[B]))
	for _, s := range sides {
		// Without nodad an IPv6 address cannot be bound for its first second.
		batch := fmt.Sprintf("link set lo up\naddr add %v/24 dev %s\naddr add %v/64 dev %s nodad\nlink set %s up\n",
			p.Addr(s, false), p.dev[s], p.Addr(s, true), p.dev[s], p.dev[s])
		p.must(runIn(batch, "/sbin/ip", "-n", p.ns[s], "-batch", "-"))
	}
}

// Reboot does to a side what a reboot does, as seen from the other one: its
// connections are gone without a word that gets through, and its kernel begins all over again. Close its
// sockets before. The other side's device is made anew, without netem.
//
// A new namespace takes the side's place and addresses: the old one may live on
// for a while, since sockets that still want to tell their peer something keep it.
func (p *Pair) Reboot(s Side) {
	p.Link(s, false)
	p.must(run("/sbin/ip", "-n", p.ns[s], "link", "del", "dev", p.dev[s]))
	p.must(run("/sbin/ip", "netns", "del", p.ns[s]))
	p.ns[s] += "r"
	p.must(run("/sbin/ip", "netns", "add", p.ns[s]))
	p.join(A, B)
}

func captureName(test string, n int) string {
	return fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", " ", "_").Replace(test), n)
}

func (p *Pair) remove() {
	for _, s := range []Side{A, B} {
		if err := run("/sbin/ip", "netns", "del", p.ns[s]); err != nil && !strings.Contains(err.Error(), "No such file") {
			p.t.Errorf("removing namespace %s: %v", p.ns[s], err)
		}
	}
}

func (p *Pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Addr returns the address of a side: 10.x.y.1 or .2, fd52:n::1 or ::2.
func (p *Pair) Addr(s Side, v6 bool) netip.Addr { return p.address(int(s)+1, v6) }

func (p *Pair) address(host int, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0xfd, 0x52, byte(p.n >> 8), byte(p.n), 15: byte(host)})
	}
	return netip.AddrFrom4([4]byte{10, byte(p.n >> 8), byte(p.n), byte(host)})
}

// AddAddr gives a side one more address of both families, with this last byte
// (3..254): larger than the first addresses of both sides.
func (p *Pair) AddAddr(s Side, host int) (v4, v6 netip.Addr) {
	p.t.Helper()
	v4, v6 = p.address(host, false), p.address(host, true)
	p.must(runIn(fmt.Sprintf("addr add %v/24 dev %s\naddr add %v/64 dev %s nodad\n", v4, p.dev[s], v6, p.dev[s]),
		"/sbin/ip", "-n", p.ns[s], "-batch", "-"))
	return v4, v6
}

// Namespace returns the name of a side's namespace below /run/netns.
func (p *Pair) Namespace(s Side) string { return p.ns[s] }

// Device returns the name of a side's network device.
func (p *Pair) Device(s Side) string { return p.dev[s] }

// In runs fn on a thread of its own inside the namespace of a side and waits
// for it. Sockets that fn creates itself (also by net.Listen and net.Dialer)
// stay in that namespace; goroutines that fn starts are NOT in it. A process
// that fn starts is in it. fn must not call t.Fatal.
func (p *Pair) In(s Side, fn func() error) error { return InNS(p.ns[s], fn) }

// InNS is In for any namespace below /run/netns.
func InNS(ns string, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("the function in the namespace ended its goroutine")
		defer func() { result <- err }()
		// Never unlocked: the thread has the wrong namespace for any other
		// goroutine and dies with this one.
		runtime.LockOSThread()
		fd, e := unix.Open(filepath.Join("/run/netns", ns), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if e != nil {
			err = fmt.Errorf("namespace %s: %w", ns, e)
			return
		}
		e = unix.Setns(fd, unix.CLONE_NEWNET)
		unix.Close(fd)
		if e != nil {
			err = fmt.Errorf("entering namespace %s: %w", ns, e)
			return
		}
		err = fn()
	}()
	return <-result
}

// Exec runs a program inside the namespace of a side and returns its output.
func (p *Pair) Exec(ctx context.Context, s Side, name string, args ...string) (string, error) {
	var out string
	err := p.In(s, func() (err error) {
		out, err = output(ctx, "", name, args...)
		return err
	})
	return out, err
}

// Start starts cmd inside the namespace of a side; its whole process is in it.
// The test binary itself (/proc/self/exe) is a good program to start: a
// process which runs a user-space node, and can be killed. Do not set
// Pdeathsig: the thread that starts it ends at once.
func (p *Pair) Start(s Side, cmd *exec.Cmd) error { return p.In(s, cmd.Start) }

// Free kills the kernel's RDS listeners of a side for good, so that user space
// can listen on port 16385 there. Kernel RDS sockets of that side must not be
// used afterwards.
func (p *Pair) Free(s Side) {
	p.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		out, err := p.ss(s, "-K", "-l")
		p.must(err)
		left, err := p.ss(s, "-l")
		p.must(err)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the kernel's listener in %s cannot be killed: %s / %s", p.ns[s], out, left)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ss runs ss for the TCP sockets on or towards the RDS port.
func (p *Pair) ss(s Side, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	args := append([]string{"-t", "-n", "-H"}, flags...)
	return p.Exec(ctx, s, "/sbin/ss", append(args, "( sport = :16385 or dport = :16385 )")...)
}

// KillTCP resets all RDS TCP connections of a side, kernel's and user space's,
// and returns how many. Listeners stay.
func (p *Pair) KillTCP(s Side) int {
	p.t.Helper()
	out, err := p.ss(s, "-K")
	p.must(err)
	return strings.Count(out, "\n")
}

// TCPConn is one RDS TCP connection as ss shows it.
type TCPConn struct {
	State       string // "ESTAB", "SYN-SENT", "FIN-WAIT-2", ...
	Recv, Send  int    // bytes not read, bytes not acknowledged
	Local, Peer netip.AddrPort
}

// Source returns the port of the dialling end; modulo 8 it is the path for
// everybody but 6.1.
func (c TCPConn) Source() uint16 {
	if c.Local.Port() == Port {
		return c.Peer.Port()
	}
	return c.Local.Port()
}

// TCPConns lists the RDS TCP connections of a side, without listeners.
func (p *Pair) TCPConns(s Side) ([]TCPConn, error) {
	out, err := p.ss(s)
	if err != nil {
		return nil, err
	}
	var conns []TCPConn
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 5 {
			return nil, fmt.Errorf("ss: cannot read %q", line)
		}
		c := TCPConn{State: f[0]}
		var errs [4]error
		c.Recv, errs[0] = strconv.Atoi(f[1])
		c.Send, errs[1] = strconv.Atoi(f[2])
		c.Local, errs[2] = ssAddr(f[3])
		c.Peer, errs[3] = ssAddr(f[4])
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("ss: %q: %w", line, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// ssAddr parses an address of ss. The kernel's sockets are IPv6 ones, those of
// Go IPv4: both come out alike.
func ssAddr(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), err
}

// Netem sets the emulated network for what a side sends, e.g.
// Netem(A, "delay", "100ms") or Netem(B, "loss", "100%"), until NetemDel.
func (p *Pair) Netem(s Side, args ...string) {
	p.t.Helper()
	p.must(run("/sbin/tc", append([]string{"-n", p.ns[s], "qdisc", "replace", "dev", p.dev[s], "root", "netem"}, args...)...))
}

// NetemDel removes what Netem set.
func (p *Pair) NetemDel(s Side) {
	p.t.Helper()
	p.must(run("/sbin/tc", "-n", p.ns[s], "qdisc", "del", "dev", p.dev[s], "root"))
}

// Link switches the device of a side on or off. IPv6 addresses vanish with it.
func (p *Pair) Link(s Side, up bool) {
	p.t.Helper()
	state := "down"
	if up {
		state = "up"
	}
	p.must(run("/sbin/ip", "-n", p.ns[s], "link", "set", p.dev[s], state))
}

// Sysctl writes a file below /proc/sys, e.g. "net/rds/tcp/rds_tcp_rcvbuf", as
// the namespace of a side sees it.
func (p *Pair) Sysctl(s Side, name, value string) error {
	return p.In(s, func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644) })
}

// Capture writes what passes a side's device to <name>.pcap in the output of
// the run, until the test ends.
func (p *Pair) Capture(s Side, name string) {
	p.t.Helper()
	dir := filepath.Join(os.Getenv("RDS_OUT"), "pcap")
	p.must(os.MkdirAll(dir, 0o755))
	// -Z root: there is no user to become. -U and immediate mode: each packet
	// at once, or the last second before the end would be missing.
	cmd := exec.Command("/sbin/tcpdump", "-Z", "root", "-U", "--immediate-mode", "-n", "-s", "0", "-i", p.dev[s], "-w", filepath.Join(dir, name+".pcap"))
	stderr := &notice{want: "listening on", seen: make(chan struct{})}
	cmd.Stderr = stderr
	p.must(p.Start(s, cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(Patience):
			cmd.Process.Kill()
			<-ended
		}
	})
	select {
	case <-stderr.seen:
	case err := <-ended:
		ended <- err
		p.t.Fatalf("tcpdump ended at once: %v", err)
	case <-time.After(Patience):
		p.t.Fatal("tcpdump does not listen")
	}
}

// notice is a writer that closes a channel when it has seen a text.
type notice struct {
	want string
	seen chan struct{}
	buf  bytes.Buffer
	done bool
}

func (n *notice) Write(b []byte) (int, error) {
	if !n.done {
		n.buf.Write(b)
		if strings.Contains(n.buf.String(), n.want) {
			n.done = true
			close(n.seen)
		}
	}
	return len(b), nil
}

// ListenTCP opens a plain TCP listener in the namespace of a side. Call Free
// first to use port 16385.
func (p *Pair) ListenTCP(s Side, at netip.AddrPort) (*net.TCPListener, error) {
	var lc net.ListenConfig
	// Go listens with MPTCP by default; RDS does not.
	lc.SetMultipathTCP(false)
	var l net.Listener
	err := p.In(s, func() (err error) {
		l, err = lc.Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// DialTCP connects from the namespace of a side. A local port of zero lets the
// kernel choose; another one can be reused at once.
func (p *Pair) DialTCP(ctx context.Context, s Side, from, to netip.AddrPort) (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Control: reuseAddr}
	d.SetMultipathTCP(false)
	var c net.Conn
	err := p.In(s, func() (err error) {
		c, err = d.DialContext(ctx, "tcp", to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// reuseAddr lets a dialling socket take a port whose last connection is in
// TIME_WAIT.
func reuseAddr(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); e != nil {
		return e
	}
	return err
}

// DialPath connects a side to the RDS port of the other, from a fresh port
// that is congruent to the path's index modulo 8.
func (p *Pair) DialPath(ctx context.Context, s Side, path int, v6 bool) (*net.TCPConn, error) {
	from := netip.AddrPortFrom(p.Addr(s, v6), uint16(40000+8*(p.port[s].Add(1)%2000))+uint16(path))
	return p.DialTCP(ctx, s, from, netip.AddrPortFrom(p.Addr(s.Other(), v6), Port))
}

// run runs a program with a time limit; the error has its output.
func run(name string, args ...string) error { return runIn("", name, args...) }

func runIn(stdin, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, err := output(ctx, stdin, name, args...)
	return err
}

func output(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
