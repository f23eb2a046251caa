package stress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// The control connection carries one JSON object a line. What is said, in this order
// (A the active side, P the passive one):
//
//	A  hello    protocol, version, tag, options
//	P  ready    its sockets are bound; or error
//	A  go       both make requests
//	   alive    by both, every second until the end
//	   stop     by one or both: no more requests
//	   drained  by both: my requests are answered, or were not in time
//	   sent     by both, after the drained of both: so many messages went from each of my tasks to
//	            each of yours, and no more will
//	   verdict  by both: what I got of them
//
// Either side may say error at any time and hang up.
const (
	// Protocol is what the first line must name.
	Protocol = "rds stress"
	// Version is raised whenever the two sides could misunderstand each other: the layout of
	// messages counts as well.
	Version = 1
	// helloLimit and lineLimit bound a line in bytes: of a stranger, and of the other side. The
	// longest is sent: MaxTasks squared numbers.
	helloLimit = 4 << 10
	lineLimit  = 2 << 20
	// pace is the time between two lines of alive.
	pace = time.Second
)

// line is one line of the control connection. Which fields are set depends on Type.
type line struct {
	Type     string          `json:"type"`
	Protocol string          `json:"protocol,omitempty"` // hello
	Version  int             `json:"version,omitempty"`  // hello
	Tag      uint32          `json:"tag,omitempty"`      // hello
	Options  json.RawMessage `json:"options,omitempty"`  // hello; may be of another version
	Error    string          `json:"error,omitempty"`    // error
	// Unanswered are the requests of the side that were not answered in time.
	Unanswered uint64     `json:"unanswered,omitempty"` // drained
	Sent       [][]uint64 `json:"sent,omitempty"`       // sent: by own task, by task of the other side
	Tally      *Tally     `json:"tally,omitempty"`      // verdict
}

// ErrPeer is matched by errors for which the other side, or the way to it, is responsible.
var ErrPeer = errors.New("the other side")

// peerError is an error that matches ErrPeer and says nothing of it.
type peerError struct{ error }

func (e *peerError) Unwrap() error        { return e.error }
func (e *peerError) Is(target error) bool { return target == ErrPeer }

func peerErrorf(format string, args ...any) error {
	return &peerError{fmt.Errorf(format, args...)}
}

// control is one end of the control connection. One goroutine sends and one receives.
type control struct {
	conn    net.Conn
	r       *bufio.Reader
	timeout time.Duration // of each line
}

func newControl(conn net.Conn, timeout time.Duration) *control {
	return &control{conn, bufio.NewReader(conn), timeout}
}

// unsent is the error of a line that could not be sent. The other side may have said why before it hung up.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

// send sends one line.
func (c *control) send(l line) error {
	text, err := json.Marshal(l)
	if err == nil {
		err = c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	}
	if err == nil {
		_, err = c.conn.Write(append(text, '\n'))
	}
	if err != nil {
		return &unsent{c.broken(err)}
	}
	return nil
}

// receive waits for one line of at most limit bytes, until ctx ends. An error that the other side
// reports is returned as one.
func (c *control) receive(ctx context.Context, limit int) (l line, err error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return l, c.broken(err)
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, err := readLine(c.r, limit)
	if ctx.Err() != nil {
		return l, context.Cause(ctx)
	}
	if err != nil {
		return l, c.broken(err)
	}
	if err := json.Unmarshal(text, &l); err != nil || l.Type == "" {
		return l, peerErrorf("%v does not speak the control protocol of rds stress (%.40q): the classic rds-stress has another one", c.conn.RemoteAddr(), text)
	}
	if l.Type == "error" {
		return l, peerErrorf("%v says: %.500s", c.conn.RemoteAddr(), l.Error)
	}
	return l, nil
}

// broken says what it means that the connection failed.
func (c *control) broken(err error) error {
	switch peer := c.conn.RemoteAddr(); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return peerErrorf("%v has been silent on the control connection for %v", peer, c.timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return peerErrorf("%v closed the control connection", peer)
	default:
		return peerErrorf("control connection with %v: %w", peer, err)
	}
}

// readLine returns the next line without its end. It is valid until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := append([]byte(nil), text...)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= limit {
			text, err = r.ReadSlice('\n')
			long = append(long, text...)
		}
		text = long
	}
	if len(text) > limit {
		return nil, fmt.Errorf("a line is longer than %d bytes", limit)
	}
	if err != nil {
		return nil, err
	}
	return text[:len(text)-1], nil
}
