package link

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rds-go/rds"
)

// A Crowd is many peers in one process that wait to be connected to.
type Crowd interface {
	// Endpoint is for Visit.
	Endpoint() string
}

// OpenCrowd makes peers of that kind on these addresses.
func OpenCrowd(ctx context.Context, kind string, at []netip.Addr) (Crowd, error) {
	switch kind {
	case "rds":
		return openRDSCrowd(at)
	case "tcp":
		return openTCPCrowd(ctx, at[0])
	}
	return nil, fmt.Errorf("no crowd of kind %q: there are rds, tcp", kind)
}

// A Visitor is connected to the peers of a crowd, one after the other.
type Visitor interface {
	// Visit connects to one more peer and exchanges a message with it.
	Visit() error
}

// NewVisitor makes a visitor that is connected to nobody yet.
func NewVisitor(ctx context.Context, kind, endpoint string, from netip.Addr) (Visitor, error) {
	switch kind {
	case "rds":
		e, err := openRDS(ctx, Load{}, from)
		if err != nil {
			return nil, err
		}
		first, err := rds.ParseAddr(endpoint)
		return &rdsVisitor{e, first}, err
	case "tcp":
		return &tcpVisitor{ctx: ctx, from: from, endpoint: endpoint}, nil
	}
	return nil, fmt.Errorf("no visitor of kind %q: there are rds, tcp", kind)
}

// rdsCrowd is one node with an address for each peer: to the other side they are
// as many peers.
type rdsCrowd struct{ node *rds.Node }

func openRDSCrowd(at []netip.Addr) (Crowd, error) {
	n, err := rds.NewNode(rds.Config{Addrs: at})
	if err != nil {
		return nil, err
	}
	for _, a := range at {
		if _, err := n.Bind(rds.AddrFrom(a, rdsPort)); err != nil {
			return nil, err
		}
	}
	return rdsCrowd{n}, nil
}

func (c rdsCrowd) Endpoint() string { return rds.AddrFrom(c.node.Addrs()[0], rdsPort).String() }

type rdsVisitor struct {
	*rdsEnd
	next rds.Addr
}

func (v *rdsVisitor) Visit() error {
	if err := v.socket.Send(v.ctx, v.next, []byte("here I am")); err != nil {
		return err
	}
	v.next.IP = v.next.IP.Next()
	return v.socket.Flush(v.ctx)
}

// tcpCrowd accepts connections, each with a goroutine that waits for data with
// a small buffer, as simple servers have it.
type tcpCrowd struct{ Listener }

func openTCPCrowd(ctx context.Context, at netip.Addr) (Crowd, error) {
	l, err := listenTCP(ctx, at, nil)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.(tcpListener).Listener.Accept()
			if err != nil {
				return
			}
			go linger(c, true)
		}
	}()
	return tcpCrowd{l}, nil
}

// idleBuffer is the read buffer of an idle TCP connection, bufio's default.
const idleBuffer = 4096

func linger(c net.Conn, echo bool) {
	buf := make([]byte, idleBuffer)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if echo {
			c.Write(buf[:n])
		}
	}
}

type tcpVisitor struct {
	ctx      context.Context
	from     netip.Addr
	endpoint string
}

func (v *tcpVisitor) Visit() error {
	c, err := dialTCP(v.ctx, v.from, v.endpoint)
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte("here I am")); err != nil {
		return err
	}
	var reply strings.Builder
	buf := make([]byte, 16)
	for reply.Len() < len("here I am") {
		n, err := c.Read(buf)
		if err != nil {
			return err
		}
		reply.Write(buf[:n])
	}
	go linger(c, false)
	return nil
}
