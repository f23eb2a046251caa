package framing

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// lenSize is the size of the length in front of each message.
const lenSize = 4

type len32Reader struct {
	r       *bufio.Reader
	largest int
	n       int
	buf     []byte
}

func (l *len32Reader) Next() ([]byte, error) {
	l.n++
	var head [lenSize]byte
	if n, err := io.ReadFull(l.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = &Error{Len32BE, l.n, fmt.Sprintf("the input ends after %d of the %d bytes of the length", n, lenSize)}
		}
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if uint64(size) > uint64(l.largest) {
		return nil, &Error{Len32BE, l.n, fmt.Sprintf("announces %d bytes, more than the largest message, %d bytes", size, l.largest)}
	}
	if cap(l.buf) < int(size) {
		l.buf = make([]byte, size)
	}
	p := l.buf[:size]
	n, err := io.ReadFull(l.r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &Error{Len32BE, l.n, fmt.Sprintf("announces %d bytes, but the input ends after %d", size, n)}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

type len32Writer struct{ *bufio.Writer }

func (l *len32Writer) WriteMessage(p []byte) error {
	var head [lenSize]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(p)))
	if _, err := l.Write(head[:]); err != nil {
		return err
	}
	_, err := l.Write(p)
	return err
}
