package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// seqpacketLink is an AF_UNIX socket with message boundaries: the nearest thing
// to RDS that a kernel has within one host.
type seqpacketLink struct {
	conn    *net.UnixConn
	out, in []byte
}

// newSeqpacket asks for a socket buffer that holds a message and more. What a
// kernel grants is bounded by net.core.wmem_max, and so is the largest message.
func newSeqpacket(load Load, c *net.UnixConn) (*seqpacketLink, error) {
	want := max(4*load.Size, 256<<10)
	if err := errors.Join(c.SetWriteBuffer(want), c.SetReadBuffer(want)); err != nil {
		return nil, err
	}
	return &seqpacketLink{conn: c, out: payload(load.Size), in: payload(load.Size)}, nil
}

func (l *seqpacketLink) Send() error {
	_, err := l.conn.Write(l.out)
	if errors.Is(err, syscall.EMSGSIZE) {
		limit, _ := os.ReadFile("/proc/sys/net/core/wmem_max")
		return &SkipError{fmt.Sprintf("AF_UNIX messages are limited by net.core.wmem_max = %s", strings.TrimSpace(string(limit)))}
	}
	return err
}

func (l *seqpacketLink) Recv() (int, int, error) {
	n, err := l.conn.Read(l.in)
	return 1, n, err
}

type seqpacketListener struct {
	*net.UnixListener
	dir  string
	load Load
}

func (l seqpacketListener) Endpoint() string { return l.Addr().String() }

func (l seqpacketListener) Accept() (Link, error) {
	c, err := l.AcceptUnix()
	// The name is not needed any more, and nobody else removes it.
	os.RemoveAll(l.dir)
	if err != nil {
		return nil, err
	}
	return newSeqpacket(l.load, c)
}

func listenSeqpacket(ctx context.Context, load Load, _ netip.Addr) (Listener, error) {
	dir, err := os.MkdirTemp("", "rdsbench")
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unixpacket"})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	return seqpacketListener{l, dir, load}, nil
}

func dialSeqpacket(ctx context.Context, load Load, _ netip.Addr, endpoint string) (Link, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unixpacket", endpoint)
	if err != nil {
		return nil, err
	}
	return newSeqpacket(load, c.(*net.UnixConn))
}
