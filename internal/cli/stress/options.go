package stress

import (
	"context"
	"fmt"
	"time"

	"github.com/rds-go/rds"
)

// Options are what the active side decides for both sides. Their JSON form goes
// over the control connection.
type Options struct {
	// Tasks is the number of tasks on each side, 1 to MaxTasks.
	Tasks int `json:"tasks"`
	// Depth is how many requests a task has outstanding to each task of the other
	// side, 1 to MaxDepth.
	Depth int `json:"depth"`
	// ReqBytes and AckBytes are the lengths of requests and answers in bytes,
	// MinSize to rds.DefaultMaxMessage.
	ReqBytes int `json:"req_bytes"`
	AckBytes int `json:"ack_bytes"`
	// OneWay says that only the active side makes requests.
	OneWay bool `json:"one_way"`
	// Verify says that messages are filled with a pattern which the receiver checks.
	// Otherwise it checks their headers and lengths.
	Verify bool `json:"verify"`
}

const (
	// MaxTasks bounds the flows, whose number is its square.
	MaxTasks = 256
	// MaxDepth is the largest Options.Depth.
	MaxDepth = 65536
	// maxBuffer is the largest buffer that a socket can have, in bytes.
	maxBuffer = 1 << 30
	// DefaultPort is the usual number of Config.Port.
	DefaultPort = 4000
)

// OptionsError says which option is out of its limits, in terms of the flags of
// rds stress.
type OptionsError struct{ text string }

func (e *OptionsError) Error() string { return e.text }

func optionsErrorf(format string, args ...any) error {
	return &OptionsError{fmt.Sprintf(format, args...)}
}

// Check returns an *OptionsError or nil.
func (o *Options) Check() error {
	switch {
	case o.Tasks < 1 || o.Tasks > MaxTasks:
		return optionsErrorf("-t %d: want 1 to %d tasks", o.Tasks, MaxTasks)
	case o.Depth < 1 || o.Depth > MaxDepth:
		return optionsErrorf("-d %d: want 1 to %d outstanding requests", o.Depth, MaxDepth)
	case o.ReqBytes < MinSize || o.ReqBytes > rds.DefaultMaxMessage:
		return optionsErrorf("-q %d: want %d to %d bytes", o.ReqBytes, MinSize, rds.DefaultMaxMessage)
	case o.AckBytes < MinSize || o.AckBytes > rds.DefaultMaxMessage:
		return optionsErrorf("-a %d: want %d to %d bytes", o.AckBytes, MinSize, rds.DefaultMaxMessage)
	case o.outstandingBytes() > maxBuffer:
		return optionsErrorf("-t %d -d %d -q %d -a %d: a task could have %d bytes outstanding, at most %d fit its socket's buffer",
			o.Tasks, o.Depth, o.ReqBytes, o.AckBytes, o.outstandingBytes(), maxBuffer)
	}
	return nil
}

// outstandingBytes is what one task can have unacknowledged, and can have unread: all
// its own requests and all its answers.
func (o *Options) outstandingBytes() int {
	return o.Tasks * o.Depth * (o.ReqBytes + o.AckBytes)
}

// Config is what each side decides for itself.
type Config struct {
	// Port is the number of the control port. Task i, counted from 1, has the RDS
	// port Port + i, on both sides. Port + Options.Tasks must not exceed 65535.
	Port uint16
	// Time is how long requests are made; 0 means until the context ends or the other
	// side stops. The passive side ignores it.
	Time time.Duration
	// Timeout bounds each wait for the other side: for a line of the control
	// connection, and, at the end, for outstanding answers and messages. It must
	// be positive and longer than a few seconds, because lines come every second.
	Timeout time.Duration
	// SendBuffer and RecvBuffer are S and R of the sockets in bytes. 0 means
	// enough for everything outstanding, so that no socket is ever congested, and
	// at least rds.DefaultBuffer. SendBuffer must hold the largest message.
	SendBuffer, RecvBuffer int
	// ReadDelay is how long a task waits before each receive, for receivers slower
	// than senders. 0 means not at all.
	ReadDelay time.Duration
	// CPU says that the use of the processors is measured.
	CPU bool
	// Started is called when the tasks are about to begin. nil means no call.
	Started func(Options)
	// Each is called every second while requests are made; an error ends the run.
	// nil means no call.
	Each func(Interval) error
	// During runs beside the tasks while requests are made, and returns when its
	// context ends. It is where connections are killed. nil means nothing does.
	During func(context.Context)
}

// Check returns an *OptionsError, if the Config does not go with the Options, or nil.
func (c *Config) Check(o *Options) error {
	largest := max(o.ReqBytes, o.AckBytes)
	switch {
	case c.Port == 0 || int(c.Port)+o.Tasks > 65535:
		return optionsErrorf("-p %d: want 1 to %d, because %d tasks need the ports after it", c.Port, 65535-o.Tasks, o.Tasks)
	case c.Time < 0:
		return optionsErrorf("-T %v is negative", c.Time)
	case c.Timeout < MinTimeout:
		return optionsErrorf("--timeout %v: want at least %v", c.Timeout, MinTimeout)
	case c.SendBuffer < 0 || c.SendBuffer > maxBuffer || c.SendBuffer > 0 && c.SendBuffer < largest:
		return optionsErrorf("--send-buffer %d: want 0 or %d (the largest message) to %d bytes", c.SendBuffer, largest, maxBuffer)
	case c.RecvBuffer < 0 || c.RecvBuffer > maxBuffer:
		return optionsErrorf("--recv-buffer %d: want 0 to %d bytes", c.RecvBuffer, maxBuffer)
	case c.ReadDelay < 0:
		return optionsErrorf("--read-delay %v is negative", c.ReadDelay)
	}
	return nil
}

// MinTimeout is the smallest Config.Timeout: three times the pace of the control connection.
const MinTimeout = 3 * pace

// buffers returns S and R of the sockets.
func (c *Config) buffers(o *Options) (send, recv int) {
	fit := max(rds.DefaultBuffer, o.outstandingBytes())
	send, recv = fit, fit
	if c.SendBuffer > 0 {
		send = c.SendBuffer
	}
	if c.RecvBuffer > 0 {
		recv = c.RecvBuffer
	}
	return send, recv
}
