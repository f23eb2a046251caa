//go:build linux

package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Constants of AF_RDS that golang.org/x/sys does not have.
const (
	SOL_RDS              = 276
	RDS_CANCEL_SENT_TO   = 1
	RDS_CONG_MONITOR     = 6
	SO_RDS_TRANSPORT     = 8
	RDS_CMSG_CONG_UPDATE = 5
)

// MaxMessage is the largest message a kernel sends.
const MaxMessage = 1 << 20

// Socket is a kernel AF_RDS socket. Its methods may be called from several
// goroutines; every wait has a limit. Errors wrap the errno.
type Socket struct {
	// mu lets calls run side by side and Close wait for them, so that no call
	// can hit a descriptor which was given to somebody else.
	mu     sync.RWMutex
	fd     int
	closed bool
	ns     string

	recvMu sync.Mutex
	buf    []byte
}

// Message is what one recvmsg returned.
type Message struct {
	Data    []byte
	From    netip.AddrPort // invalid for a control-only message
	Control []unix.SocketControlMessage
	Flags   int // MSG_TRUNC, MSG_CTRUNC
}

// OpenSocket makes an unbound RDS socket in a namespace.
func OpenSocket(ns string) (*Socket, error) {
	s := &Socket{ns: ns}
	err := InNS(ns, func() (err error) {
		s.fd, err = unix.Socket(unix.AF_RDS, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket(AF_RDS) in %s: %w", ns, err)
	}
	return s, nil
}

// KernelSocket makes a kernel socket bound to a side's IPv4 address and this
// port (0: any) and closes it at the end of the test.
func (p *Pair) KernelSocket(t testing.TB, s Side, port uint16) *Socket {
	t.Helper()
	return p.KernelSocketAt(t, s, netip.AddrPortFrom(p.Addr(s, false), port))
}

// KernelSocket6 is KernelSocket with the IPv6 address.
func (p *Pair) KernelSocket6(t testing.TB, s Side, port uint16) *Socket {
	t.Helper()
	return p.KernelSocketAt(t, s, netip.AddrPortFrom(p.Addr(s, true), port))
}

// KernelSocketAt makes a kernel socket bound to any address of a side.
func (p *Pair) KernelSocketAt(t testing.TB, s Side, at netip.AddrPort) *Socket {
	t.Helper()
	sock, err := OpenSocket(p.ns[s])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	if err := sock.Bind(at); err != nil {
		t.Fatal(err)
	}
	return sock
}

// with runs fn with the descriptor, which stays valid meanwhile.
func (s *Socket) with(call string, fn func(fd int) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return fmt.Errorf("%s: %w", call, os.ErrClosed)
	}
	if err := fn(s.fd); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}

// Close closes the socket after the calls that are still running. The kernel
// cancels what it has not sent.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return os.ErrClosed
	}
	s.closed = true
	return unix.Close(s.fd)
}

// Bind binds the socket.
func (s *Socket) Bind(at netip.AddrPort) error {
	return s.with("bind "+at.String(), func(fd int) error { return unix.Bind(fd, sockaddr(at)) })
}

// Connect sets the default destination.
func (s *Socket) Connect(to netip.AddrPort) error {
	return s.with("connect "+to.String(), func(fd int) error { return unix.Connect(fd, sockaddr(to)) })
}

// Addr returns the bound address, invalid if there is none.
func (s *Socket) Addr() netip.AddrPort {
	var at netip.AddrPort
	// An unbound socket has an address of family 0, which x/sys refuses.
	_ = s.with("getsockname", func(fd int) error {
		sa, err := unix.Getsockname(fd)
		at = addrPort(sa)
		return err
	})
	return at
}

// SendMsg is one sendmsg. flags gets MSG_DONTWAIT; anything else but
// MSG_ZEROCOPY makes the kernel answer EOPNOTSUPP, MSG_NOSIGNAL included. An
// invalid to means the connected destination.
func (s *Socket) SendMsg(p, control []byte, to netip.AddrPort, flags int) error {
	return s.with("sendmsg to "+to.String(), func(fd int) error {
		return ignoreEINTR(func() error {
			n, err := unix.SendmsgN(fd, p, control, sockaddr(to), flags|unix.MSG_DONTWAIT)
			if err == nil && n != len(p) {
				err = fmt.Errorf("%d of %d bytes", n, len(p))
			}
			return err
		})
	})
}

// TrySend queues one message or fails at once: EAGAIN when the send queue is
// full, ENOBUFS when the destination port is congested.
func (s *Socket) TrySend(p []byte, to netip.AddrPort) error { return s.SendMsg(p, nil, to, 0) }

// Send queues one message, waiting for space and for the end of congestion.
func (s *Socket) Send(p []byte, to netip.AddrPort, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		err := s.TrySend(p, to)
		var events int16
		switch {
		case errors.Is(err, unix.EAGAIN):
			events = unix.POLLOUT
		case errors.Is(err, unix.ENOBUFS):
			events = unix.POLLIN
		default:
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("%w after %v: %w", os.ErrDeadlineExceeded, limit, err)
		}
		// Short: POLLIN may be set for another reason, or not at all if
		// another reader of this socket consumed the notification.
		ev, perr := s.Poll(events, min(left, 50*time.Millisecond))
		if perr != nil {
			return perr
		}
		if ev != 0 && events == unix.POLLIN {
			time.Sleep(time.Millisecond)
		}
	}
}

// SendBlocking is one blocking sendmsg, which obeys SO_SNDTIMEO only in part:
// the wait for a congested port, and on 6.1 the wait for the handshake, last
// for ever. If the call has not returned within limit, done is false and the
// thread stays in the kernel until the process ends.
func (s *Socket) SendBlocking(p []byte, to netip.AddrPort, limit time.Duration) (done bool, err error) {
	return s.blocking("blocking sendmsg to "+to.String(), limit, func(fd int) error {
		return unix.Sendto(fd, p, 0, sockaddr(to))
	})
}

// RecvBlocking is one blocking recvmsg, which ends by SO_RCVTIMEO.
func (s *Socket) RecvBlocking(limit time.Duration) (m Message, done bool, err error) {
	got := make(chan Message, 1)
	done, err = s.blocking("blocking recvmsg", limit, func(fd int) error {
		m, err := recvmsg(fd, make([]byte, MaxMessage), 0)
		got <- m
		return err
	})
	if done {
		m = <-got
	}
	return m, done, err
}

// blocking runs a call on a duplicate, so that Close need not wait for it.
func (s *Socket) blocking(call string, limit time.Duration, fn func(fd int) error) (bool, error) {
	var dup int
	err := s.with(call, func(fd int) (err error) {
		dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return true, err
	}
	result := make(chan error, 1)
	go func() {
		result <- fn(dup)
		unix.Close(dup)
	}()
	select {
	case err := <-result:
		if err != nil {
			err = fmt.Errorf("%s: %w", call, err)
		}
		return true, err
	case <-time.After(limit):
		return false, fmt.Errorf("%s: still waiting after %v", call, limit)
	}
}

// TryRecv is one nonblocking recvmsg with control space; EAGAIN if there is
// nothing. Messages longer than 1 MiB come with MSG_TRUNC.
func (s *Socket) TryRecv() (Message, error) { return s.RecvMsg(0) }

// RecvMsg is TryRecv with flags, such as MSG_PEEK.
func (s *Socket) RecvMsg(flags int) (Message, error) {
	s.recvMu.Lock()
	defer s.recvMu.Unlock()
	if s.buf == nil {
		s.buf = make([]byte, MaxMessage)
	}
	var m Message
	err := s.with("recvmsg", func(fd int) (err error) {
		m, err = recvmsg(fd, s.buf, flags|unix.MSG_DONTWAIT)
		return err
	})
	m.Data = append([]byte{}, m.Data...)
	return m, err
}

// Recv waits for the next message, or control-only message.
func (s *Socket) Recv(limit time.Duration) (Message, error) {
	deadline := time.Now().Add(limit)
	for {
		m, err := s.TryRecv()
		if !errors.Is(err, unix.EAGAIN) {
			return m, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return m, fmt.Errorf("recvmsg: %w after %v", os.ErrDeadlineExceeded, limit)
		}
		// POLLIN without a message is normal: a fresh socket, a new map.
		if _, err := s.Poll(unix.POLLIN, min(left, 200*time.Millisecond)); err != nil {
			return m, err
		}
	}
}

func recvmsg(fd int, buf []byte, flags int) (Message, error) {
	var m Message
	oob := make([]byte, 512)
	err := ignoreEINTR(func() error {
		n, oobn, rflags, from, err := unix.Recvmsg(fd, buf, oob, flags)
		if err != nil {
			return err
		}
		m = Message{Data: buf[:min(n, len(buf))], From: addrPort(from), Flags: rflags}
		if oobn > 0 {
			m.Control, err = unix.ParseSocketControlMessage(oob[:oobn])
		}
		return err
	})
	return m, err
}

// Poll waits for events and returns those that are set, 0 after the limit.
func (s *Socket) Poll(events int16, limit time.Duration) (int16, error) {
	var got int16
	deadline := time.Now().Add(limit)
	err := s.with("poll", func(fd int) error {
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
			// Rounded up: a wait of 0.9 ms must not become a busy loop.
			ms := (max(0, time.Until(deadline)) + time.Millisecond - 1) / time.Millisecond
			_, err := unix.Poll(fds, int(ms))
			if err == unix.EINTR {
				continue
			}
			got = fds[0].Revents
			return err
		}
	})
	return got, err
}

// SetInt sets an int option; level and name as in setsockopt.
func (s *Socket) SetInt(level, name, value int) error {
	return s.with(fmt.Sprintf("setsockopt(%d, %d, %d)", level, name, value), func(fd int) error {
		return unix.SetsockoptInt(fd, level, name, value)
	})
}

// GetInt reads an int option.
func (s *Socket) GetInt(level, name int) (int, error) {
	var v int
	err := s.with(fmt.Sprintf("getsockopt(%d, %d)", level, name), func(fd int) (err error) {
		v, err = unix.GetsockoptInt(fd, level, name)
		return err
	})
	return v, err
}

// SetSendBuffer makes n the effective send buffer, whatever the sysctl limit.
func (s *Socket) SetSendBuffer(n int) error { return s.SetInt(unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, n) }

// SetRecvBuffer makes n the effective receive buffer.
func (s *Socket) SetRecvBuffer(n int) error { return s.SetInt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) }

// SetSendTimeout sets SO_SNDTIMEO, for SendBlocking.
func (s *Socket) SetSendTimeout(d time.Duration) error { return s.setTimeout(unix.SO_SNDTIMEO, d) }

// SetRecvTimeout sets SO_RCVTIMEO, for RecvBlocking.
func (s *Socket) SetRecvTimeout(d time.Duration) error { return s.setTimeout(unix.SO_RCVTIMEO, d) }

func (s *Socket) setTimeout(name int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return s.with("setsockopt timeout", func(fd int) error {
		return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, name, &tv)
	})
}

// SetCongMonitor switches RDS_CONG_MONITOR.
func (s *Socket) SetCongMonitor(on bool) error {
	v := 0
	if on {
		v = 1
	}
	return s.SetInt(SOL_RDS, RDS_CONG_MONITOR, v)
}

// Cancel removes this socket's messages to exactly this address and port.
func (s *Socket) Cancel(to netip.AddrPort) error {
	return s.with("RDS_CANCEL_SENT_TO "+to.String(), func(fd int) error {
		return unix.SetsockoptString(fd, SOL_RDS, RDS_CANCEL_SENT_TO, string(rawSockaddr(to)))
	})
}

// ignoreEINTR repeats a call that a signal of the Go runtime interrupted.
func ignoreEINTR(fn func() error) error {
	for {
		if err := fn(); err != unix.EINTR {
			return err
		}
	}
}

// sockaddr returns nil for an invalid address: no destination.
func sockaddr(a netip.AddrPort) unix.Sockaddr {
	switch ip := a.Addr(); {
	case !ip.IsValid():
		return nil
	case ip.Is4():
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	default:
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
	}
}

// rawSockaddr is sockaddr_in or sockaddr_in6 in memory order.
func rawSockaddr(a netip.AddrPort) []byte {
	port := []byte{byte(a.Port() >> 8), byte(a.Port())}
	if ip := a.Addr(); ip.Is4() {
		b := append([]byte{unix.AF_INET, 0}, port...)
		b = append(b, ip.AsSlice()...)
		return append(b, make([]byte, 8)...)
	}
	b := append([]byte{unix.AF_INET6, 0}, port...)
	b = append(b, 0, 0, 0, 0)
	b = append(b, a.Addr().AsSlice()...)
	return append(b, 0, 0, 0, 0)
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
