package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

var platformKinds = []Kind{{Name: "kernel", Listen: listenKernel, Dial: dialKernel}}

// kernelPort is another RDS port for each process: what an earlier one has left
// in the kernel must not reach this one.
func kernelPort() uint16 { return uint16(4100 + os.Getpid()%50000) }

// kernelLink is an AF_RDS socket with blocking calls: the shortest way from a Go
// program to the kernel's RDS.
type kernelLink struct {
	fd      int
	at      netip.AddrPort
	to      unix.Sockaddr
	out, in []byte
}

func openKernel(load Load, at netip.Addr) (*kernelLink, error) {
	if !at.Is4() {
		return nil, fmt.Errorf("AF_RDS at %v: only IPv4 is measured", at)
	}
	fd, err := unix.Socket(unix.AF_RDS, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, &SkipError{"this kernel has no AF_RDS"}
	}
	if err != nil {
		return nil, fmt.Errorf("socket(AF_RDS): %w", err)
	}
	l := &kernelLink{fd: fd, at: netip.AddrPortFrom(at, kernelPort()), out: payload(load.Size), in: payload(load.Size)}
	// The FORCE variants are not bounded by net.core.wmem_max and rmem_max. RDS
	// uses half of what is stored, which is twice what is asked for (RDS spec
	// section 4).
	for _, opt := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, load.Buffer); err != nil {
			return nil, fmt.Errorf("setsockopt(AF_RDS, %d): %w", opt, err)
		}
	}
	if err := unix.Bind(fd, sockaddr(l.at)); err != nil {
		return nil, fmt.Errorf("bind(AF_RDS, %v): %w", l.at, err)
	}
	return l, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func (l *kernelLink) Endpoint() string { return l.at.String() }

func (l *kernelLink) Accept() (Link, error) {
	_, _, err := l.Recv()
	return l, err
}

func (l *kernelLink) Send() error {
	for {
		if err := unix.Sendto(l.fd, l.out, 0, l.to); err != unix.EINTR {
			return err
		}
	}
}

// Recv also learns where to send: the first message is the greeting of the end
// that dialled.
func (l *kernelLink) Recv() (int, int, error) {
	for {
		n, from, err := unix.Recvfrom(l.fd, l.in, 0)
		if err == unix.EINTR {
			continue
		}
		if err == nil && l.to == nil {
			l.to = from
		}
		return 1, n, err
	}
}

func listenKernel(_ context.Context, load Load, at netip.Addr) (Listener, error) {
	return openKernel(load, at)
}

func dialKernel(_ context.Context, load Load, at netip.Addr, endpoint string) (Link, error) {
	to, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := openKernel(load, at)
	if err != nil {
		return nil, err
	}
	l.to = sockaddr(to)
	return l, unix.Sendto(l.fd, nil, 0, l.to)
}
