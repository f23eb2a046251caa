// Package demo is the show behind `rds demo`: several nodes in one process send
// to each other over real TCP while their connections are killed, and a
// checker counts what was lost, doubled or put out of order.
//
// In comes a Config, out go a live table and a Verdict. The package uses the
// public API of rds like any program; only the killing goes through the
// fault-injecting network. It must not look into RDS to find its verdict: that
// rests on the numbers in its own messages.
package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/rds-go/rds"
)

// Config says what to show.
type Config struct {
	// Nodes is the number of nodes, 2 to 16.
	Nodes int
	// Sockets is the number of sockets on each node, 1 to 16.
	Sockets int
	// Duration is how long messages are sent and connections killed: at least MinDuration.
	// What follows (flush, drain, check) takes at most maxSettle more.
	Duration time.Duration
	// Seed decides which connections are killed when and how, and the length and content of each
	// message.
	Seed uint64
	// Size is the length of the largest message in bytes, MinSize to rds.DefaultMaxMessage. Lengths are
	// evenly spread from MinSize to Size.
	Size int
	// Rate is how many messages a second all sockets together try to send, at least 1; fewer when
	// that would be more than maxBytesPerSecond.
	Rate int
	// Port is the TCP port of RDS, 0 = 16385.
	Port uint16
	// Events are told what happens to the nodes; nil means nobody is.
	Events *rds.Events
	// Screen is where the live table goes; nil means nowhere.
	Screen io.Writer
	// Repaint says that Screen is a terminal: the table is painted over itself. Otherwise
	// a line is written each second.
	Repaint bool
}

const (
	// MinDuration leaves time for each manner of killing.
	MinDuration = time.Second
	maxNodes    = 16
	maxSockets  = 16
	// maxBytesPerSecond keeps a demo with large messages from filling the machine.
	maxBytesPerSecond = 32 << 20
	// maxSettle bounds flushing and draining after the last message.
	maxSettle = 15 * time.Second
	// afterglow is how long the sockets go on listening when everything has arrived, for
	// doubles.
	afterglow = 300 * time.Millisecond
)

// ConfigError says which field of a Config is out of its limits.
type ConfigError struct{ text string }

func (e *ConfigError) Error() string { return e.text }

func configErrorf(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf(format, args...)}
}

// check returns a *ConfigError or nil.
func (c *Config) check() error {
	switch {
	case c.Nodes < 2 || c.Nodes > maxNodes:
		return configErrorf("%d nodes: want 2 to %d", c.Nodes, maxNodes)
	case c.Sockets < 1 || c.Sockets > maxSockets:
		return configErrorf("%d sockets a node: want 1 to %d", c.Sockets, maxSockets)
	case c.Duration < MinDuration:
		return configErrorf("duration %v: want at least %v", c.Duration, MinDuration)
	case c.Size < MinSize || c.Size > rds.DefaultMaxMessage:
		return configErrorf("size %d: want %d to %d bytes", c.Size, MinSize, rds.DefaultMaxMessage)
	case c.Rate < 1:
		return configErrorf("rate %d: want at least 1 message a second", c.Rate)
	}
	return nil
}

// flows is the number of pairs of a sending and a receiving socket on different nodes.
func (c *Config) flows() int {
	sockets := c.Nodes * c.Sockets
	return sockets * (sockets - c.Sockets)
}

// pause is the time between two messages of a flow.
func (c *Config) pause() time.Duration {
	perSecond := min(float64(c.Rate), maxBytesPerSecond/(float64(MinSize+c.Size)/2))
	return time.Duration(float64(c.flows()) / perSecond * float64(time.Second))
}
