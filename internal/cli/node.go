package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/loopback"
)

// open makes a node with the address local. Without one (the zero Addr) it takes one from which dest
// is reached. It sets Addrs, Port and Events of cfg.
func (c *common) open(cfg rds.Config, local, dest netip.Addr, events *rds.Events) (*rds.Node, netip.Addr, error) {
	return c.openWith(rds.NewNode, cfg, local, dest, events)
}

// openWith is open with another constructor than rds.NewNode.
func (c *common) openWith(newNode func(rds.Config) (*rds.Node, error), cfg rds.Config, local, dest netip.Addr, events *rds.Events) (*rds.Node, netip.Addr, error) {
	logger, err := c.logger()
	if err != nil {
		return nil, local, err
	}
	if logger != nil {
		events = events.Join(rds.SlogEvents(logger))
	}
	cfg.Port, cfg.Events = c.port, events

	given := local.IsValid()
	for try := 1; ; try++ {
		shared := false
		if !given {
			if local, shared, err = source(dest); err != nil {
				return nil, local, err
			}
		}
		cfg.Addrs = []netip.Addr{local}
		n, err := newNode(cfg)
		if err == nil {
			return n, local, nil
		}
		if !shared || try == loopback.Tries || !errors.Is(err, rds.ErrAddrInUse) {
			return nil, local, noNode(local, err)
		}
	}
}

// noNode puts an error of making a node on the address local into words: first what is wrong in short,
// then who has the address and what to do, if the library knows.
func noNode(local netip.Addr, err error) error {
	var op *rds.OpError
	var errno syscall.Errno
	if !errors.As(err, &op) || op.Detail == "" || !errors.As(err, &errno) {
		return err
	}
	return fmt.Errorf("cannot use %v: %w\n%s", local, errno, op.Detail)
}

// trouble remembers for each peer why it cannot be reached, as told by events.
type trouble struct {
	mu    sync.Mutex
	peers map[netip.Addr]string
}

func (t *trouble) events() *rds.Events {
	return &rds.Events{
		PeerUp:     func(ev rds.PeerEvent) { t.note(ev.Remote, "") }, // "" = none
		PeerDown:   func(ev rds.PeerEvent) { t.note(ev.Remote, because("connection lost", ev.Err)) },
		DialFailed: func(ev rds.PeerEvent) { t.note(ev.Remote, because("cannot connect", ev.Err)) },
		Refused:    func(ev rds.PeerEvent) { t.note(ev.Remote, because("its connection was turned away", ev.Err)) },
		ProtocolError: func(ev rds.PeerEvent) {
			if !ev.Harmless {
				t.note(ev.Remote, because("it does not speak RDS", ev.Err))
			}
		},
	}
}

func because(what string, err error) string {
	if err == nil {
		return what
	}
	return what + ": " + strings.TrimPrefix(err.Error(), "rds/tcp: ")
}

func (t *trouble) note(peer netip.Addr, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers == nil {
		t.peers = map[netip.Addr]string{}
	}
	t.peers[peer] = what
}

// with says what is known about peer; up is what to say when its connection is up.
func (t *trouble) with(peer netip.Addr, up string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	what, known := t.peers[peer]
	switch {
	case what != "":
		return what
	case known:
		return up
	}
	return "no connection and no refusal yet: packets may be dropped on the way"
}
