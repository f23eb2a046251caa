package rds

import (
	"context"
	"net/netip"
	"time"

	"github.com/rds-go/rds/internal/engine"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// Node owns local IP addresses and their RDS ports, and keeps the connections
// to other nodes. All its methods may be called from any goroutine.
type Node struct {
	e *engine.Engine
	t *tcp.Transport
}

// NewNode makes a node and starts to listen on every address of cfg. The error
// is an [*OpError]; for an address and TCP port that are taken it matches
// [ErrAddrInUse] and its detail names the owner, when that can be found out.
func NewNode(cfg Config) (*Node, error) { return newNode(cfg, nil) }

func init() {
	seam.NewNode = func(cfg any, n transport.Network) (any, error) { return newNode(cfg.(Config), n) }
}

// newNode makes a node whose streams come from network; nil means the operating
// system.
func newNode(cfg Config, network transport.Network) (*Node, error) {
	fail := func(err error, detail string) (*Node, error) {
		return nil, &OpError{Op: "node", Err: err, Detail: detail}
	}
	if err := cfg.check(); err != nil {
		return fail(err, "")
	}
	e, err := engine.New(cfg.engine())
	if err != nil {
		return fail(err, "")
	}
	t, err := tcp.New(tcp.Config{
		Addrs:       e.Addrs(),
		Port:        cfg.Port,
		Network:     network,
		MaxMessage:  e.MaxMessage(),
		MinBackoff:  cfg.MinBackoff,
		MaxBackoff:  cfg.MaxBackoff,
		UserTimeout: cfg.UserTimeout,
		FirstSeq:    e.FirstSeq(),
		GenNum:      seam.GenNum,
		DisablePing: cfg.DisablePing,
		Hold:        cfg.Hold,
		MaxPings:    cfg.MaxPings,
		MaxStreams:  cfg.MaxConns,
	}, e)
	if err != nil {
		e.Close()
		return fail(listenError(err), explainListen(err, e.Addrs(), cfg.Port))
	}
	e.Start(t)
	return &Node{e: e, t: t}, nil
}

// Start begins to accept and to make connections on a node made with
// [Config.Hold]; on others it does nothing.
func (n *Node) Start() { n.t.Start() }

// Bind makes a socket on an address of the node. Port 0 chooses a free port,
// from 2 to 65535. Errors, in the order of the checks (RDS spec section 3):
// [ErrInvalid] for an address that no socket can have, [ErrAddrNotAvail] for one
// that is not the node's, [ErrInvalid] for port 1, [ErrAddrInUse] for a port
// that is taken (or if all are), and [ErrClosed].
func (n *Node) Bind(a Addr, opts ...SocketOption) (*Socket, error) {
	es, err := n.e.Bind(a.addrPort(), func(es *engine.Socket) error {
		for _, o := range opts {
			if err := o.apply(es); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, &OpError{Op: "bind", Local: a, Err: err}
	}
	return &Socket{s: es}, nil
}

// Stats returns all counters: first those of the kernel, under its names and in
// its order (RDS spec section 16; those of work that happens elsewhere in this
// implementation stay 0), then ours.
func (n *Node) Stats() []Counter {
	cs := n.e.Counters()
	r := make([]Counter, len(cs))
	for i, c := range cs {
		r[i] = Counter(c)
	}
	return r
}

// Stat returns the counter of that name, 0 if there is none.
func (n *Node) Stat(name string) uint64 {
	for _, c := range n.e.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// Connections describes the node's connections, ordered by their addresses.
func (n *Node) Connections() []ConnectionInfo {
	cs := n.e.Connections()
	r := make([]ConnectionInfo, len(cs))
	for i, c := range cs {
		r[i] = connectionInfo(c)
	}
	return r
}

// Sockets describes the node's sockets, ordered by address and port.
func (n *Node) Sockets() []SocketInfo {
	ss := n.e.Sockets()
	r := make([]SocketInfo, len(ss))
	for i, s := range ss {
		r[i] = socketInfo(s)
	}
	return r
}

// Addrs returns the node's addresses in the order of [Config.Addrs].
func (n *Node) Addrs() []netip.Addr { return n.e.Addrs() }

// Ping sends an empty message to port 0 of the address to, which its RDS answers
// without any socket, and waits for the answer. It returns the time between the
// two. The zero value of from chooses the first address of the node that is of
// the same family as to. A peer that does not answer pings, or none at all,
// makes Ping wait until ctx ends.
func (n *Node) Ping(ctx context.Context, from, to netip.Addr) (time.Duration, error) {
	d, err := n.e.Ping(ctx, from, to)
	if err != nil {
		return 0, &OpError{Op: "ping", Local: AddrFrom(from, 0), Remote: AddrFrom(to, 0), Err: err}
	}
	return d, nil
}

// Close ends the node. New calls fail with [ErrClosed] and so do those that wait.
// What is queued has one second to be sent and acknowledged; then it is
// forgotten. When Close returns, nothing of the node runs any more. Closing
// again returns ErrClosed.
func (n *Node) Close() error {
	if err := n.e.Close(); err != nil {
		return &OpError{Op: "close", Err: err}
	}
	return nil
}
