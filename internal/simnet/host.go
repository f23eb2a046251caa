package simnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// Host is one process on a machine with some addresses: a transport.Network. After
// Kill it can do nothing any more; Net.Host makes its successor.
type Host struct {
	m    *machine
	dead bool // guarded by the lock of the Net
}

var _ transport.Network = (*Host)(nil)

// Host starts a process on the machine that has exactly these addresses, and makes
// or switches on the machine when needed.
func (n *Net) Host(addrs ...netip.Addr) *Host {
	if len(addrs) == 0 {
		panic("simnet: Host without an address")
	}
	addrs = slices.Clone(addrs)
	for i, a := range addrs {
		if addrs[i] = a.Unmap(); !a.IsValid() || a.IsUnspecified() {
			panic(fmt.Sprintf("simnet: Host with the address %v", a))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{m: n.boot(addrs)}
	h.m.hosts = append(h.m.hosts, h)
	return h
}

// Addrs returns the addresses of the machine.
func (h *Host) Addrs() []netip.Addr { return slices.Clone(h.m.addrs) }

// unmap returns a with an IPv4 address in its short form.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Listen implements transport.Network. Port 0 chooses one.
func (h *Host) Listen(local netip.AddrPort) (transport.Listener, error) {
	return h.ListenBacklog(local, h.m.net.opts.Backlog)
}

// ListenBacklog is Listen with a backlog of its own.
func (h *Host) ListenBacklog(local netip.AddrPort, backlog int) (*Listener, error) {
	n := h.m.net
	local = unmap(local)
	n.mu.Lock()
	defer n.mu.Unlock()
	fail := func(errno syscall.Errno) (*Listener, error) {
		return nil, opError("listen", netip.AddrPort{}, local, errno)
	}
	switch {
	case h.dead || n.closed:
		return fail(syscall.ENETDOWN)
	case !slices.Contains(h.m.addrs, local.Addr()):
		return fail(syscall.EADDRNOTAVAIL)
	}
	if local.Port() == 0 {
		// Above the ports that Dial uses.
		for port := uint16(61000); port != 0; port++ {
			if a := netip.AddrPortFrom(local.Addr(), port); h.m.listeners[a] == nil {
				local = a
				break
			}
		}
	}
	if local.Port() == 0 || h.m.listeners[local] != nil {
		return fail(syscall.EADDRINUSE)
	}
	l := &Listener{m: h.m, addr: local, backlog: backlog}
	l.wake.L = &n.mu
	h.m.listeners[local] = l
	return l, nil
}

// Dial implements transport.Network.
func (h *Host) Dial(ctx context.Context, local netip.Addr, remote netip.AddrPort, path, attempt int) (transport.Stream, error) {
	n := h.m.net
	local, remote = local.Unmap(), unmap(remote)
	e, err := h.prepare(local, remote, path, attempt)
	if err != nil {
		return nil, opError("dial", netip.AddrPortFrom(local, 0), remote, err)
	}
	if f := n.opts.OnDial; f != nil {
		f(e.conn)
	}
	e.connect()
	select {
	case <-e.ready:
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case e.state == synSent:
		err = ctx.Err()
		e.die(err)
	case e.connected:
		return e, nil
	default:
		err = e.err
	}
	return nil, opError("dial", e.local, remote, err)
}

// prepare makes a connection and its dialling end, and takes the port.
func (h *Host) prepare(local netip.Addr, remote netip.AddrPort, path, attempt int) (*Stream, error) {
	m, n := h.m, h.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case h.dead || n.closed:
		return nil, syscall.ENETDOWN
	case path < 0 || path > 7 || attempt < 0:
		return nil, syscall.EINVAL
	case !slices.Contains(m.addrs, local):
		return nil, syscall.EADDRNOTAVAIL
	case !remote.Addr().IsValid() || remote.Port() == 0 || remote.Addr().Is4() != local.Is4():
		return nil, syscall.EINVAL
	}
	port := m.port(local, remote, path, attempt)
	if port == 0 {
		return nil, syscall.EADDRNOTAVAIL
	}
	m.dials++
	n.stats.Dials++
	c := newConn(n, netip.AddrPortFrom(local, port), remote, m, n.machine(remote.Addr()), m.dials)
	return c.attach(Dialer, synSent), nil
}

// How says how a process ends.
type How uint8

const (
	// Exit ends the process as kill -9 does: its machine closes every stream, with a
	// FIN after what was written, or with an RST where something was unread.
	Exit How = iota
	// Abort ends the process with an RST on every stream; what was not yet sent is lost.
	Abort
	// PowerOff switches the machine off, with all its processes. Nothing is sent and
	// nothing answered until Net.Host starts it again; then its peers get an RST for what they send.
	PowerOff
)

func (h How) String() string { return [...]string{"exit", "abort", "power off"}[h] }

// Kill ends all processes of the machine. Calls on their streams fail with
// ECONNABORTED, those on listeners with net.ErrClosed, Dial and Listen with ENETDOWN.
func (h *Host) Kill(how How) {
	m, n := h.m, h.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.dead {
		return
	}
	m.off = how == PowerOff
	m.stopProcesses(func(e *Stream) {
		switch how {
		case Exit:
			e.abandon(false)
		case Abort:
			e.abandon(true)
		}
		if e.err == nil {
			e.err = errAborted
		}
		e.wake()
	})
	if m.off {
		clear(m.waiting)
		m.waitOrder = nil
		for _, e := range m.sortedStreams() {
			e.vanish()
		}
	}
}

// Stall freezes the receiving half of the machine's stack: for d nothing that
// arrives is taken, and so nothing acknowledged. Sending goes on.
func (h *Host) Stall(d time.Duration) {
	n := h.m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	h.m.frozen = max(h.m.frozen, n.clock.now()+d)
	for _, e := range h.m.sortedStreams() {
		e.conn.trouble()
	}
}

// errAborted is the error of streams whose own process or socket was destroyed.
const errAborted = syscall.ECONNABORTED

// opError wraps err the way package net does.
func opError(op string, local, remote netip.AddrPort, err error) error {
	if err == nil {
		return nil
	}
	e := &net.OpError{Op: op, Net: "tcp", Err: err}
	if local.IsValid() {
		e.Source = net.TCPAddrFromAddrPort(local)
	}
	if remote.IsValid() {
		e.Addr = net.TCPAddrFromAddrPort(remote)
	}
	return e
}
