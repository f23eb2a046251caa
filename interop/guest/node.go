//go:build linux

package guest

import (
	"context"
	"net/netip"
	"testing"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// nsNetwork makes the streams of a node in one of the namespaces, so that a
// node and kernel sockets of both sides live in one test process.
type nsNetwork struct {
	p  *Pair
	s  Side
	os tcp.OSNetwork
}

func (n *nsNetwork) Listen(at netip.AddrPort) (l transport.Listener, err error) {
	err = n.p.In(n.s, func() error {
		l, err = n.os.Listen(at)
		return err
	})
	return l, err
}

func (n *nsNetwork) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (s transport.Stream, err error) {
	err = n.p.In(n.s, func() error {
		s, err = n.os.Dial(ctx, local, remote, path, attempt)
		return err
	})
	return s, err
}

// Node frees a side of its kernel listener and starts a node of ours on both of its
// addresses. Its streams go through the fault wrapper, which does nothing until told.
func (p *Pair) Node(t testing.TB, s Side, mod func(*rds.Config)) (*rds.Node, *fault.Network) {
	t.Helper()
	p.Free(s)
	return p.node(t, s, mod)
}

// node is Node on a side that is free.
func (p *Pair) node(t testing.TB, s Side, mod func(*rds.Config)) (*rds.Node, *fault.Network) {
	t.Helper()
	net := fault.Wrap(&nsNetwork{p: p, s: s}, fault.Options{Seed: 1})
	cfg := rds.Config{Addrs: []netip.Addr{p.Addr(s, false), p.Addr(s, true)}}
	if mod != nil {
		mod(&cfg)
	}
	n, err := seam.New[*rds.Node](cfg, net)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n, net
}

// NodeSocket is a socket of ours with buffers that hold the largest message.
func NodeSocket(t testing.TB, n *rds.Node, at netip.AddrPort) *rds.Socket {
	t.Helper()
	s, err := n.Bind(rds.AddrFrom(at.Addr(), at.Port()), rds.WithSendBuffer(4<<20), rds.WithRecvBuffer(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func toRDS(a netip.AddrPort) rds.Addr { return rds.AddrFrom(a.Addr(), a.Port()) }
