package engine

import (
	"slices"

	"github.com/rds-go/rds/internal/transport"
)

// ConnInfo is a snapshot of a connection.
type ConnInfo struct {
	transport.LinkInfo
	UnreadBytes    int64
	Stopped        bool
	Stalled        bool
	CongestedPorts int
}

// Connections describes all connections, ordered by local and remote address.
func (e *Engine) Connections() []ConnInfo {
	var list []ConnInfo
	for _, l := range e.locals {
		for _, c := range l.connections() {
			list = append(list, ConnInfo{
				LinkInfo:    c.link.Info(),
				UnreadBytes: c.peer.holding.bytes.Load(), Stopped: c.peer.holding.stopped.Load(),
				Stalled: c.isStalled(), CongestedPorts: c.peer.cong.count(),
			})
		}
	}
	slices.SortFunc(list, func(a, b ConnInfo) int {
		if c := a.Local.Compare(b.Local); c != 0 {
			return c
		}
		return a.Remote.Compare(b.Remote)
	})
	return list
}

// Sockets describes all sockets, ordered by address and port.
func (e *Engine) Sockets() []SocketInfo {
	e.mu.Lock()
	list := make([]SocketInfo, 0, len(e.sockets))
	for s := range e.sockets {
		list = append(list, s.info())
	}
	e.mu.Unlock()
	slices.SortFunc(list, func(a, b SocketInfo) int { return a.Local.Compare(b.Local) })
	return list
}
