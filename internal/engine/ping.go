package engine

import (
	"context"
	"net/netip"
	"time"

	"github.com/rds-go/rds/internal/wire"
)

// Ping sends an empty message to port 0 of to and waits for the empty message
// from there (RDS spec section 14).
func (e *Engine) Ping(ctx context.Context, from, to netip.Addr) (time.Duration, error) {
	if err := checkEndpoint(to.Unmap()); err != nil {
		return 0, err
	}
	if !from.IsValid() {
		for _, a := range e.cfg.Addrs {
			if a.Is4() == to.Unmap().Is4() {
				from = a
				break
			}
		}
		if !from.IsValid() {
			return 0, ErrNotSupported
		}
	}
	s, err := e.Bind(netip.AddrPortFrom(from, 0), nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	pong := netip.AddrPortFrom(to.Unmap(), wire.PingPort)
	begun := time.Now()
	if err := s.Send(ctx, pong, nil); err != nil {
		return 0, err
	}
	for {
		var d Delivery
		if _, err := s.Recv(ctx, nil, &d); err != nil {
			return 0, err
		}
		if d.From == pong {
			return time.Since(begun), nil
		}
	}
}
