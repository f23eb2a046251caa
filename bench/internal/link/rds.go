package link

import (
	"context"
	"net/netip"

	"github.com/rds-go/rds"
)

// rdsPort is the RDS port of both ends.
const rdsPort = 4000

// rdsEnd is a node with one socket, and where its messages go.
type rdsEnd struct {
	ctx    context.Context
	node   *rds.Node
	socket *rds.Socket
	to     rds.Addr
	load   Load
}

func openRDS(ctx context.Context, load Load, at netip.Addr) (*rdsEnd, error) {
	n, err := rds.NewNode(rds.Config{
		Addrs: []netip.Addr{at}, Port: load.Port,
		SendBuffer: load.Buffer, RecvBuffer: load.Buffer,
	})
	if err != nil {
		return nil, err
	}
	s, err := n.Bind(rds.AddrFrom(at, rdsPort))
	if err != nil {
		return nil, err
	}
	return &rdsEnd{ctx: ctx, node: n, socket: s, load: load}, nil
}

func (e *rdsEnd) Endpoint() string { return e.socket.Addr().String() }

// greeted waits for the empty message of the end that dials: RDS has no
// connections to wait for.
func (e *rdsEnd) greeted() error {
	_, from, err := e.socket.Recv(e.ctx, nil)
	e.to = from
	return err
}

func greet(ctx context.Context, load Load, at netip.Addr, endpoint string) (*rdsEnd, error) {
	to, err := rds.ParseAddr(endpoint)
	if err != nil {
		return nil, err
	}
	e, err := openRDS(ctx, load, at)
	if err != nil {
		return nil, err
	}
	e.to = to
	return e, e.socket.Send(ctx, to, nil)
}

// rdsLink uses one call for each message.
type rdsLink struct {
	*rdsEnd
	out, in []byte
}

func (e *rdsEnd) single() *rdsLink {
	return &rdsLink{rdsEnd: e, out: payload(e.load.Size), in: payload(e.load.Size)}
}

func (l *rdsLink) Send() error { return l.socket.Send(l.ctx, l.to, l.out) }

func (l *rdsLink) Recv() (int, int, error) {
	n, _, err := l.socket.Recv(l.ctx, l.in)
	return 1, n, err
}

func (l *rdsLink) Accept() (Link, error) { return l, l.greeted() }

func listenRDS(ctx context.Context, load Load, at netip.Addr) (Listener, error) {
	e, err := openRDS(ctx, load, at)
	if err != nil {
		return nil, err
	}
	return e.single(), nil
}

func dialRDS(ctx context.Context, load Load, at netip.Addr, endpoint string) (Link, error) {
	e, err := greet(ctx, load, at, endpoint)
	if err != nil {
		return nil, err
	}
	return e.single(), nil
}

// rdsBatchLink uses the batch calls.
type rdsBatchLink struct {
	*rdsEnd
	out, in []rds.Message
	bufs    [][]byte // of in, whose Payload is cut by each receive
}

func (e *rdsEnd) batch() *rdsBatchLink {
	l := &rdsBatchLink{rdsEnd: e, out: make([]rds.Message, e.load.Batch), in: make([]rds.Message, e.load.Batch)}
	p := payload(e.load.Size)
	for i := range l.out {
		l.out[i] = rds.Message{Addr: e.to, Payload: p}
		l.bufs = append(l.bufs, payload(e.load.Size))
	}
	return l
}

func (l *rdsBatchLink) Send() error {
	_, err := l.socket.SendBatch(l.ctx, l.out)
	return err
}

func (l *rdsBatchLink) Recv() (messages, bytes int, err error) {
	for i := range l.in {
		l.in[i].Payload = l.bufs[i]
	}
	messages, err = l.socket.RecvBatch(l.ctx, l.in)
	for _, m := range l.in[:messages] {
		bytes += m.Len
	}
	return messages, bytes, err
}

func (l *rdsBatchLink) Accept() (Link, error) {
	err := l.greeted()
	for i := range l.out {
		l.out[i].Addr = l.to
	}
	return l, err
}

func listenRDSBatch(ctx context.Context, load Load, at netip.Addr) (Listener, error) {
	e, err := openRDS(ctx, load, at)
	if err != nil {
		return nil, err
	}
	return e.batch(), nil
}

func dialRDSBatch(ctx context.Context, load Load, at netip.Addr, endpoint string) (Link, error) {
	e, err := greet(ctx, load, at, endpoint)
	if err != nil {
		return nil, err
	}
	return e.batch(), nil
}
