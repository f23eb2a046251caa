package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// OSNetwork is the operating system's TCP with the settings of the kernel's RDS/TCP (RDS spec section 9):
// no delay, keepalive after 5 s idle every 5 s, 5 times; and what the kernel lacks: a
// user timeout for unacknowledged data (defect D23). Multipath TCP, Go's default, is off: its
// connections have no meaningful SIOCOUTQ.
type OSNetwork struct {
	// UserTimeout is TCP_USER_TIMEOUT; 0 means 30 s.
	UserTimeout time.Duration
}

const (
	keepAlivePeriod = 5 * time.Second
	keepAliveCount  = 5
	// portTries bounds the groups of source ports tried in one Dial.
	portTries = 64
)

func (n *OSNetwork) userTimeout() int {
	if n.UserTimeout == 0 {
		return 30_000
	}
	return max(int(n.UserTimeout.Milliseconds()), 1)
}

func (n *OSNetwork) keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: keepAlivePeriod, Interval: keepAlivePeriod, Count: keepAliveCount}
}

func tcpNetwork(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "tcp4"
	}
	return "tcp6"
}

// Listen accepts streams on one address.
func (n *OSNetwork) Listen(local netip.AddrPort) (transport.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: n.keepAlive()}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), tcpNetwork(local.Addr()), local.String())
	if err != nil {
		return nil, fmt.Errorf("rds/tcp: listen on %v: %w", local, err)
	}
	return &osListener{n: n, l: l.(*net.TCPListener)}, nil
}

type osListener struct {
	n *OSNetwork
	l *net.TCPListener
}

func (l *osListener) Accept() (transport.Stream, error) {
	c, err := l.l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	s, err := newStream(c, c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort())
	if err == nil {
		err = s.control(func(fd int) error {
			return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, l.n.userTimeout())
		})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

func (l *osListener) Addr() netip.AddrPort {
	a := l.l.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func (l *osListener) Close() error { return l.l.Close() }

// portRange is the range of local ports from which the system chooses, rounded to groups of eight.
var portRange = sync.OnceValues(func() (base, groups int) {
	low, high := 32768, 60999
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if f := strings.Fields(string(b)); len(f) == 2 {
			if l, err := strconv.Atoi(f[0]); err == nil {
				low = l
			}
			if h, err := strconv.Atoi(f[1]); err == nil {
				high = h
			}
		}
	}
	base = (low + wire.MaxPaths - 1) / wire.MaxPaths * wire.MaxPaths
	return base, max((high+1-base)/wire.MaxPaths, 1)
})

// Dial connects from a source port of the group base + 8·attempt, congruent to path modulo 8. Groups
// whose port is taken are skipped. Since every process begins with the same group, the SYN of
// a restarted one meets the old connection of its predecessor at the peer, and ends it.
func (n *OSNetwork) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (transport.Stream, error) {
	base, groups := portRange()
	var last error
	for try := range portTries {
		port := base + (attempt+try)%groups*wire.MaxPaths + path
		c, err := n.connect(ctx, netip.AddrPortFrom(local.Unmap(), uint16(port)), netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port()))
		if err == nil {
			s, err := newStream(c, netip.AddrPortFrom(local, uint16(port)), remote)
			if err != nil {
				c.Close()
				return nil, err
			}
			return s, nil
		}
		last = err
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) || ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("rds/tcp: connect from %v to %v: %w", local, remote, last)
}

// osStream is a TCP socket.
type osStream struct {
	c             *net.TCPConn
	rc            syscall.RawConn
	local, remote netip.AddrPort

	// One read and one write at a time: what they are about stands here, so that the functions
	// given to the poller need no closure of their own.
	readFn  func(fd uintptr) bool
	readTo  transport.ReadBuffers
	readN   int
	readErr error
	readVec [2]unix.Iovec

	writeFn  func(fd uintptr) bool
	writeB   [][]byte
	writeN   int
	writeErr error
	writeVec [writeVecs]unix.Iovec
}

// newStream wraps a connection. Its addresses are given, since a socket that was reset
// meanwhile does not know them any more, and may have data to read all the same.
func newStream(c *net.TCPConn, local, remote netip.AddrPort) (*osStream, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &osStream{c: c, rc: rc,
		local:  netip.AddrPortFrom(local.Addr().Unmap(), local.Port()),
		remote: netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())}
	s.readFn, s.writeFn = s.tryRead, s.tryWrite
	return s, nil
}

func (s *osStream) control(f func(fd int) error) error {
	var err error
	if cerr := s.rc.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (s *osStream) LocalAddr() netip.AddrPort  { return s.local }
func (s *osStream) RemoteAddr() netip.AddrPort { return s.remote }
func (s *osStream) CloseWrite() error          { return s.c.CloseWrite() }
func (s *osStream) Close() error               { return s.c.Close() }

func (s *osStream) Reset() error {
	return errors.Join(s.c.SetLinger(0), s.c.Close())
}

// Unacked is SIOCOUTQ: bytes written and not acknowledged by the peer's TCP.
func (s *osStream) Unacked() (n int, err error) {
	err = s.control(func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		return err
	})
	return n, err
}

// iovecs fills v with the pieces of b that are not empty.
func iovecs(v []unix.Iovec, b [][]byte) int {
	n := 0
	for _, p := range b {
		if len(p) == 0 {
			continue
		}
		if n == len(v) {
			break
		}
		v[n].Base = &p[0]
		v[n].SetLen(len(p))
		n++
	}
	return n
}
