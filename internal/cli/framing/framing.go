// Package framing turns a byte stream into messages and messages into a byte
// stream, for the commands that join RDS sockets to standard input and output.
//
// RDS keeps the boundaries of messages, a pipe does not: a framing says how the
// pipe shows them. In come an io.Reader or io.Writer and the largest message;
// out come messages, or an Error that says which frame breaks which rule. The
// package knows nothing of sockets or addresses.
package framing

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Framing is a way to show message boundaries in a byte stream. It is a flag value (pflag.Value).
type Framing uint8

const (
	// Line: one message a line, without its newline. A last line without newline is a message as
	// well. A carriage return is an ordinary byte. A message that contains a newline is written as it
	// is and thus reads as several: text only.
	Line Framing = iota
	// Len32BE: the length as a 4-byte big-endian number, then that many bytes. Keeps every message,
	// empty and binary ones included.
	Len32BE
)

var names = [...]string{Line: "line", Len32BE: "len32be"}

// String returns the framing's name.
func (f Framing) String() string { return names[f] }

// Set makes f the framing called name.
func (f *Framing) Set(name string) error {
	for i, n := range names {
		if n == name {
			*f = Framing(i)
			return nil
		}
	}
	return fmt.Errorf("unknown framing %q: one of %s", name, strings.Join(names[:], ", "))
}

// Type names the kind of value in usage texts.
func (*Framing) Type() string { return strings.Join(names[:], "|") }

// Reader takes messages out of a byte stream.
type Reader interface {
	// Next returns the next message, which is valid until the call after this one. It returns
	// io.EOF at the end of the stream, an *Error when the stream does not fit the framing, and any
	// other error as the stream gave it.
	Next() ([]byte, error)
}

// Writer puts messages into a byte stream. It buffers: call Flush before waiting for something.
type Writer interface {
	WriteMessage(p []byte) error
	Flush() error
}

// NewReader returns a Reader of messages of at most largest bytes.
func (f Framing) NewReader(r io.Reader, largest int) Reader {
	br := bufio.NewReaderSize(r, 64<<10)
	if f == Len32BE {
		return &len32Reader{r: br, largest: largest}
	}
	return &lineReader{r: br, largest: largest}
}

// NewWriter returns a Writer to w.
func (f Framing) NewWriter(w io.Writer) Writer {
	bw := bufio.NewWriterSize(w, 64<<10)
	if f == Len32BE {
		return &len32Writer{bw}
	}
	return &lineWriter{bw}
}

// Error says that a stream does not fit its framing.
type Error struct {
	Framing Framing
	// Frame is the number of the line or frame, from 1.
	Frame int
	// Reason says which rule it breaks, and the limit.
	Reason string
}

func (e *Error) Error() string {
	noun := "frame"
	if e.Framing == Line {
		noun = "line"
	}
	return fmt.Sprintf("%s %d of the input: %s", noun, e.Frame, e.Reason)
}
