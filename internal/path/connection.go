package path

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rds-go/rds/internal/wire"
)

// Config describes a connection. All fields are needed unless a zero value is explained.
type Config struct {
	Local, Remote netip.Addr
	// Generation is random for each life of this process; never 0.
	Generation uint32
	// GenNum announces the generation as the kernel's own GEN_NUM item too. Kernels then discard
	// what they were about to retransmit whenever it changes (RDS spec section 12), so it is off; the
	// generation travels in the private item, which only own nodes read.
	GenNum bool
	// FirstSeq is the first message number of every path: larger than any used before.
	FirstSeq uint64
	// MaxAckDelay bounds how long an acknowledgement waits for data to ride on.
	MaxAckDelay time.Duration
	// MinBackoff and MaxBackoff bound the pause between attempts to connect.
	MinBackoff, MaxBackoff time.Duration
	// MaxPongs is the number of unsent pongs beyond which further pings go unanswered.
	MaxPongs int
	// DisablePing leaves pings unanswered. Probes are always answered.
	DisablePing bool
	// Handshake is how probes and pongs describe this node; zero means the defaults. (Tests set unknown versions.)
	Handshake wire.Handshake
	// Rand returns a number in [0, n).
	Rand func(n int64) int64
}

const (
	// DrainLimit is how long an orderly teardown waits for the peer's FIN.
	DrainLimit = 5 * time.Second
	// kernelAfter: a peer that says nothing of itself this long acknowledges by TCP (design decision 2).
	kernelAfter = time.Second
	// silentAfter: a stream on which no frame arrived at all this long is given up, unless the peer is known
	// to be a kernel (which has its map on another path then).
	silentAfter = 5 * time.Second
	// checkGrace is how long an old stream may take to prove that it is alive when
	// a new one arrives that could be its successor.
	checkGrace = time.Second
	// pokeBackoff is the first pause of a larger side before it wakes the smaller one (again).
	pokeBackoff = 100 * time.Millisecond
	// MaxHeld bounds the streams that wait for a path of the connection.
	MaxHeld = 2 * wire.MaxPaths
	// idleBackoff caps the pause when nothing waits to be sent; the peer may have something.
	idleBackoff = 5 * time.Second
	// strangerBackoff is the same for a peer that woke us and never sent a frame: it may be none.
	strangerBackoff = time.Minute

	sampleUrgent   = time.Millisecond
	sampleRelaxed  = 20 * time.Millisecond
	sampleSlackest = 100 * time.Millisecond
)

// State of a path (RDS spec section 13).
type State uint8

//	Want, loss, poke             dialled, adopted
//
// DOWN ------------------> CONNECTING ----------------> UP
// ^  ^                         |                        | superseded, silent, closing
// |  +-------- failed ---------+                        v
// +------------------ stream ended ----------------- DRAINING
const (
	Down       State = iota // no stream
	Connecting              // our own attempt is under way
	Up                      // frames flow
	Draining                // we sent FIN and read on until the peer's
)

func (s State) String() string {
	return [...]string{"DOWN", "CONNECTING", "UP", "DRAINING"}[s]
}

// ackMode says what releases the messages of the present stream.
type ackMode uint8

const (
	ackNone ackMode = iota // nothing yet: we do not know what the peer is
	ackTCP                 // bytes that the peer's TCP acknowledged
	ackSeq                 // h_ack
)

// Path is one lane of a connection.
type Path struct {
	State State
	Tx    Sender
	Rx    Receiver // belongs to the reader

	mode      ackMode
	heard     bool      // a frame arrived on this stream
	restarted bool      // this stream showed that the peer was restarted
	mapDue    bool      // the congestion map is to be sent
	paused    bool      // the reader waits for room in the node
	rxDone    uint64    // last number delivered, for h_ack
	ackOwed   bool      // the peer has not been told of rxDone
	heardAck  uint64    // largest h_ack of this stream
	ackDue    time.Time // when it must be told at the latest
	ackTimer  bool      // ackDue is still to be waited for
	pongs     int       // unsent pongs, at most
	attempt   int       // attempts to dial since the last success: group of source ports
	backoff   time.Duration
	retryAt   time.Time // when to dial again
	upAt      time.Time // when the stream came up
	kernelAt  time.Time // when the peer is taken for a kernel, unless it says what it is
	drainEnd  time.Time // when a drain is cut off
	checkCtl  int       // which control frame of Tx is the map that checks the stream
	checkEnd  time.Time // when an old stream that is being checked counts as dead
	sampleAt  time.Time // when to ask how much TCP acknowledged
	sampleIn  time.Duration

	// Resets counts the streams lost.
	Resets uint64
}

// Done is the last number of the peer that was delivered.
func (p *Path) Done() uint64 { return p.rxDone }

// ActionKind says what the driver has to do.
type ActionKind uint8

const (
	// ActDial: connect path Path, with source ports of group Attempt; then call Dialed.
	ActDial ActionKind = iota + 1
	// ActWrite: Path has something to write.
	ActWrite
	// ActHangUp: send FIN on the stream of Path and read on to the end.
	ActHangUp
	// ActAbandon: the drain of Path takes too long: close its stream, read to its end or not.
	ActAbandon
	// ActPromote: the oldest held stream whose home was From becomes the stream of Path.
	ActPromote
	// ActSample: ask how many bytes of the stream of Path TCP has not acknowledged; then call Sampled.
	ActSample
)

// Action is something for the driver to do.
type Action struct {
	Kind    ActionKind
	Path    int
	Attempt int
	From    int
}

// EventKind says what is worth reporting.
type EventKind uint8

const (
	EventUp EventKind = iota + 1
	EventDown
	EventPeerRestarted
	EventPeerKnown
	EventOddSequence
	EventPingLimit // a ping or probe was not answered: too many answers wait
)

// Event is something worth reporting.
type Event struct {
	Kind  EventKind
	Path  int
	Count int
	Own   bool
}

// Connection is what a pair of addresses shares.
type Connection struct {
	cfg     Config
	smaller bool // our address is the smaller one: we dial
	peer    Peer
	paths   []*Path
	held    []int  // home paths of the streams that wait, oldest first
	met     bool   // a frame of the peer arrived, ever
	ponged  bool   // the peer answered a probe of this process: it knows us
	epoch   uint64 // grows when the peer's numbers start anew
	closing bool

	actions, spare []Action // what to do, and what was taken and is being done
	events         []Event

	// Counts are what the connection has done, for the kernel's counters.
	Counts Counts
}

// Counts count what a connection does by itself.
type Counts struct {
	Pings      uint64 // pings answered, probes among them
	Pongs      uint64 // probes and pongs queued
	Raced      uint64 // own attempts given up for an incoming stream
	Superseded uint64 // incoming streams held because their path had one
}

// New returns a connection with path 0, down.
func New(cfg Config) *Connection {
	c := &Connection{cfg: cfg, smaller: less(cfg.Local, cfg.Remote)}
	if c.cfg.Handshake == (wire.Handshake{}) {
		h := wire.Handshake{NPaths: 1, SportIdx: true, Own: true, Features: wire.FeatureCsum,
			MaxAckDelay: uint8(min(cfg.MaxAckDelay.Milliseconds(), 255))}
		if cfg.GenNum {
			h.Generation = cfg.Generation
		} else {
			h.OwnGeneration = cfg.Generation
		}
		c.cfg.Handshake = h
	}
	c.path(0)
	return c
}

// less orders addresses as RDS does: as 16 bytes, IPv4 mapped (RDS spec section 2).
func less(a, b netip.Addr) bool {
	x, y := a.As16(), b.As16()
	return string(x[:]) < string(y[:])
}

// path returns path i and makes it if need be.
func (c *Connection) path(i int) *Path {
	for len(c.paths) <= i {
		p := &Path{}
		p.Tx.seq = c.cfg.FirstSeq - 1
		c.paths = append(c.paths, p)
	}
	return c.paths[i]
}

// Smaller says that this side dials.
func (c *Connection) Smaller() bool { return c.smaller }

// Peer is what is known of the peer.
func (c *Connection) Peer() Peer { return c.peer }

// Paths returns the number of paths that exist.
func (c *Connection) Paths() int { return len(c.paths) }

// Path returns path i.
func (c *Connection) Path(i int) *Path { return c.path(i) }

// Take returns the actions and events since the last call. The actions are valid until the next call, the
// events until the next event.
func (c *Connection) Take() ([]Action, []Event) {
	a, e := c.actions, c.events
	c.actions, c.spare, c.events = c.spare[:0], a, c.events[:0]
	return a, e
}

// Quiet says that Take would return nothing.
func (c *Connection) Quiet() bool { return len(c.actions) == 0 && len(c.events) == 0 }

func (c *Connection) act(k ActionKind, path int) {
	c.actions = append(c.actions, Action{Kind: k, Path: path})
}

// Want says that something was queued: a path that is down must come up.
func (c *Connection) Want(now time.Time) {
	p := c.path(0)
	if p.State == Down && (p.retryAt.IsZero() || p.retryAt.After(now.Add(c.cfg.MaxBackoff))) {
		c.dial(now, 0)
	}
}

func (c *Connection) dial(now time.Time, i int) {
	p := c.path(i)
	if c.closing || p.State != Down {
		return
	}
	p.State, p.retryAt = Connecting, time.Time{}
	c.actions = append(c.actions, Action{Kind: ActDial, Path: i, Attempt: p.attempt})
	p.attempt++
}

// Dialed says how an ActDial ended. It returns whether the stream is to be used;
// if not it must be closed at once, without a byte of RDS on it.
func (c *Connection) Dialed(now time.Time, i int, ok bool) (use bool) {
	p := c.path(i)
	if p.State != Connecting {
		c.Counts.Raced++
		// An incoming stream took the path meanwhile (duel), or we are closing.
		return false
	}
	p.State = Down
	if ok && c.smaller {
		c.up(now, i)
		return true
	}
	c.backOff(now, p)
	return false
}

// backOff schedules the next attempt.
func (c *Connection) backOff(now time.Time, p *Path) {
	if c.closing {
		return
	}
	wanted := p.Tx.Wanted()
	if !c.smaller {
		// Our attempts only wake the smaller side: pointless without something to
		// send, and after a success it deserves a moment to dial back.
		if !wanted {
			p.retryAt, p.backoff = time.Time{}, 0
			return
		}
		p.backoff = min(max(2*p.backoff, pokeBackoff), max(c.cfg.MaxBackoff, pokeBackoff))
		p.retryAt = now.Add(p.backoff/2 + time.Duration(c.cfg.Rand(int64(p.backoff/2)+1)))
		return
	}
	limit := c.cfg.MaxBackoff
	if !wanted {
		limit = max(limit, idleBackoff)
		if !c.met {
			limit = max(limit, strangerBackoff)
		}
	}
	p.backoff = min(max(2*p.backoff, c.cfg.MinBackoff), limit)
	p.retryAt = now.Add(time.Duration(c.cfg.Rand(int64(p.backoff) + 1)))
}

// Admission says what to do with an incoming stream.
type Admission uint8

const (
	Refuse Admission = iota // close it at once
	Adopt                   // it is the stream of the path from now on
	Hold                    // keep it unread until ActPromote
)

// Incoming decides about a stream from the peer's port, by the address order (RDS spec
// section 10) and by the rules for stale streams and lanes.
func (c *Connection) Incoming(now time.Time, port uint16) (Admission, int) {
	if c.closing {
		return Refuse, 0
	}
	if c.smaller {
		// The larger side only wakes us.
		p := c.path(0)
		switch {
		case p.State == Down:
			p.backoff = 0
			c.dial(now, 0)
		case p.State == Up:
			// It lost our stream, or never had it: a map makes it answer or reset.
			p.mapDue = true
			c.act(ActWrite, 0)
		}
		return Refuse, 0
	}
	i := 0
	if c.peer.identified() {
		i = int(port % wire.MaxPaths)
	}
	p := c.path(i)
	switch p.State {
	case Down, Connecting:
		if slices.Contains(c.held, i) {
			break // an older one waits its turn
		}
		c.up(now, i)
		return Adopt, i
	}
	if len(c.held) >= MaxHeld {
		return Refuse, i
	}
	c.held = append(c.held, i)
	c.Counts.Superseded++
	if p.State == Up {
		if c.peer.identified() {
			// The peer opens one stream per index: the old one is dead or dying.
			c.hangUp(now, i)
		} else if p.checkEnd.IsZero() {
			// Its successor, or a further path of a peer that remembers more of
			// them: a map on the old stream shows which.
			p.mapDue = true
			p.checkEnd = now.Add(checkGrace)
			p.checkCtl = p.Tx.ctlPut + 1
			p.sampleAt = now.Add(sampleUrgent)
			c.act(ActWrite, i)
		}
	}
	return Hold, i
}

// hangUp begins the orderly end of a stream.
func (c *Connection) hangUp(now time.Time, i int) {
	p := c.path(i)
	p.State = Draining
	p.drainEnd = now.Add(DrainLimit)
	p.checkEnd = time.Time{}
	c.act(ActHangUp, i)
}

// up starts a new stream on path i.
func (c *Connection) up(now time.Time, i int) {
	p := c.path(i)
	p.State, p.upAt = Up, now
	p.Tx.Up()
	p.mode, p.heard, p.restarted = ackNone, false, false
	p.Rx.fresh, p.Rx.own, p.Rx.csum = true, false, false
	c.syncEpoch(p)
	p.mapDue = true
	p.ackOwed = false
	p.heardAck = 0
	p.retryAt = time.Time{}
	p.kernelAt = now.Add(silentAfter)
	p.drainEnd, p.checkEnd, p.sampleAt = time.Time{}, time.Time{}, time.Time{}
	p.sampleIn = sampleRelaxed
	if i == 0 && !p.Tx.HasProbe() {
		// Every new path 0 brings a probe, in both roles: a kernel that had one
		// unanswered would never ask again (RDS spec section 15).
		c.probe(p)
	}
	c.act(ActWrite, i)
	c.events = append(c.events, Event{Kind: EventUp, Path: i})
}

func (c *Connection) syncEpoch(p *Path) {
	if p.Rx.epoch != c.epoch {
		p.Rx.epoch = c.epoch
		p.Rx.forget()
	}
}

func (c *Connection) probe(p *Path) {
	c.Counts.Pongs++
	p.Tx.EnqueueProbe(&wire.Header{SPort: wire.ProbePort, DPort: wire.PingPort, Ext: c.cfg.Handshake.Area()})
}

// Ended says that the stream of path i is read to its end, its last acknowledgements are
// accounted (Sampled), and it is closed.
func (c *Connection) Ended(now time.Time, i int) {
	p := c.path(i)
	p.State = Down
	p.Resets++
	again := p.Tx.Down(c.ponged)
	p.pongs = 0
	p.mode = ackNone
	p.ackOwed = false
	p.kernelAt, p.drainEnd, p.checkEnd, p.sampleAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	c.events = append(c.events, Event{Kind: EventDown, Path: i, Count: again})
	if c.closing {
		return
	}
	c.MapChanged() // a map may have been lost with the stream (defect D13): another path takes it
	if c.promote(now, i, i) {
		return
	}
	if i != 0 {
		return // further paths are the peer's affair until we fan out ourselves
	}
	if c.smaller {
		if !p.heard {
			// It was refused rather than lost: a larger kernel whose old stream is not dead yet
			// resets every new one.
			c.backOff(now, p)
			return
		}
		c.dial(now, 0)
	} else if p.Tx.Wanted() {
		// The smaller side dials by itself; wake it if it does not.
		p.retryAt = now.Add(pokeBackoff)
	}
}

// promote makes the oldest stream held for home the stream of path i.
func (c *Connection) promote(now time.Time, home, i int) bool {
	k := slices.Index(c.held, home)
	if k < 0 {
		return false
	}
	c.held = slices.Delete(c.held, k, k+1)
	c.actions = append(c.actions, Action{Kind: ActPromote, Path: i, From: home})
	c.up(now, i)
	return true
}

// Ending says that the stream of path i has been read to its end: it is not alive, whatever TCP says last.
func (c *Connection) Ending(i int) { c.path(i).checkEnd = time.Time{} }

// alive says that the old stream of path i, which was being checked, is alive: what waits for it
// are further paths of the peer.
func (c *Connection) alive(now time.Time, i int) {
	c.path(i).checkEnd = time.Time{}
	for free := 0; free < wire.MaxPaths; free++ {
		if c.path(free).State == Down && !c.promote(now, i, free) {
			return
		}
	}
}

// Close stops all attempts. Streams end in good order; those that wait for a path are the driver's to close.
func (c *Connection) Close(now time.Time) {
	c.closing = true
	c.held = nil
	for i, p := range c.paths {
		p.retryAt = time.Time{}
		switch p.State {
		case Up:
			c.hangUp(now, i)
		case Connecting:
			p.State = Down
		}
	}
}
