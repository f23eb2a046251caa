// Package loop is the transport between addresses of the same node: a message
// that is sent is delivered to the other end before Send returns, and is
// acknowledged at once (RDS spec section 14).
//
// In come the messages of the engine and out they go to the engine again, to
// the handler of the connection's other end. There is no goroutine, no stream
// and no retransmission here. Only when the engine says that the receiving side
// holds as much as it may, messages wait here, unacknowledged, until it resumes.
//
// The package must not know sockets; it knows of ports only that port 0 answers
// pings.
package loop

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// Config says how a [Transport] is to be.
type Config struct {
	// DisablePing says not to answer pings.
	DisablePing bool
}

// Transport makes the links between the addresses of one node.
type Transport struct {
	cfg  Config
	host transport.Host

	recvPing, sendPong atomic.Uint64

	mu     sync.Mutex // guards the fields below; not held while the host is called
	links  map[pair]*link
	closed bool
}

// pair is a connection seen from one of its ends.
type pair struct{ local, remote netip.Addr }

// New returns a transport for host.
func New(cfg Config, host transport.Host) *Transport {
	return &Transport{cfg: cfg, host: host, links: make(map[pair]*link)}
}

// Link implements [transport.Transport]. Making the link from local to remote
// makes the one from remote to local as well.
func (t *Transport) Link(local, remote netip.Addr) (transport.Link, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, net.ErrClosed
	}
	l, made := t.links[pair{local, remote}], false
	if l == nil {
		made = true
		l = newLink(t, local, remote)
		t.links[pair{local, remote}] = l
		if local == remote {
			l.peer = l
		} else {
			l.peer = newLink(t, remote, local)
			l.peer.peer = l
			t.links[pair{remote, local}] = l.peer
		}
	}
	t.mu.Unlock()
	if made {
		l.start()
	}
	// Another call may still be introducing it to the host.
	<-l.ready
	<-l.peer.ready
	return l, nil
}

// Links implements [transport.Transport].
func (t *Transport) Links(f func(transport.Link)) {
	t.mu.Lock()
	all := make([]*link, 0, len(t.links))
	for _, l := range t.links {
		all = append(all, l)
	}
	t.mu.Unlock()
	for _, l := range all {
		<-l.ready
		f(l)
	}
}

// Close implements [transport.Transport]. Nothing is on its way, so there is
// nothing to drain and grace is not used; messages that wait for the receiving
// side are forgotten.
func (t *Transport) Close(grace time.Duration) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return net.ErrClosed
	}
	t.closed = true
	all := make([]*link, 0, len(t.links))
	for _, l := range t.links {
		all = append(all, l)
	}
	t.mu.Unlock()
	for _, l := range all {
		l.close()
	}
	return nil
}

// Counters calls f for each counter of the transport, by its kernel name.
func (t *Transport) Counters(f func(name string, value uint64)) {
	f("recv_ping", t.recvPing.Load())
	f("send_pong", t.sendPong.Load())
}
