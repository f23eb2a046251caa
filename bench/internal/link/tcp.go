package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// ChunkSize is the size of the writes and reads of a raw TCP stream, the yardstick
// of the stream ratio.
const ChunkSize = 64 << 10

// prefixSize is the length prefix of a framed message.
const prefixSize = 4

type tcpListener struct {
	net.Listener
	wrap func(net.Conn) Link
}

func (l tcpListener) Endpoint() string { return l.Addr().String() }

func (l tcpListener) Accept() (Link, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(c), nil
}

func listenTCP(ctx context.Context, at netip.Addr, wrap func(net.Conn) Link) (Listener, error) {
	var lc net.ListenConfig
	// Go makes MPTCP sockets otherwise, which are slower.
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	return tcpListener{l, wrap}, nil
}

func dialTCP(ctx context.Context, at netip.Addr, endpoint string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0))}
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, "tcp", endpoint)
}

// rawLink is TCP without messages: chunks one way, exactly Size bytes each way
// when both sides take turns.
type rawLink struct {
	conn  net.Conn
	out   []byte
	in    []byte
	exact bool
}

func newRaw(load Load) func(net.Conn) Link {
	n := ChunkSize
	if load.RoundTrip {
		n = load.Size
	}
	return func(c net.Conn) Link {
		return &rawLink{conn: c, out: payload(n), in: payload(n), exact: load.RoundTrip}
	}
}

func (l *rawLink) Send() error {
	_, err := l.conn.Write(l.out)
	return err
}

func (l *rawLink) Recv() (int, int, error) {
	if l.exact {
		n, err := io.ReadFull(l.conn, l.in)
		return 1, n, err
	}
	n, err := l.conn.Read(l.in)
	return 0, n, err
}

func listenRaw(ctx context.Context, load Load, at netip.Addr) (Listener, error) {
	return listenTCP(ctx, at, newRaw(load))
}

func dialRaw(ctx context.Context, load Load, at netip.Addr, endpoint string) (Link, error) {
	c, err := dialTCP(ctx, at, endpoint)
	if err != nil {
		return nil, err
	}
	return newRaw(load)(c), nil
}

// framedLink is what a program does without a library: a length before each
// message, one write for each, a buffered reader.
type framedLink struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte // prefix and payload
	in   []byte
	head [prefixSize]byte
}

func newFramed(load Load) func(net.Conn) Link {
	return func(c net.Conn) Link {
		l := &framedLink{conn: c, r: bufio.NewReaderSize(c, ChunkSize), out: payload(prefixSize + load.Size), in: payload(load.Size)}
		binary.BigEndian.PutUint32(l.out, uint32(load.Size))
		return l
	}
}

func (l *framedLink) Send() error {
	_, err := l.conn.Write(l.out)
	return err
}

func (l *framedLink) Recv() (int, int, error) {
	if _, err := io.ReadFull(l.r, l.head[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(l.head[:])
	if int64(n) > int64(len(l.in)) {
		return 0, 0, fmt.Errorf("a message of %d bytes, expected at most %d", n, len(l.in))
	}
	got, err := io.ReadFull(l.r, l.in[:n])
	return 1, got, err
}

func listenFramed(ctx context.Context, load Load, at netip.Addr) (Listener, error) {
	return listenTCP(ctx, at, newFramed(load))
}

func dialFramed(ctx context.Context, load Load, at netip.Addr, endpoint string) (Link, error) {
	c, err := dialTCP(ctx, at, endpoint)
	if err != nil {
		return nil, err
	}
	return newFramed(load)(c), nil
}
