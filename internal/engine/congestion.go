package engine

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/rds-go/rds/internal/wire"
)

// congMap is the congestion map of one address: which of its ports are congested
// (RDS spec section 5). A local address's map is changed bit by bit by its
// sockets; a remote one's is replaced whenever the peer sends a map.
//
// Testing a bit is one atomic load while nothing was ever congested, and two
// after that. Words are read and written atomically, so nobody sees a torn one;
// a map as a whole is copied, never lent (defect D14).
type congMap struct {
	bits atomic.Pointer[congBits] // nil until a bit is set for the first time
	ones atomic.Int32             // bits set, as far as replace set them

	mu       sync.Mutex // held to replace the map and for the fields below
	waits    []congWait // for ports that are congested
	monitors map[monitor]struct{}
}

// congBits is 65536 bits; port p is bit p%64 of word p/64.
type congBits [wire.MapPorts / 64]atomic.Uint64

// congWait is a call that waits until a port is not congested.
type congWait struct {
	port uint16
	s    *Socket
	w    *waiter
}

// has says whether port is congested.
func (c *congMap) has(port uint16) bool {
	b := c.bits.Load()
	return b != nil && b[port>>6].Load()>>(port&63)&1 != 0
}

// set marks port as congested.
func (c *congMap) set(port uint16) {
	b := c.bits.Load()
	if b == nil {
		c.bits.CompareAndSwap(nil, new(congBits))
		b = c.bits.Load()
	}
	b[port>>6].Or(1 << (port & 63))
}

// clear marks port as not congested.
func (c *congMap) clear(port uint16) {
	if b := c.bits.Load(); b != nil {
		b[port>>6].And(^(uint64(1) << (port & 63)))
	}
}

// copyTo copies the map to m.
func (c *congMap) copyTo(m *wire.CongMap) {
	b := c.bits.Load()
	if b == nil {
		*m = wire.CongMap{}
		return
	}
	for i := range b {
		// Bit p%8 of byte p/8 is bit p%64 of little-endian word p/64.
		binary.LittleEndian.PutUint64(m[i*8:], b[i].Load())
	}
}

// replace makes the map equal to m, or empty with nil, and wakes those whose
// port is cleared by that, and nobody else (defect D11). It says whether the map
// was or is empty, and is not or was not.
func (c *congMap) replace(m *wire.CongMap) (turned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bits.Load()
	if b == nil {
		if m == nil || *m == (wire.CongMap{}) {
			return false
		}
		b = new(congBits)
		c.bits.Store(b)
	}
	before := c.ones.Load()
	ones, anyCleared := before, false
	for i := range b {
		var now uint64
		if m != nil {
			now = binary.LittleEndian.Uint64(m[i*8:])
		}
		old := b[i].Load()
		if old == now {
			continue
		}
		b[i].Store(now)
		ones += int32(bits.OnesCount64(now) - bits.OnesCount64(old))
		anyCleared = anyCleared || old&^now != 0
	}
	if m == nil {
		c.bits.Store(nil) // the peer is gone or new: it may never need one again
	}
	c.ones.Store(ones)
	if anyCleared {
		c.wake(func(cw congWait) bool { return !c.has(cw.port) })
		for m := range c.monitors {
			if !c.has(m.port) {
				delete(c.monitors, m)
				m.s.uncongested(m.port)
			}
		}
	}
	return (before > 0) != (ones > 0)
}

// wake wakes the calls for which is is true; c.mu is held.
func (c *congMap) wake(is func(congWait) bool) {
	kept := c.waits[:0]
	for _, cw := range c.waits {
		if is(cw) {
			cw.w.ch <- struct{}{}
		} else {
			kept = append(kept, cw)
		}
	}
	clear(c.waits[len(kept):])
	c.waits = kept
}

// wakeSocket wakes the calls of one socket, whatever they wait for.
func (c *congMap) wakeSocket(s *Socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake(func(cw congWait) bool { return cw.s == s })
}

// wait makes w, a call of s, wait for port, unless that is not congested any more.
func (c *congMap) wait(port uint16, w *waiter, s *Socket) (waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(port) {
		return false
	}
	c.waits = append(c.waits, congWait{port, s, w})
	return true
}

// done ends w's wait; got says whether its token was taken.
func (c *congMap) done(w *waiter, got bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if got {
		return
	}
	for i, cw := range c.waits {
		if cw.w == w {
			c.waits = append(c.waits[:i], c.waits[i+1:]...)
			return
		}
	}
	<-w.ch
}

// count returns the number of congested ports.
func (c *congMap) count() (n int) {
	if b := c.bits.Load(); b != nil {
		for i := range b {
			n += bits.OnesCount64(b[i].Load())
		}
	}
	return n
}
