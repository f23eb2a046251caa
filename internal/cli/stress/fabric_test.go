package stress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rds-go/rds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// fabric is what joins the sockets of a test: it delivers messages after a delay, in order and once,
// except where a fault is planted. It has nothing of RDS but the two ways to have no room.
type fabric struct {
	delay time.Duration
	// room is how many messages a socket may have unread; more are refused with ENOBUFS. 0 = no limit.
	room int
	// plant returns what becomes of the n-th message (from 0) between two addresses: nil means nothing,
	// and the message is delivered.
	plant func(from, to rds.Addr, n int, m []byte) [][]byte

	mu      sync.Mutex
	sockets map[rds.Addr]*fabricSocket
	passed  map[[2]rds.Addr]int
}

// packet is a message on its way.
type packet struct {
	from rds.Addr
	data []byte
	at   time.Time // of arrival
}

func newFabric(delay time.Duration) *fabric {
	return &fabric{delay: delay, sockets: map[rds.Addr]*fabricSocket{}, passed: map[[2]rds.Addr]int{}}
}

// Bind implements Node.
func (f *fabric) Bind(at rds.Addr, _, _ int) (Socket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sockets[at] != nil {
		return nil, fmt.Errorf("bind %v: %w", at, syscall.EADDRINUSE)
	}
	s := &fabricSocket{f: f, at: at, packets: make(chan packet, 100000)}
	f.sockets[at] = s
	return s, nil
}

// Traffic implements Node.
func (*fabric) Traffic() Traffic { return Traffic{} }

type fabricSocket struct {
	f       *fabric
	at      rds.Addr
	packets chan packet
}

func (s *fabricSocket) TrySend(to rds.Addr, m []byte) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	dest := s.f.sockets[to]
	if dest == nil {
		return nil // as RDS does
	}
	if s.f.room > 0 && len(dest.packets) >= s.f.room {
		return fmt.Errorf("send: %w", syscall.ENOBUFS)
	}
	way := [2]rds.Addr{s.at, to}
	n := s.f.passed[way]
	s.f.passed[way]++
	var out [][]byte
	if s.f.plant != nil {
		out = s.f.plant(s.at, to, n, m)
	}
	if out == nil {
		out = [][]byte{m}
	}
	for _, m := range out {
		if m != nil {
			dest.packets <- packet{s.at, append([]byte(nil), m...), time.Now().Add(s.f.delay)}
		}
	}
	return nil
}

func (s *fabricSocket) Send(ctx context.Context, to rds.Addr, m []byte) error {
	for {
		if err := s.TrySend(to, m); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.f.delay):
		}
	}
}

func (s *fabricSocket) Recv(ctx context.Context, p []byte) (int, rds.Addr, error) {
	select {
	case <-ctx.Done():
		return 0, rds.Addr{}, ctx.Err()
	case pk := <-s.packets:
		time.Sleep(time.Until(pk.at))
		return copy(p, pk.data), pk.from, nil
	}
}

func (s *fabricSocket) Close() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	delete(s.f.sockets, s.at)
	return nil
}

// tcpPipe is a control connection in memory, with addresses.
func tcpPipe() (a, b net.Conn) {
	x, y := net.Pipe()
	at := func(ip netip.Addr, port uint16) net.Addr {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
	}
	return addressed{x, at(addrA, 54321), at(addrB, 4000)}, addressed{y, at(addrB, 4000), at(addrA, 54321)}
}

type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// outcome is what one side returned.
type outcome struct {
	sum Summary
	err error
}

// runPair runs both sides over node and returns what each of them says.
func runPair(ctx context.Context, node Node, o Options, active, passive Config) (a, p outcome) {
	x, y := tcpPipe()
	var wg sync.WaitGroup
	wg.Go(func() { a.sum, a.err = Active(ctx, x, node, o, active) })
	wg.Go(func() {
		p.sum, p.err = Passive(ctx, y, func(netip.Addr) (Node, error) { return node, nil }, passive)
	})
	wg.Wait()
	return a, p
}
