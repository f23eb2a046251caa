package cli

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// gate is the operating system's network with a door: a node over it owns its addresses at once, but
// nobody is let in before open is called. Connections wait in the kernel's backlog until then.
type gate struct {
	transport.Network
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// open lets connections in. It is called once.
func (g *gate) open() { close(g.opened) }

// newNode is rds.NewNode over the gate.
func (g *gate) newNode(cfg rds.Config) (*rds.Node, error) {
	g.Network = &tcp.OSNetwork{UserTimeout: cfg.UserTimeout}
	n, err := seam.New[*rds.Node](cfg, g)
	if errors.Is(err, rds.ErrAddrInUse) || errors.Is(err, rds.ErrAddrNotAvail) {
		// Over a network that is not the operating system's a node cannot say who has the
		// address and what to do. One over the operating system's can.
		other, explained := rds.NewNode(cfg)
		if explained != nil {
			return nil, explained
		}
		return nil, errors.Join(err, other.Close()) // the owner left in between
	}
	return n, err
}

func (g *gate) Listen(local netip.AddrPort) (transport.Listener, error) {
	l, err := g.Network.Listen(local)
	if err != nil {
		return nil, err
	}
	return &gatedListener{Listener: l, gate: g, closed: make(chan struct{})}, nil
}

type gatedListener struct {
	transport.Listener
	gate   *gate
	close  sync.Once
	closed chan struct{}
}

func (l *gatedListener) Accept() (transport.Stream, error) {
	select {
	case <-l.gate.opened:
		return l.Listener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *gatedListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
