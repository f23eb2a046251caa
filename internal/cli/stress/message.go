package stress

import "encoding/binary"

// A message says who sent it to whom, in which run and under which number; the rest is zeros, or, in
// a run with verification, a pattern that depends on all of that.
//
//	0     4       8      10   12     13   16       24        32
//	| tag | check | from | to | kind | 0  | number | request | pattern ...
//
// Integers are big endian. check is a hash of the other fields. number counts the
// messages of from to to, requests and answers alike, from 0; request is the number of
// the request, in an answer that of the one it answers.
const (
	offTag     = 0
	offCheck   = 4
	offFrom    = 8
	offTo      = 10
	offKind    = 12
	offNumber  = 16
	offRequest = 24
	headerSize = 32
)

// MinSize is the length of the smallest message in bytes: one without pattern.
const MinSize = headerSize

type kind uint8

const (
	request kind = iota
	answer
)

// header is what a message says about itself. Tasks are counted from 0.
type header struct {
	from, to uint16
	kind     kind
	number   uint64
	request  uint64
}

// layout is how the messages of one run are made.
type layout struct {
	tag    uint32 // tells runs apart
	size   [2]int // by kind
	verify bool
}

func newLayout(o *Options, tag uint32) layout {
	return layout{tag: tag, size: [2]int{request: o.ReqBytes, answer: o.AckBytes}, verify: o.Verify}
}

// mix is the finalizer of splitmix64: each bit of the result depends on each bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// state is the hash of a header: the check is its upper half, and the pattern begins from it.
func (h *header) state(tag uint32) uint64 {
	x := mix(uint64(tag)<<32 | uint64(h.from)<<16 | uint64(h.to))
	x = mix(x ^ h.number)
	x = mix(x ^ h.request)
	return mix(x ^ uint64(h.kind))
}

// put makes the message in buf, which must be long enough, and returns it.
func (l *layout) put(buf []byte, h header) []byte {
	m := buf[:l.size[h.kind]]
	x := h.state(l.tag)
	binary.BigEndian.PutUint32(m[offTag:], l.tag)
	binary.BigEndian.PutUint32(m[offCheck:], uint32(x>>32))
	binary.BigEndian.PutUint16(m[offFrom:], h.from)
	binary.BigEndian.PutUint16(m[offTo:], h.to)
	binary.BigEndian.PutUint32(m[offKind:], uint32(h.kind)<<24)
	binary.BigEndian.PutUint64(m[offNumber:], h.number)
	binary.BigEndian.PutUint64(m[offRequest:], h.request)
	if l.verify {
		fill(m[headerSize:], x)
	}
	return m
}

// fill writes the pattern that begins from x: the hashes of x, x+1, …
func fill(p []byte, x uint64) {
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, mix(x))
		x++
	}
	for x = mix(x); len(p) > 0; p, x = p[1:], x>>8 {
		p[0] = byte(x)
	}
}

// filled says whether p is the pattern that begins from x.
func filled(p []byte, x uint64) bool {
	for ; len(p) >= 8; p = p[8:] {
		if binary.LittleEndian.Uint64(p) != mix(x) {
			return false
		}
		x++
	}
	for x = mix(x); len(p) > 0; p, x = p[1:], x>>8 {
		if p[0] != byte(x) {
			return false
		}
	}
	return true
}

// verdict is what a receiver thinks of a message.
type verdict uint8

const (
	good    verdict = iota
	foreign         // intact, but of another run: a leftover, and nobody's fault
	damaged
)

// parse reads a message. The header is only valid when the verdict is good.
func (l *layout) parse(m []byte) (h header, v verdict) {
	if len(m) < headerSize {
		return h, damaged
	}
	tag := binary.BigEndian.Uint32(m[offTag:])
	h = header{
		from: binary.BigEndian.Uint16(m[offFrom:]), to: binary.BigEndian.Uint16(m[offTo:]), kind: kind(m[offKind]),
		number: binary.BigEndian.Uint64(m[offNumber:]), request: binary.BigEndian.Uint64(m[offRequest:]),
	}
	x := h.state(tag)
	switch {
	case binary.BigEndian.Uint32(m[offCheck:]) != uint32(x>>32), h.kind > answer,
		binary.BigEndian.Uint32(m[offKind:]) != uint32(h.kind)<<24:
		return h, damaged
	case tag != l.tag:
		return h, foreign
	case len(m) != l.size[h.kind], l.verify && !filled(m[headerSize:], x):
		return h, damaged
	}
	return h, good
}
