package link

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/rds-go/rds"
)

// A Mesh is many endpoints in one process, each of which talks to all others.
type Mesh interface {
	// Send sends one message. For each from it is called by one goroutine.
	Send(from, to int) error
	// Receive receives what arrives at an endpoint and counts the messages in
	// got, until it fails. It is called once for each endpoint.
	Receive(at int, got *atomic.Int64) error
}

// OpenMesh makes a mesh of that kind with an endpoint on each address.
func OpenMesh(ctx context.Context, kind string, load Load, at []netip.Addr) (Mesh, error) {
	switch kind {
	case "rds":
		return openRDSMesh(ctx, load, at)
	case "tcp-msg":
		return openTCPMesh(ctx, load, at)
	}
	return nil, fmt.Errorf("no mesh of kind %q: there are rds, tcp-msg", kind)
}

// rdsMesh has a node with one socket for each endpoint.
type rdsMesh struct {
	ends []*rdsEnd
	out  [][]byte
}

func openRDSMesh(ctx context.Context, load Load, at []netip.Addr) (Mesh, error) {
	m := &rdsMesh{}
	for _, a := range at {
		e, err := openRDS(ctx, load, a)
		if err != nil {
			return nil, err
		}
		m.ends = append(m.ends, e)
		m.out = append(m.out, payload(load.Size))
	}
	return m, nil
}

func (m *rdsMesh) Send(from, to int) error {
	e := m.ends[from]
	return e.socket.Send(e.ctx, m.ends[to].socket.Addr(), m.out[from])
}

func (m *rdsMesh) Receive(at int, got *atomic.Int64) error {
	e, buf := m.ends[at], make([]byte, len(m.out[at]))
	var from rds.Addr
	for {
		n, f, err := e.socket.Recv(e.ctx, buf)
		if err != nil {
			return err
		}
		if from = f; n != len(buf) {
			return fmt.Errorf("%d bytes from %v, expected %d", n, from, len(buf))
		}
		got.Add(1)
	}
}

// tcpMesh has one connection for each pair of endpoints, used in both directions.
type tcpMesh struct {
	links [][]*framedLink // [from][to], nil for from == to
}

func openTCPMesh(ctx context.Context, load Load, at []netip.Addr) (Mesh, error) {
	m := &tcpMesh{links: make([][]*framedLink, len(at))}
	wrap := func(c net.Conn) *framedLink { return newFramed(load)(c).(*framedLink) }
	for i := range at {
		m.links[i] = make([]*framedLink, len(at))
	}
	for i, a := range at {
		l, err := listenTCP(ctx, a, nil)
		if err != nil {
			return nil, err
		}
		for j := i + 1; j < len(at); j++ {
			c, err := dialTCP(ctx, at[j], l.Endpoint())
			if err != nil {
				return nil, err
			}
			m.links[j][i] = wrap(c)
			if c, err = l.(tcpListener).Listener.Accept(); err != nil {
				return nil, err
			}
			m.links[i][j] = wrap(c)
		}
	}
	return m, nil
}

func (m *tcpMesh) Send(from, to int) error { return m.links[from][to].Send() }

func (m *tcpMesh) Receive(at int, got *atomic.Int64) error {
	failed := make(chan error, len(m.links))
	for _, l := range m.links[at] {
		if l == nil {
			continue
		}
		go func() {
			for {
				if _, _, err := l.Recv(); err != nil {
					failed <- err
					return
				}
				got.Add(1)
			}
		}()
	}
	return <-failed
}
