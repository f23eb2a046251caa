//go:build linux

package integrationtests

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rds-go/rds"
)

// patience bounds every wait for something that should take a moment.
const patience = 30 * time.Second

// subnet is a part of 127.0.0.0/8 that nobody else uses: its addresses compare as their last bytes do.
type subnet [3]byte

func newSubnet() subnet {
	return subnet{127, byte(1 + rand.IntN(250)), byte(rand.IntN(256))}
}

func (n subnet) addr(last int) netip.Addr {
	return netip.AddrFrom4([4]byte{n[0], n[1], n[2], byte(last)})
}

// node makes a node at an address of the subnet.
func (n subnet) node(t testing.TB, last int, cfg rds.Config) *rds.Node {
	t.Helper()
	cfg.Addrs = []netip.Addr{n.addr(last)}
	node, err := rds.NewNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

func bind(t testing.TB, n *rds.Node, port uint16, opts ...rds.SocketOption) *rds.Socket {
	t.Helper()
	s, err := n.Bind(rds.AddrFrom(n.Addrs()[0], port), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// limited is a context for one step of a test.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition that somebody else brings about.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v passed and not: %s", patience, what)
		}
	}
}

// recorder counts events by name.
type recorder struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *recorder) events() *rds.Events {
	on := func(name string) func(rds.PeerEvent) {
		return func(rds.PeerEvent) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.counts == nil {
				r.counts = map[string]int{}
			}
			r.counts[name]++
		}
	}
	return &rds.Events{
		PeerUp: on("up"), PeerDown: on("down"), ProtocolError: on("protocol"), Refused: on("refused"), PingLimit: on("ping limit"),
		QueueLimit: on("limit"), QueueResumed: on("resumed"), PeerStalled: on("stalled"), PeerRecovered: on("recovered"),
		PeerGone: on("gone"), PeerCongested: on("congested"), PeerClear: on("clear"), PeerRestarted: on("restarted"), DialFailed: on("dial failed"),
	}
}

func (r *recorder) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[name]
}

// descriptors counts the open descriptors of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// simAddr is an address for simulated nodes; a smaller i makes a smaller address.
func simAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}) }
