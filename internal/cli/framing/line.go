package framing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

type lineReader struct {
	r       *bufio.Reader
	largest int
	n       int
	long    []byte // collects a line that does not fit r's buffer
}

func (l *lineReader) Next() ([]byte, error) {
	l.n++
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		if len(l.long)+len(part) > l.largest {
			return nil, &Error{Line, l.n, fmt.Sprintf("longer than the largest message, %d bytes", l.largest)}
		}
		switch {
		case err == nil && len(l.long) == 0:
			return part, nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
			continue
		case err == nil, errors.Is(err, io.EOF) && len(l.long)+len(part) > 0:
			l.long = append(l.long, part...)
			return l.long, nil
		}
		return nil, err
	}
}

type lineWriter struct{ *bufio.Writer }

func (l *lineWriter) WriteMessage(p []byte) error {
	if _, err := l.Write(p); err != nil {
		return err
	}
	return l.WriteByte('\n')
}
