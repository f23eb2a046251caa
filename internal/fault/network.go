package fault

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// Network is a transport.Network whose streams fail. Its own methods may be called
// at any time from any goroutine.
type Network struct {
	inner  transport.Network
	opts   Options
	rates  atomic.Pointer[Rates]
	counts [numKinds]atomic.Uint64

	mu   sync.Mutex
	live map[uint64]*Stream // guarded by mu: not closed and not broken here
	last uint64             // guarded by mu: newest Stream.id
	seen map[pair]uint64    // guarded by mu: streams of these addresses so far
}

// pair tells the generators of streams apart. Only addresses: the port that a
// system chooses must not decide a stream's luck.
type pair struct {
	local, remote netip.Addr
	dialled       bool
}

var _ transport.Network = (*Network)(nil)

// Wrap returns inner with faults. It panics on invalid Options.
func Wrap(inner transport.Network, o Options) *Network {
	if err := o.Rates.check(); err != nil {
		panic(err)
	}
	if o.MaxStall < 0 || o.MaxShort < 0 {
		panic("fault: Options with a negative MaxStall or MaxShort")
	}
	o.MaxStall = cmp.Or(o.MaxStall, 100*time.Millisecond)
	o.MaxShort = cmp.Or(o.MaxShort, 16)
	n := &Network{inner: inner, opts: o, live: make(map[uint64]*Stream), seen: make(map[pair]uint64)}
	n.rates.Store(&o.Rates)
	return n
}

// Listen implements transport.Network.
func (n *Network) Listen(local netip.AddrPort) (transport.Listener, error) {
	l, err := n.inner.Listen(local)
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, net: n}, nil
}

// listener wraps what it accepts.
type listener struct {
	transport.Listener
	net *Network
}

func (l *listener) Accept() (transport.Stream, error) {
	s, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.net.wrap(s, false, 0), nil
}

// Dial implements transport.Network.
func (n *Network) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (transport.Stream, error) {
	s, err := n.inner.Dial(ctx, local, remote, path, attempt)
	if err != nil {
		return nil, err
	}
	return n.wrap(s, true, path), nil
}

func (n *Network) wrap(inner transport.Stream, dialled bool, path int) *Stream {
	s := &Stream{
		Stream: inner, net: n, dialled: dialled, path: path,
		done: make(chan struct{}), budget: -1,
	}
	p := pair{inner.LocalAddr().Addr(), inner.RemoteAddr().Addr(), dialled}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	s.id = n.last
	n.seen[p]++
	hash := fnv.New64a()
	fmt.Fprint(hash, p, n.seen[p])
	s.rng = rand.New(rand.NewPCG(n.opts.Seed, hash.Sum64()))
	n.live[s.id] = s
	return s
}

func (n *Network) forget(s *Stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.live, s.id)
}

// count counts a fault. No lock may be held.
func (n *Network) count(s *Stream, k Kind) {
	n.counts[k].Add(1)
	if f := n.opts.OnFault; f != nil {
		f(s, k)
	}
}

// Count returns how many faults of a kind were injected.
func (n *Network) Count(k Kind) uint64 { return n.counts[k].Load() }

// Total returns how many faults of all kinds were injected.
func (n *Network) Total() (sum uint64) {
	for i := range n.counts {
		sum += n.counts[i].Load()
	}
	return sum
}

// Rates returns the present rates of random faults.
func (n *Network) Rates() Rates { return *n.rates.Load() }

// SetRates changes the rates of random faults, for streams that exist as well.
func (n *Network) SetRates(r Rates) error {
	if err := r.check(); err != nil {
		return err
	}
	n.rates.Store(&r)
	return nil
}

// Streams lists the streams that are neither closed nor broken by a fault, oldest first.
func (n *Network) Streams() []*Stream {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Stream, 0, len(n.live))
	for _, s := range n.live {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Stream) int { return cmp.Compare(a.id, b.id) })
	return list
}

// filtered lists the live streams that pass the filter; nil lets all pass.
func (n *Network) filtered(filter func(*Stream) bool) []*Stream {
	list := n.Streams()
	if filter == nil {
		return list
	}
	return slices.DeleteFunc(list, func(s *Stream) bool { return !filter(s) })
}

// ResetOne resets one live stream drawn with rng, and returns it; nil when there is none.
func (n *Network) ResetOne(rng *rand.Rand) *Stream {
	for {
		list := n.Streams()
		if len(list) == 0 {
			return nil
		}
		if s := list[rng.IntN(len(list))]; s.Break() {
			return s
		}
	}
}

// Reset resets every live stream that passes the filter (nil: all) at once, and returns how many.
func (n *Network) Reset(filter func(*Stream) bool) (reset int) {
	for _, s := range n.filtered(filter) {
		if s.Break() {
			reset++
		}
	}
	return reset
}

// Cut lets every live stream that passes the filter (nil: all) write afterBytes more bytes and
// then resets it: in the middle of a frame, with a number that is not the end of one. Of these bytes
// the peer gets what the real stack sends before the RST overtakes it: all in simnet and on an idle TCP
// connection. Cut returns how many streams that concerns; they are counted when they break.
func (n *Network) Cut(filter func(*Stream) bool, afterBytes int) int {
	list := n.filtered(filter)
	for _, s := range list {
		s.CutAfter(afterBytes)
	}
	return len(list)
}

// Finish ends the direction of writing of every live stream that passes the filter (nil: all) with a
// FIN, and returns how many.
func (n *Network) Finish(filter func(*Stream) bool) (finished int) {
	for _, s := range n.filtered(filter) {
		if s.Finish() {
			finished++
		}
	}
	return finished
}

// Stall makes every live stream that passes the filter (nil: all) wait for d.
func (n *Network) Stall(filter func(*Stream) bool, d time.Duration) int {
	list := n.filtered(filter)
	for _, s := range list {
		s.StallFor(d)
	}
	return len(list)
}
