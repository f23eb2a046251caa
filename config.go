package rds

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rds-go/rds/internal/engine"
	"github.com/rds-go/rds/internal/wire"
)

// Config says how a [Node] is to be. Only Addrs is required; the zero value of
// every other field chooses its default. A Config is copied by [NewNode]:
// changing it later has no effect.
type Config struct {
	// Addrs are the local IP addresses of the node, at least one. Each must be
	// an address of this machine (127.0.0.0/8 and ::1 are addresses like
	// others, so 127.0.0.1, 127.0.0.2, … make several nodes on one machine).
	// Invalid: the unspecified address, broadcast and multicast addresses,
	// link-local IPv6 addresses without a zone, the same address twice.
	Addrs []netip.Addr

	// Port is the TCP port of RDS/TCP, to listen on and to dial. 0 means
	// [DefaultPort]; kernels use no other.
	Port uint16

	// AllowPeers are the networks from which a node may connect to this one
	// and to which this one may send. nil means everybody; an empty, non-nil
	// slice means nobody. RDS has no authentication, so a node that can be
	// reached by strangers should set it.
	AllowPeers []netip.Prefix

	// SendBuffer is S of new sockets in bytes: how many payload bytes a
	// socket may have queued and unacknowledged before sending blocks, and
	// the largest message it may send. 0 means [DefaultBuffer]; less than
	// 2304 means 2304, as in the kernel; negative or more than 1 GiB is
	// invalid.
	SendBuffer int

	// RecvBuffer is R of new sockets in bytes: with more than R bytes unread
	// a socket's port is congested and stays so until less than R/2 are
	// left. 0 means [DefaultBuffer]; less than 1152 means 1152, as in the
	// kernel; negative or more than 1 GiB is invalid.
	RecvBuffer int

	// MaxMessage is the largest message to send and to accept, in bytes. 0
	// means 1 MiB, which is what kernels send at most; negative or more than
	// 1 GiB is invalid. A peer that sends a larger one has its connection
	// dropped.
	MaxMessage int

	// PeerQueueLimit bounds the received bytes that one peer's messages may
	// occupy unread, counting 128 bytes for each message besides its
	// payload. Messages of 16 KiB and more count as a whole from when they
	// begin to arrive. At the limit, passed by one message or 64 KiB at most, the
	// peer's connections are not read any more until the queue has shrunk to
	// half; nothing is dropped and no other peer is affected. It should be many
	// times MaxMessage. 0 means 64 MiB; negative is invalid.
	//
	// Memory for a message is taken as it arrives: 128 KiB at first, and up to
	// eight times what has arrived, or as much as the largest message that came
	// on the connection before. A connection that waits in the middle of a
	// smaller message holds what has arrived of it, less than 24 KiB.
	PeerQueueLimit int64

	// NodeQueueLimit bounds the same for all peers together. As it fills up,
	// each peer may occupy at most eight times what is still free, so that
	// peers which are heavy at the same time get about equal shares and there
	// is always room for others. A peer that occupies nothing may always send
	// one message. 0 means 1 GiB; negative is invalid.
	NodeQueueLimit int64

	// MaxPeers bounds the number of remote addresses to which the node keeps
	// connections: a connection, once used, lives as long as the node. Peers
	// beyond it are refused and sending to them fails with [ErrPeerLimit].
	// Strangers who connect once count as well, another reason for AllowPeers.
	// 0 means 16384; negative is invalid.
	MaxPeers int

	// MaxConns bounds the TCP connections that were opened by peers and are
	// alive at once, all peers together. Further ones are refused. A peer uses
	// up to 8, and 16 more may wait for their turn. 0 means 65536 or half of
	// the descriptors that the process may open, whichever is less, so that
	// peers can never keep the node from connecting to others; negative is
	// invalid.
	MaxConns int

	// MaxPings bounds the answers to a peer's pings that may wait to be
	// sent; 64 times as many may be sent and unacknowledged. Pings beyond it
	// are not answered. 0 means 1024; negative is invalid.
	MaxPings int

	// MinBackoff and MaxBackoff bound the time between attempts to connect
	// to a peer, which doubles from the first to the second. 0 means 1 ms and
	// 1 s; negative, or the first greater than the second, is invalid.
	MinBackoff, MaxBackoff time.Duration

	// UserTimeout is how long sent data may stay unacknowledged by a peer's
	// TCP before the connection counts as broken (TCP_USER_TIMEOUT), also
	// because the peer keeps its window shut. It is then made anew and nothing
	// is lost. 0 means 30 s; negative is invalid.
	UserTimeout time.Duration

	// MapTimeout is how long a peer must be unreachable before what it said
	// about its congested ports is forgotten, so that senders blocked by it
	// go on (into their send buffers). 0 means 60 s; negative is invalid.
	MapTimeout time.Duration

	// StallTimeout is how long a peer may make no progress with what is queued
	// for it, connected or not, before it counts as stalled: counter
	// peer_stalls, [Events.PeerStalled]. Nothing else follows from it. It is
	// noticed up to a quarter later. 0 means 10 s; negative is invalid.
	StallTimeout time.Duration

	// GiveUp is how long a peer may make no progress with what is queued for
	// it before new sockets give up on it ([Socket.SetGiveUp] says what that
	// means). 0 means for ever, as in the kernel; negative is invalid.
	GiveUp time.Duration

	// StateDir is a directory, made if missing, in which the node keeps the
	// highest message number that it may have used. Peers recognise repeated
	// messages by their numbers; numbers begin at the wall clock in
	// microseconds, and with a StateDir they keep growing even if the clock
	// is set back while the node is down. Two nodes must not share one. ""
	// means none.
	StateDir string

	// Hold makes the node wait with its connections until [Node.Start] is called: it owns its
	// addresses, but neither accepts nor connects. A program that is restarted binds its
	// sockets in between, or what its peers kept for it arrives at ports that nobody has bound yet,
	// and is dropped.
	Hold bool

	// DisablePing says not to answer pings. Handshakes are answered always.
	DisablePing bool

	// Events are told what happens in the background; nil means nobody is.
	Events *Events
}

const (
	// DefaultPort is the TCP port of RDS/TCP.
	DefaultPort = wire.Port
	// DefaultBuffer is the default of Config.SendBuffer and
	// Config.RecvBuffer in bytes, the kernel's.
	DefaultBuffer = engine.DefaultBuffer
	// DefaultMaxMessage is the default of Config.MaxMessage in bytes.
	DefaultMaxMessage = wire.MaxMessage
)

const defaultMaxConns = 65536

// check validates what the engine does not and fills in defaults.
func (c *Config) check() error {
	for _, d := range []struct {
		name string
		v    time.Duration
		def  time.Duration
		p    *time.Duration
	}{
		{"MinBackoff", c.MinBackoff, time.Millisecond, &c.MinBackoff},
		{"MaxBackoff", c.MaxBackoff, time.Second, &c.MaxBackoff},
		{"UserTimeout", c.UserTimeout, 30 * time.Second, &c.UserTimeout},
	} {
		if d.v < 0 {
			return fmt.Errorf("%w: Config.%s is negative (%v)", ErrInvalid, d.name, d.v)
		}
		if d.v == 0 {
			*d.p = d.def
		}
	}
	if c.MinBackoff > c.MaxBackoff {
		return fmt.Errorf("%w: Config.MinBackoff %v is greater than MaxBackoff %v", ErrInvalid, c.MinBackoff, c.MaxBackoff)
	}
	if c.MaxPings < 0 {
		return fmt.Errorf("%w: Config.MaxPings is negative (%d)", ErrInvalid, c.MaxPings)
	}
	if c.MaxConns < 0 {
		return fmt.Errorf("%w: Config.MaxConns is negative (%d)", ErrInvalid, c.MaxConns)
	}
	if c.MaxConns == 0 {
		c.MaxConns = int(max(min(descriptorLimit()/2, defaultMaxConns), 1))
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	return nil
}

func (c *Config) engine() engine.Config {
	return engine.Config{
		Addrs:          c.Addrs,
		AllowPeers:     c.AllowPeers,
		SendBuffer:     c.SendBuffer,
		RecvBuffer:     c.RecvBuffer,
		MaxMessage:     c.MaxMessage,
		PeerQueueLimit: c.PeerQueueLimit,
		NodeQueueLimit: c.NodeQueueLimit,
		MaxPeers:       c.MaxPeers,
		MapTimeout:     c.MapTimeout,
		StallTimeout:   c.StallTimeout,
		GiveUp:         c.GiveUp,
		DisablePing:    c.DisablePing,
		StateDir:       c.StateDir,
		Listener:       c.Events.listener(),
	}
}
