package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/path"
	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/wire"
)

// Config describes a Transport.
type Config struct {
	// Addrs are the local addresses to listen on.
	Addrs []netip.Addr
	// Port is the TCP port of RDS on all nodes; 0 means 16385.
	Port uint16
	// Network makes streams; nil means the operating system's TCP.
	Network transport.Network
	// MaxMessage is the largest payload accepted from a peer; 0 means 1 MiB. A larger one is a protocol
	// error and costs the stream.
	MaxMessage int
	// MinBackoff and MaxBackoff bound the random pause between attempts to connect; 0 means 1 ms and 1 s.
	MinBackoff, MaxBackoff time.Duration
	// UserTimeout is how long sent data may stay unacknowledged before the stream is given up
	// (TCP_USER_TIMEOUT); 0 means 30 s.
	UserTimeout time.Duration
	// DialTimeout bounds one attempt to connect; 0 means 3 s.
	DialTimeout time.Duration
	// Generation is random for each life of the node; 0 means that New draws one.
	Generation uint32
	// GenNum announces the generation as GEN_NUM to kernels too; see path.Config.
	GenNum bool
	// FirstSeq is the first message number; 0 means the wall clock in microseconds.
	FirstSeq uint64
	// MaxAckDelay bounds how long an acknowledgement waits for data to ride on; 0 means 5 ms.
	MaxAckDelay time.Duration
	// DisablePing leaves pings unanswered, as net.rds.ping_enable = 0 does.
	DisablePing bool
	// MaxPings is how many answers to pings may wait to be written to one peer; 0 means 1024.
	MaxPings int
	// MaxStreams bounds the incoming streams alive at once, all peers together; 0 means 65536.
	MaxStreams int
	// Hold makes the transport neither accept nor dial before Start is called.
	Hold bool
	// Handshake overrides what probes say of this node; zero means the truth. For tests.
	Handshake wire.Handshake
}

func (c *Config) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if c.Port == 0 {
		c.Port = wire.Port
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = wire.MaxMessage
	}
	def(&c.MinBackoff, time.Millisecond)
	def(&c.MaxBackoff, time.Second)
	def(&c.UserTimeout, 30*time.Second)
	def(&c.DialTimeout, 3*time.Second)
	def(&c.MaxAckDelay, 5*time.Millisecond)
	for c.Generation == 0 {
		c.Generation = rand.Uint32()
	}
	if c.FirstSeq == 0 {
		c.FirstSeq = uint64(max(time.Now().UnixMicro(), 1))
	}
	if c.MaxPings == 0 {
		c.MaxPings = 1024
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 65536
	}
	if c.Network == nil {
		c.Network = &OSNetwork{UserTimeout: c.UserTimeout}
	}
}

type pair struct{ local, remote netip.Addr }

// slot holds a link while it is being made.
type slot struct {
	once sync.Once
	link *Link
}

// Transport makes links over TCP. It implements transport.Transport.
type Transport struct {
	cfg       Config
	host      transport.Host
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	listeners []transport.Listener
	streams   atomic.Int64  // incoming ones alive
	started   chan struct{} // closed by Start
	start     sync.Once
	quiet     atomic.Bool // nothing is delivered any more

	mu     sync.Mutex
	links  map[pair]*slot // guarded by mu
	closed bool           // guarded by mu
}

var errClosed = fmt.Errorf("rds/tcp: transport closed: %w", net.ErrClosed)

// New listens on the addresses and returns the transport.
func New(cfg Config, host transport.Host) (*Transport, error) {
	cfg.setDefaults()
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("rds/tcp: no local address")
	}
	t := &Transport{cfg: cfg, host: host, links: make(map[pair]*slot), started: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, a := range cfg.Addrs {
		l, err := cfg.Network.Listen(netip.AddrPortFrom(a, cfg.Port))
		if err != nil {
			for _, l := range t.listeners {
				l.Close()
			}
			t.cancel()
			return nil, err
		}
		t.listeners = append(t.listeners, l)
	}
	if !cfg.Hold {
		t.Start()
	}
	return t, nil
}

// Start begins to accept and to dial, unless that has begun.
func (t *Transport) Start() {
	t.start.Do(func() {
		close(t.started)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.closed {
			return
		}
		for _, l := range t.listeners {
			t.wg.Go(func() { t.accept(l) })
		}
	})
}

// Quiesce ends delivery. When it returns, what was delivered is all that will be; what arrives from then on is
// neither delivered nor acknowledged by h_ack, so that own peers keep it for the node's successor. Acknowledgements
// for this node are still taken in.
func (t *Transport) Quiesce() {
	t.quiet.Store(true)
	for _, l := range t.all() {
		l.mu.Lock()
		for _, ln := range l.lanes {
			for ln != nil && ln.stream != nil && ln.batch.Load() {
				ln.wake.Wait()
			}
		}
		l.mu.Unlock()
	}
}

// Link returns the link of a pair of addresses.
func (t *Transport) Link(local, remote netip.Addr) (transport.Link, error) {
	l, err := t.link(local.Unmap(), remote.Unmap())
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (t *Transport) link(local, remote netip.Addr) (*Link, error) {
	k := pair{local, remote}
	t.mu.Lock()
	s := t.links[k]
	if s == nil {
		if t.closed {
			t.mu.Unlock()
			return nil, errClosed
		}
		s = &slot{}
		t.links[k] = s
	}
	t.mu.Unlock()
	// Outside the lock: the host may hold locks of its own.
	s.once.Do(func() {
		l := newLink(t, local, remote)
		l.handler = t.host.NewLink(l, local, remote)
		l.reserver, _ = l.handler.(transport.Reserver)
		t.mu.Lock()
		s.link = l
		closed := t.closed
		t.mu.Unlock()
		if closed {
			l.shut()
		}
	})
	return s.link, nil
}

// Links calls f for every link.
func (t *Transport) Links(f func(transport.Link)) {
	for _, l := range t.all() {
		f(l)
	}
}

// Counters calls f for the kernel's counters that are counted here (RDS spec section 16).
func (t *Transport) Counters(f func(name string, value uint64)) {
	for _, l := range t.all() {
		l.mu.Lock()
		n := l.c.Counts
		var reads, samples, fills uint64
		for _, ln := range l.lanes {
			if ln != nil {
				reads, samples, fills = reads+ln.reads, samples+ln.samples, fills+ln.fills
			}
		}
		l.mu.Unlock()
		f("recv_ping", n.Pings)
		f("send_pong", n.Pongs)
		f("tcp_data_ready_calls", reads)
		f("tcp_write_space_calls", samples)
		f("tcp_sndbuf_full", fills)
		f("tcp_connect_raced", n.Raced)
		f("tcp_listen_closed_stale", n.Superseded)
	}
}

func (t *Transport) all() []*Link {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*Link, 0, len(t.links))
	for _, s := range t.links {
		if s.link != nil {
			all = append(all, s.link)
		}
	}
	return all
}

// accept takes incoming streams until the listener is closed.
func (t *Transport) accept(l transport.Listener) {
	var pause time.Duration
	for {
		s, err := l.Accept()
		if err == nil {
			pause = 0
			t.incoming(l.Addr(), s)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of descriptors or memory: the next attempt may work (defect D25: never stop).
		t.host.Refused(l.Addr(), netip.AddrPort{}, fmt.Errorf("rds/tcp: accept on %v: %w", l.Addr(), err))
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		select {
		case <-time.After(pause):
		case <-t.ctx.Done():
			return
		}
	}
}

var (
	errNotAllowed = errors.New("address is not among the allowed peers")
	errSelf       = errors.New("peer address is local to this node")
	errStreams    = errors.New("too many incoming connections")
	errHeld       = errors.New("too many connections of this peer wait for a path")
)

// incoming decides about one accepted stream.
func (t *Transport) incoming(at netip.AddrPort, s transport.Stream) {
	local, remote := at.Addr().Unmap(), s.RemoteAddr().Addr().Unmap()
	refuse := func(err error) {
		s.Close()
		t.host.Refused(at, s.RemoteAddr(), err)
	}
	switch {
	case !t.host.MayPeer(remote):
		refuse(errNotAllowed)
		return
	case t.isLocal(remote):
		refuse(errSelf)
		return
	case t.streams.Load() >= int64(t.cfg.MaxStreams):
		refuse(fmt.Errorf("%w: limit %d", errStreams, t.cfg.MaxStreams))
		return
	}
	l, err := t.link(local, remote)
	if err != nil {
		s.Close()
		return
	}
	l.incoming(s)
}

func (t *Transport) isLocal(a netip.Addr) bool {
	for _, l := range t.cfg.Addrs {
		if l.Unmap() == a {
			return true
		}
	}
	return false
}

// pathConfig is the part of the configuration that the protocol needs.
func (t *Transport) pathConfig(local, remote netip.Addr) path.Config {
	return path.Config{
		Local: local, Remote: remote,
		Generation: t.cfg.Generation, GenNum: t.cfg.GenNum,
		FirstSeq:    t.cfg.FirstSeq,
		MaxAckDelay: t.cfg.MaxAckDelay,
		MinBackoff:  t.cfg.MinBackoff, MaxBackoff: t.cfg.MaxBackoff,
		MaxPongs: t.cfg.MaxPings, DisablePing: t.cfg.DisablePing,
		Handshake: t.cfg.Handshake,
		Rand:      rand.Int64N,
	}
}

// Close ends everything: listeners at once, streams by half-close and drain within the grace
// time, then hard. It returns when every goroutine has ended.
func (t *Transport) Close(grace time.Duration) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.mu.Unlock()
	for _, l := range t.listeners {
		l.Close()
	}
	t.cancel()
	for _, l := range t.all() {
		l.shut()
	}
	done := make(chan struct{})
	go func() { t.wg.Wait(); close(done) }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	for _, l := range t.all() {
		l.kill()
	}
	<-done
	return nil
}
