package tcp

import (
	"io"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds/internal/transport"
)

// Read waits for data and reads what is there.
func (s *osStream) Read(b transport.ReadBuffers) (int, error) {
	s.readTo, s.readN, s.readErr = b, 0, nil
	err := s.rc.Read(s.readFn)
	s.readTo = nil
	if err == nil {
		err = s.readErr
	}
	if err == nil && s.readN == 0 {
		err = io.EOF
	}
	return s.readN, err
}

func (s *osStream) tryRead(fd uintptr) bool {
	for {
		n := iovecs(s.readVec[:], s.readTo.Buffers())
		got, _, errno := unix.Syscall(unix.SYS_READV, fd, uintptr(unsafe.Pointer(&s.readVec[0])), uintptr(n))
		clear(s.readVec[:])
		switch errno {
		case 0:
			s.readN = int(got)
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			s.readTo.Idle()
			return false
		}
		s.readErr = s.failed("read", "readv", errno)
		return true
	}
}

func (s *osStream) failed(op, call string, errno unix.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: net.TCPAddrFromAddrPort(s.local), Addr: net.TCPAddrFromAddrPort(s.remote),
		Err: os.NewSyscallError(call, errno)}
}

// TryWrite takes what fits.
func (s *osStream) TryWrite(bufs [][]byte) (int, error) {
	s.writeB, s.writeN, s.writeErr = bufs, 0, nil
	err := s.rc.Write(s.writeFn)
	s.writeB = nil
	if err == nil {
		err = s.writeErr
	}
	return s.writeN, err
}

func (s *osStream) tryWrite(fd uintptr) bool {
	n := iovecs(s.writeVec[:], s.writeB)
	for n > 0 {
		put, _, errno := unix.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&s.writeVec[0])), uintptr(n))
		switch errno {
		case 0:
			s.writeN = int(put)
		case unix.EINTR:
			continue
		case unix.EAGAIN:
		default:
			s.writeErr = s.failed("write", "writev", errno)
		}
		break
	}
	clear(s.writeVec[:n])
	return true
}

// WaitWrite waits until the socket takes more. The poller forgets readiness that it saw before the call, so
// the socket itself is asked first.
func (s *osStream) WaitWrite() error {
	return s.rc.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		return err != nil || n > 0
	})
}
