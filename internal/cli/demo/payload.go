package demo

import "encoding/binary"

// A demo message says who sent it to whom and under which number; the rest is a pattern which depends
// on all of that and on the seed, and so does the length. A receiver can therefore compute what it
// should have got, and believes nothing of a message that differs in a single bit.
//
//	0      2    4       8        16
//	| from | to | tag   | number | pattern ...
const (
	offFrom    = 0
	offTo      = 2
	offTag     = 4
	offNumber  = 8
	headerSize = 16
)

// MinSize is the smallest value of Config.Size: a message without pattern.
const MinSize = headerSize

// pattern is the rule by which the messages of one run are made.
type pattern struct {
	seed uint64
	size int // the largest message, in bytes
}

// mix is the finalizer of splitmix64: each bit of the result depends on each bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// state returns where the pattern of a message begins.
func (p pattern) state(from, to uint16, number uint64) uint64 {
	return mix(mix(p.seed^uint64(from)<<16^uint64(to)) ^ number)
}

// length returns the length of a message.
func (p pattern) length(from, to uint16, number uint64) int {
	return headerSize + int(p.state(from, to, number)%uint64(p.size-headerSize+1))
}

// tag tells the messages of different runs apart.
func (p pattern) tag() uint32 { return uint32(mix(^p.seed)) }

// append appends a message to b.
func (p pattern) append(b []byte, from, to uint16, number uint64) []byte {
	end := len(b) + p.length(from, to, number)
	b = binary.BigEndian.AppendUint16(b, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint32(b, p.tag())
	b = binary.BigEndian.AppendUint64(b, number)
	var word [8]byte
	for x := p.state(from, to, number); len(b) < end; {
		x = mix(x)
		binary.BigEndian.PutUint64(word[:], x)
		b = append(b, word[:min(8, end-len(b))]...)
	}
	return b
}

// parse returns what a message says about itself; ok says that length, tag and every byte of the
// pattern are as they should be.
func (p pattern) parse(m []byte) (from, to uint16, number uint64, ok bool) {
	if len(m) < headerSize || binary.BigEndian.Uint32(m[offTag:]) != p.tag() {
		return 0, 0, 0, false
	}
	from = binary.BigEndian.Uint16(m[offFrom:])
	to = binary.BigEndian.Uint16(m[offTo:])
	number = binary.BigEndian.Uint64(m[offNumber:])
	if len(m) != p.length(from, to, number) {
		return from, to, number, false
	}
	var word [8]byte
	x := p.state(from, to, number)
	for rest := m[headerSize:]; len(rest) > 0; {
		x = mix(x)
		if len(rest) >= 8 {
			if binary.BigEndian.Uint64(rest) != x {
				return from, to, number, false
			}
			rest = rest[8:]
			continue
		}
		binary.BigEndian.PutUint64(word[:], x)
		if string(rest) != string(word[:len(rest)]) {
			return from, to, number, false
		}
		break
	}
	return from, to, number, true
}
