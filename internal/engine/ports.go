package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/rds-go/rds/internal/wire"
)

// firstPort is the lowest port that a socket can have: 0 answers pings and 1 is
// the source of handshakes (RDS spec section 2).
const firstPort = uint16(wire.ProbePort) + 1

// portTable says which socket has which port of one local address. Looking up
// takes no lock and no atomic write, since every message in does it.
type portTable struct {
	mu    sync.Mutex // held to change the table
	pages [256]atomic.Pointer[portPage]
}

// portPage is 256 consecutive ports. Once made it stays.
type portPage [256]atomic.Pointer[Socket]

// lookup returns the socket of a port, nil if there is none.
func (t *portTable) lookup(port uint16) *Socket {
	p := t.pages[port>>8].Load()
	if p == nil {
		return nil
	}
	return p[port&0xff].Load()
}

// slot returns the place of a port; t.mu is held.
func (t *portTable) slot(port uint16) *atomic.Pointer[Socket] {
	page := &t.pages[port>>8]
	p := page.Load()
	if p == nil {
		p = new(portPage)
		page.Store(p)
	}
	return &p[port&0xff]
}

// bind gives a port to s; port 0 means any, chosen as the kernel does: upwards
// from a random one, around the end (RDS spec section 2). named is called before
// s can be found under the port.
func (t *portTable) bind(s *Socket, port uint16, named func(port uint16)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if port == 0 {
		start := firstPort + uint16(rand.IntN(wire.MapPorts-int(firstPort)))
		return t.bindFrom(s, start, named)
	}
	if port < firstPort {
		return ErrInvalid
	}
	if t.lookup(port) != nil {
		return ErrAddrInUse
	}
	named(port)
	t.slot(port).Store(s)
	return nil
}

// bindFrom gives s the first free port from start on; t.mu is held.
func (t *portTable) bindFrom(s *Socket, start uint16, named func(port uint16)) error {
	for port := start; ; {
		if t.lookup(port) == nil {
			named(port)
			t.slot(port).Store(s)
			return nil
		}
		if port++; port < firstPort {
			port = firstPort
		}
		if port == start {
			return ErrAddrInUse
		}
	}
}

// unbind frees the port if s still has it.
func (t *portTable) unbind(s *Socket, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lookup(port) == s {
		t.slot(port).Store(nil)
	}
}
