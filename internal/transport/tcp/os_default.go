//go:build !linux

package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// OSNetwork is the operating system's TCP. RDS needs to know what the peer's TCP
// has acknowledged, which only Linux tells here.
type OSNetwork struct {
	UserTimeout time.Duration
}

var errSystem = fmt.Errorf("rds/tcp: %s is not supported, only linux is: %w", runtime.GOOS, errors.ErrUnsupported)

func (*OSNetwork) Listen(netip.AddrPort) (transport.Listener, error) { return nil, errSystem }

func (*OSNetwork) Dial(context.Context, netip.Addr, netip.AddrPort, int, int) (transport.Stream, error) {
	return nil, errSystem
}
