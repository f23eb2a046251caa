//go:build linux

package guest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Information records, spec section 16. The IPv6 forms describe IPv4 objects
// too, with v4-mapped addresses.
const (
	RDS_INFO_COUNTERS         = 10000
	RDS_INFO_CONNECTIONS      = 10001
	RDS6_INFO_CONNECTIONS     = 10011
	RDS6_INFO_SEND_MESSAGES   = 10012
	RDS6_INFO_RETRANS_MESSAGE = 10013
	RDS6_INFO_RECV_MESSAGES   = 10014
)

// Info returns the records of one RDS_INFO option, as seen from the namespace
// of the socket.
func (s *Socket) Info(option int) ([][]byte, error) {
	var records [][]byte
	err := s.with(fmt.Sprintf("getsockopt RDS_INFO %d", option), func(fd int) error {
		return InNS(s.ns, func() (err error) {
			records, err = info(fd, option)
			return err
		})
	})
	return records, err
}

// info is raw, since success returns the size of a record and not zero.
func info(fd, option int) ([][]byte, error) {
	buf := make([]byte, 16<<10)
	for range 10 {
		n := uint32(len(buf))
		size, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), SOL_RDS, uintptr(option),
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&n)), 0)
		switch {
		case e == unix.ENOSPC:
			// n is what it needed now; there may be more the next time.
			buf = make([]byte, int(n)+16<<10)
			continue
		case e != 0:
			return nil, e
		case size == 0:
			return nil, nil
		}
		var records [][]byte
		for b := buf[:n]; len(b) >= int(size); b = b[size:] {
			records = append(records, b[:size:size])
		}
		return records, nil
	}
	return nil, unix.ENOSPC
}

// Counters returns the RDS counters by name. They are of the whole machine,
// not of a namespace: other pairs count too.
func (s *Socket) Counters() (map[string]uint64, error) {
	records, err := s.Info(RDS_INFO_COUNTERS)
	if err != nil {
		return nil, err
	}
	m := map[string]uint64{}
	for _, r := range records {
		if len(r) < 40 {
			return nil, fmt.Errorf("counter record of %d bytes", len(r))
		}
		name, _, _ := strings.Cut(string(r[:32]), "\x00")
		m[name] = binary.NativeEndian.Uint64(r[32:])
	}
	return m, nil
}

// ConnInfo describes path 0 of one connection of the kernel.
type ConnInfo struct {
	NextTx, NextRx uint64
	Local, Peer    netip.Addr
	Transport      string // "tcp", "loopback"
	Flags          uint8  // 1 sending, 2 connecting, 4 connected
}

// Connections lists the connections of the socket's namespace.
func (s *Socket) Connections() ([]ConnInfo, error) {
	records, err := s.Info(RDS6_INFO_CONNECTIONS)
	if err != nil {
		return nil, err
	}
	var conns []ConnInfo
	for _, r := range records {
		if len(r) < 65 {
			return nil, fmt.Errorf("connection record of %d bytes", len(r))
		}
		transport, _, _ := strings.Cut(string(r[48:64]), "\x00")
		conns = append(conns, ConnInfo{
			NextTx: binary.NativeEndian.Uint64(r), NextRx: binary.NativeEndian.Uint64(r[8:]),
			Local: address16(r[16:32]), Peer: address16(r[32:48]), Transport: transport, Flags: r[64],
		})
	}
	return conns, nil
}

// MessageInfo is one message in a queue of the kernel.
type MessageInfo struct {
	Seq         uint64
	Len         uint32
	Local, Peer netip.AddrPort
}

// SendQueue lists messages not yet written to TCP, of all sockets.
func (s *Socket) SendQueue() ([]MessageInfo, error) { return s.messages(RDS6_INFO_SEND_MESSAGES) }

// RetransQueue lists messages written to TCP and not acknowledged.
func (s *Socket) RetransQueue() ([]MessageInfo, error) { return s.messages(RDS6_INFO_RETRANS_MESSAGE) }

// RecvQueue lists messages that wait in receive queues.
func (s *Socket) RecvQueue() ([]MessageInfo, error) { return s.messages(RDS6_INFO_RECV_MESSAGES) }

func (s *Socket) messages(option int) ([]MessageInfo, error) {
	records, err := s.Info(option)
	if err != nil {
		return nil, err
	}
	var out []MessageInfo
	for _, r := range records {
		if len(r) < 48 {
			return nil, fmt.Errorf("message record of %d bytes", len(r))
		}
		out = append(out, MessageInfo{
			Seq: binary.NativeEndian.Uint64(r), Len: binary.NativeEndian.Uint32(r[8:]),
			Local: netip.AddrPortFrom(address16(r[12:28]), binary.BigEndian.Uint16(r[44:])),
			Peer:  netip.AddrPortFrom(address16(r[28:44]), binary.BigEndian.Uint16(r[46:])),
		})
	}
	return out, nil
}

func address16(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)).Unmap() }
