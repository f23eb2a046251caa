package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connect makes a TCP connection from local to remote, or gives up when ctx ends.
//
// It does not use net.Dialer, because that closes the socket when its time is up, even if
// the connection came into being at that very moment (a machine that stood still for a while is enough). The
// peer may then have sent messages already, our TCP acknowledged them, and a kernel
// has forgotten them. Here the last step of giving up is a shutdown, which for a socket still in
// SYN_SENT is the end of it, and for one that got connected only a half-close: then it is a stream, and
// read to its end like any other.
func (n *OSNetwork) connect(ctx context.Context, local, remote netip.AddrPort) (*net.TCPConn, error) {
	family := unix.AF_INET
	if !local.Addr().Is4() {
		family = unix.AF_INET6
	}
	// IPPROTO_TCP, not the default of newer Go: that is Multipath TCP.
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "tcp") // in the poller, as it does not block
	defer f.Close()
	if err := n.start(fd, local, remote); err != nil {
		return nil, err
	}
	if err := awaitConnect(ctx, f); err != nil {
		return nil, err
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// start sets the socket's options and sends the SYN.
func (n *OSNetwork) start(fd int, local, remote netip.AddrPort) error {
	for _, o := range []struct {
		name              string
		level, opt, value int
	}{
		// The port may be in TIME_WAIT, or in use towards other peers.
		{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, n.userTimeout()},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlivePeriod / time.Second)},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlivePeriod / time.Second)},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return os.NewSyscallError("setsockopt "+o.name, err)
		}
	}
	if err := unix.Bind(fd, sockaddr(local)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	err := unix.Connect(fd, sockaddr(remote))
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("connect", err)
	}
	return nil
}

// awaitConnect waits until the socket is connected, refused, or ctx ends.
func awaitConnect(ctx context.Context, f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = rc.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); n == 0 && err == nil {
			return false // the poller wakes us
		}
		result = connected(int(fd))
		return true
	})
	if err == nil {
		return result
	}
	// Time is up. From here on the socket is connected or will never be.
	err = ctx.Err()
	rc.Control(func(fd uintptr) {
		if connected(int(fd)) == nil {
			err = nil
			return
		}
		unix.Shutdown(int(fd), unix.SHUT_WR)
		if info, ierr := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); ierr == nil &&
			info.State != tcpClose && info.State != tcpSynSent {
			err = nil
		}
	})
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return nil
}

// States of a socket in TCP_INFO.
const (
	tcpSynSent = 2
	tcpClose   = 7
)

// connected says why the socket is not connected.
func connected(fd int) error {
	if errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
		return os.NewSyscallError("getsockopt", err)
	} else if errno != 0 {
		return os.NewSyscallError("connect", unix.Errno(errno))
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return os.NewSyscallError("getpeername", err)
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if z := a.Addr().Zone(); z != "" {
		if i, err := net.InterfaceByName(z); err == nil {
			sa.ZoneId = uint32(i.Index)
		}
	}
	return sa
}
