package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/transport"
	"github.com/rds-go/rds/internal/transport/loop"
	"github.com/rds-go/rds/internal/wire"
)

// Config says how an [Engine] is to be. The fields are those of the root
// package's Config, which documents them; zero values choose the defaults.
type Config struct {
	Addrs                          []netip.Addr
	AllowPeers                     []netip.Prefix
	SendBuffer, RecvBuffer         int
	MaxMessage                     int
	PeerQueueLimit, NodeQueueLimit int64
	MaxPeers                       int
	MapTimeout                     time.Duration
	StallTimeout, GiveUp           time.Duration
	DisablePing                    bool
	StateDir                       string
	// Listener is called for each event, from one goroutine; nil means none.
	Listener func(Event)
}

// Defaults and limits of Config.
const (
	defaultPeerQueue = 64 << 20
	defaultNodeQueue = 1 << 30
	defaultMaxPeers  = 16384
	defaultMapTime   = 60 * time.Second
	defaultStallTime = 10 * time.Second
	maxMaxMessage    = 1 << 30
)

// closeGrace is the time that closing an engine gives to what is queued.
const closeGrace = time.Second

// Engine is a node without its ways out. It implements [transport.Host].
type Engine struct {
	cfg    Config
	locals map[netip.Addr]*local // not changed after New
	limits *limits
	events *dispatcher
	seq    *numbers
	count  counts
	ticks  sync.WaitGroup // timers of peers and connections that run
	loop   *loop.Transport
	wide   transport.Transport // to other nodes; set by Start

	mu      sync.Mutex // guards the fields below
	closed  atomic.Bool
	peers   map[netip.Addr]*peer
	remotes int // peers that are not the node itself
	sockets map[*Socket]struct{}
	retired traffic
	strange limiter // of Refused events for addresses that are no peers
}

// New makes an engine. Start must be called before anything is sent to another
// node, and Close in any case.
func New(cfg Config) (*Engine, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:     cfg,
		locals:  make(map[netip.Addr]*local),
		limits:  newLimits(cfg.PeerQueueLimit, cfg.NodeQueueLimit, cfg.MaxPeers),
		peers:   make(map[netip.Addr]*peer),
		sockets: make(map[*Socket]struct{}),
	}
	var err error
	if e.seq, err = openNumbers(cfg.StateDir); err != nil {
		return nil, err
	}
	for _, a := range cfg.Addrs {
		e.locals[a] = &local{e: e, addr: a, to: make(map[netip.Addr]*conn)}
	}
	e.loop = loop.New(loop.Config{DisablePing: cfg.DisablePing}, e)
	e.events = newDispatcher(cfg.Listener)
	return e, nil
}

// complete checks the Config and fills in the defaults. It copies what it keeps.
func (cfg *Config) complete() error {
	if len(cfg.Addrs) == 0 {
		return fmt.Errorf("%w: Config.Addrs is empty", ErrInvalid)
	}
	addrs := make([]netip.Addr, 0, len(cfg.Addrs))
	for _, a := range cfg.Addrs {
		a = a.Unmap()
		if checkEndpoint(a) != nil {
			return fmt.Errorf("%w: Config.Addrs has %v, which cannot be the address of a node", ErrInvalid, a)
		}
		if slices.Contains(addrs, a) {
			return fmt.Errorf("%w: Config.Addrs has %v twice", ErrInvalid, a)
		}
		addrs = append(addrs, a)
	}
	cfg.Addrs = addrs
	if cfg.AllowPeers != nil {
		allow := make([]netip.Prefix, 0, len(cfg.AllowPeers))
		for _, p := range cfg.AllowPeers {
			if !p.IsValid() {
				return fmt.Errorf("%w: Config.AllowPeers has a prefix that is none", ErrInvalid)
			}
			if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
				p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
			}
			allow = append(allow, p)
		}
		cfg.AllowPeers = allow
	}
	var err error
	if cfg.SendBuffer == 0 {
		cfg.SendBuffer = DefaultBuffer
	}
	if cfg.SendBuffer, err = bufferSize("send", cfg.SendBuffer, minSendBuffer); err != nil {
		return fmt.Errorf("Config.SendBuffer: %w", err)
	}
	if cfg.RecvBuffer == 0 {
		cfg.RecvBuffer = DefaultBuffer
	}
	if cfg.RecvBuffer, err = bufferSize("receive", cfg.RecvBuffer, minRecvBuffer); err != nil {
		return fmt.Errorf("Config.RecvBuffer: %w", err)
	}
	if cfg.MaxMessage < 0 || cfg.MaxMessage > maxMaxMessage {
		return fmt.Errorf("%w: Config.MaxMessage is %d bytes, want 0 to %d", ErrInvalid, cfg.MaxMessage, maxMaxMessage)
	}
	if cfg.MaxMessage == 0 {
		cfg.MaxMessage = wire.MaxMessage
	}
	for _, f := range []struct {
		name string
		v    *int64
		def  int64
	}{
		{"PeerQueueLimit", &cfg.PeerQueueLimit, defaultPeerQueue},
		{"NodeQueueLimit", &cfg.NodeQueueLimit, defaultNodeQueue},
		{"MapTimeout", (*int64)(&cfg.MapTimeout), int64(defaultMapTime)},
		{"StallTimeout", (*int64)(&cfg.StallTimeout), int64(defaultStallTime)},
		{"GiveUp", (*int64)(&cfg.GiveUp), 0},
	} {
		if *f.v < 0 {
			return fmt.Errorf("%w: Config.%s is negative (%d)", ErrInvalid, f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.def
		}
	}
	if cfg.MaxPeers < 0 {
		return fmt.Errorf("%w: Config.MaxPeers is negative (%d)", ErrInvalid, cfg.MaxPeers)
	}
	if cfg.MaxPeers == 0 {
		cfg.MaxPeers = defaultMaxPeers
	}
	return nil
}

// MaxMessage is the largest message, in bytes.
func (e *Engine) MaxMessage() int { return e.cfg.MaxMessage }

// FirstSeq is the number with which each path's messages have to begin.
func (e *Engine) FirstSeq() uint64 { return e.seq.first }

// Start gives the engine its transport to other nodes. It is called once, before
// Bind.
func (e *Engine) Start(t transport.Transport) {
	e.wide = t
	e.seq.keep(e.usedSeq, func(err error) { e.events.emit(Event{Kind: StateFailed, Err: err}) })
}

// usedSeq returns a number that is greater than those of all messages sent.
func (e *Engine) usedSeq() uint64 {
	used := e.seq.first
	for _, l := range e.locals {
		for _, c := range l.connections() {
			for _, p := range c.link.Info().Paths {
				used = max(used, p.NextTx)
			}
		}
	}
	return used
}

func (e *Engine) transports() []transport.Transport {
	if e.wide == nil {
		return []transport.Transport{e.loop}
	}
	return []transport.Transport{e.loop, e.wide}
}

func (e *Engine) isClosed() bool { return e.closed.Load() }

// Addrs returns the node's addresses.
func (e *Engine) Addrs() []netip.Addr { return slices.Clone(e.cfg.Addrs) }

// Bind makes a socket. setup, if not nil, is called with it before it has a port.
func (e *Engine) Bind(a netip.AddrPort, setup func(*Socket) error) (*Socket, error) {
	ip := a.Addr().Unmap()
	if e.isClosed() {
		return nil, ErrClosed
	}
	if err := checkEndpoint(ip); err != nil {
		return nil, err
	}
	l := e.locals[ip]
	if l == nil {
		return nil, ErrAddrNotAvail
	}
	s := newSocket(e, l)
	if setup != nil {
		if err := setup(s); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, ErrClosed
	}
	err := l.ports.bind(s, a.Port(), func(port uint16) { s.addr = netip.AddrPortFrom(ip, port) })
	if err != nil {
		return nil, err
	}
	e.sockets[s] = struct{}{}
	return s, nil
}

// open returns the connection to remote, and makes it at first use. No lock may
// be held.
func (e *Engine) open(l *local, remote netip.Addr) (*conn, error) {
	var t transport.Transport = e.loop
	if e.locals[remote] == nil {
		t = e.wide
		if err := e.mayPeer(remote); err != nil {
			return nil, err
		}
	}
	if t == nil || e.isClosed() {
		return nil, ErrClosed
	}
	if _, err := t.Link(l.addr, remote); err != nil {
		return nil, ErrClosed
	}
	return l.linked(remote), nil
}

// NewLink implements [transport.Host].
func (e *Engine) NewLink(link transport.Link, localAddr, remote netip.Addr) transport.Handler {
	l := e.locals[localAddr]
	if l == nil {
		panic(fmt.Sprintf("engine: transport made a link from %v, which is not an address of the node", localAddr))
	}
	e.mu.Lock()
	p := e.peers[remote]
	if p == nil {
		p = newPeer(e, remote)
		e.peers[remote] = p
		if e.locals[remote] == nil {
			e.remotes++
		}
	}
	e.mu.Unlock()
	c := &conn{e: e, link: link, local: l, peer: p, remote: remote}
	if e.locals[remote] != nil {
		c.watch.on.Store(true) // the node itself makes progress when its sockets do
	}
	p.mu.Lock()
	c.watch.ended = p.ended
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	l.add(c)
	return c
}

// MayPeer implements [transport.Host].
func (e *Engine) MayPeer(remote netip.Addr) bool { return e.mayPeer(remote.Unmap()) == nil }

// mayPeer says why remote may not be a peer, nil if it may.
func (e *Engine) mayPeer(remote netip.Addr) error {
	if !e.allowed(remote) {
		return ErrNotAllowed
	}
	if !e.known(remote) && e.crowded() {
		return &detail{ErrPeerLimit, "%d are known, Config.MaxPeers is %d", e.cfg.MaxPeers, e.cfg.MaxPeers}
	}
	return nil
}

// Refused implements [transport.Host].
func (e *Engine) Refused(local, remote netip.AddrPort, err error) {
	e.count.refused.Add(1)
	ev := Event{Kind: Refused, Local: local.Addr().Unmap(), Remote: remote.Addr().Unmap(), Err: err}
	if remote.IsValid() {
		if why := e.mayPeer(ev.Remote); why != nil {
			ev.Err = why // the transport knows only that
		}
	}
	// Strangers are unlimited in number, so they share one limiter.
	e.mu.Lock()
	tell := e.strange.admit(&ev)
	e.mu.Unlock()
	if tell {
		e.events.emit(ev)
	}
}

func (e *Engine) allowed(remote netip.Addr) bool {
	if e.cfg.AllowPeers == nil {
		return true
	}
	remote = remote.WithZone("") // no prefix contains an address with a zone
	for _, p := range e.cfg.AllowPeers {
		if p.Contains(remote) {
			return true
		}
	}
	return false
}

func (e *Engine) known(remote netip.Addr) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peers[remote] != nil
}

func (e *Engine) crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.remotes >= e.cfg.MaxPeers
}

func (e *Engine) openSockets() []*Socket {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.sockets))
}

// Close ends all sockets, gives what is queued a grace time, ends the transports,
// and tells the listener the last events.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed.Load() {
		e.mu.Unlock()
		return ErrClosed
	}
	e.closed.Store(true)
	e.mu.Unlock()
	sockets := e.openSockets()

	deadline := time.Now().Add(closeGrace)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	// First of all nothing more is delivered: what comes now would be acknowledged and dropped.
	for _, t := range e.transports() {
		if q, ok := t.(interface{ Quiesce() }); ok {
			q.Quiesce()
		}
	}
	for _, s := range sockets {
		s.shut()
	}
	for _, s := range sockets {
		s.drain(ctx) // who does not make it is cut off
	}
	var errs []error
	for _, t := range e.transports() {
		errs = append(errs, t.Close(max(time.Until(deadline), 0)))
	}
	for _, s := range sockets {
		s.finish()
	}
	e.mu.Lock()
	for _, p := range e.peers {
		p.stopTimers()
	}
	e.mu.Unlock()
	e.ticks.Wait()
	errs = append(errs, e.seq.close(e.usedSeq()))
	e.events.close()
	return errors.Join(errs...)
}
