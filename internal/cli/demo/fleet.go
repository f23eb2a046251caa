package demo

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/loopback"
	"github.com/rds-go/rds/internal/cli/witness"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/transport/tcp"
)

// fleet is the nodes of a demo and their sockets.
type fleet struct {
	nodes   []*node
	sockets []*socket           // all of them; the index is the socket's name in messages
	names   map[rds.Addr]uint16 // and back
}

// node is one RDS node over a network in which connections can be killed.
type node struct {
	addr    netip.Addr
	rds     *rds.Node
	network *fault.Network
	// killed counts the connections killed by this side, by manner.
	killed [manners]atomic.Uint64
}

// kill does what is planned against the node other.
func (n *node) kill(k kill, other *node) {
	victims := slices.DeleteFunc(n.network.Streams(), func(s *fault.Stream) bool {
		return s.RemoteAddr().Addr() != other.addr
	})
	if !k.all && len(victims) > 0 {
		i := k.draw % uint64(len(victims))
		victims = victims[i : i+1]
	}
	for _, s := range victims {
		if k.manner == midFrame {
			s.CutAfter(k.bytes) // counted by OnFault, when it happens
		} else if s.Break() {
			n.killed[k.manner].Add(1)
		}
	}
}

// socket is one RDS socket of a node with what it has sent and received.
type socket struct {
	*rds.Socket
	name uint16
	node int // index in fleet.nodes

	sent      []atomic.Uint64 // messages, by receiving socket
	sentBytes atomic.Uint64

	mu    sync.Mutex
	inbox inbox // guarded by mu
}

// launch makes the nodes, ordered by their addresses, and binds the sockets.
func launch(cfg Config) (f *fleet, err error) {
	f = &fleet{names: map[rds.Addr]uint16{}}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for range cfg.Nodes {
		n, err := newNode(cfg)
		if err != nil {
			return f, err
		}
		f.nodes = append(f.nodes, n)
	}
	slices.SortFunc(f.nodes, func(a, b *node) int { return a.addr.Compare(b.addr) })

	total := cfg.Nodes * cfg.Sockets
	p := pattern{cfg.Seed, cfg.Size}
	for i, n := range f.nodes {
		for range cfg.Sockets {
			s, err := n.rds.Bind(rds.AddrFrom(n.addr, 0))
			if err != nil {
				return f, err
			}
			name := uint16(len(f.sockets))
			f.names[s.Addr()] = name
			f.sockets = append(f.sockets, &socket{
				Socket: s, name: name, node: i, sent: make([]atomic.Uint64, total),
				inbox: inbox{pattern: p, self: name, flows: make([]witness.Flow, total)},
			})
		}
	}
	return f, nil
}

// newNode makes a node on an address of 127.0.0.0/8 that nobody uses, so that several demos and other
// programs can run side by side.
func newNode(cfg Config) (*node, error) {
	for try := 1; ; try++ {
		n := &node{addr: loopback.Random()}
		n.network = fault.Wrap(&tcp.OSNetwork{}, fault.Options{Seed: cfg.Seed, OnFault: func(_ *fault.Stream, kind fault.Kind) {
			if kind == fault.Cut {
				n.killed[midFrame].Add(1)
			}
		}})
		var err error
		n.rds, err = seam.New[*rds.Node](rds.Config{
			Addrs: []netip.Addr{n.addr}, Port: cfg.Port, Events: cfg.Events,
			SendBuffer: max(rds.DefaultBuffer, cfg.Size),
		}, n.network)
		if err == nil {
			return n, nil
		}
		if try == loopback.Tries || !errors.Is(err, rds.ErrAddrInUse) {
			return nil, err
		}
	}
}

// close closes all nodes at the same time.
func (f *fleet) close() {
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(func() { n.rds.Close() })
	}
	wg.Wait()
}

// receive checks what the socket gets until ctx ends.
func (f *fleet) receive(ctx context.Context, s *socket) error {
	for {
		m, err := s.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		sender, ok := f.names[m.From]
		s.mu.Lock()
		s.inbox.take(sender, ok, m.Payload)
		s.mu.Unlock()
		m.Release()
	}
}

// totals returns the number of messages sent and, doubles not counted, received.
func (f *fleet) totals() (sent, received uint64) {
	for _, s := range f.sockets {
		for i := range s.sent {
			sent += s.sent[i].Load()
		}
		s.mu.Lock()
		for i := range s.inbox.flows {
			received += s.inbox.flows[i].Received
		}
		s.mu.Unlock()
	}
	return sent, received
}

// rows returns a row for each node.
func (f *fleet) rows() []row {
	rows := make([]row, len(f.nodes))
	for i, n := range f.nodes {
		r := &rows[i]
		r.name = n.addr.String()
		for m := range n.killed {
			r.killed += n.killed[m].Load()
		}
		for _, c := range n.rds.Connections() {
			for _, p := range c.Paths {
				if p.State == "UP" {
					r.paths++
				}
				r.resent += p.Retransmissions
			}
		}
	}
	for _, s := range f.sockets {
		r := &rows[s.node]
		for i := range s.sent {
			r.sent += s.sent[i].Load()
		}
		s.mu.Lock()
		for i := range s.inbox.flows {
			in := &s.inbox.flows[i]
			r.received += in.Received
			r.gaps += in.Gaps()
			r.doubled += in.Doubled
			r.reordered += in.Reordered
		}
		s.mu.Unlock()
	}
	return rows
}

// count fills in what the fleet has sent, received and repeated. Nobody may be sending or receiving.
func (f *fleet) count(v *Verdict) {
	var t witness.Tally
	for _, s := range f.sockets {
		s.mu.Lock()
		got := s.inbox.tally(func(from uint16) uint64 { return f.sockets[from].sent[s.name].Load() })
		s.mu.Unlock()
		t.Received += got.Received
		t.Lost += got.Lost
		t.Doubled += got.Doubled
		t.Reordered += got.Reordered
		t.Damaged += got.Damaged
		messages, _ := s.PendingAll()
		v.Unacknowledged += uint64(messages)
		v.Bytes += s.sentBytes.Load()
		for i := range s.sent {
			v.Messages += s.sent[i].Load()
		}
	}
	v.Received, v.Lost, v.Doubled, v.Reordered, v.Damaged = t.Received, t.Lost, t.Doubled, t.Reordered, t.Damaged
	for _, n := range f.nodes {
		v.Smaller += n.killed[bySmaller].Load()
		v.Larger += n.killed[byLarger].Load()
		v.MidFrame += n.killed[midFrame].Load()
		for _, c := range n.rds.Connections() {
			for _, p := range c.Paths {
				v.Retransmissions += p.Retransmissions
				v.Filtered += p.DroppedDuplicates
			}
		}
	}
	v.Resets = v.Smaller + v.Larger + v.MidFrame
}
