package rds

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// listenError makes an error of listening match our sentinels, as those of sockets
// do.
func listenError(err error) error {
	for _, s := range []error{ErrAddrInUse, ErrAddrNotAvail} {
		var errno syscall.Errno
		if errors.As(s, &errno) && errors.Is(err, errno) {
			return &asSentinel{err, s}
		}
	}
	return err
}

// asSentinel is an error that is also one of our sentinels.
type asSentinel struct {
	error
	sentinel error
}

func (e *asSentinel) Is(target error) bool { return target == e.sentinel }
func (e *asSentinel) Unwrap() error        { return e.error }

// explainListen says what can be done about an error of listening on one of the
// addresses: who has the port, and the ways out.
func explainListen(err error, addrs []netip.Addr, port uint16) string {
	var b strings.Builder
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		for _, a := range addrs {
			if owner := listenerOn(netip.AddrPortFrom(a, port)); owner != "" {
				fmt.Fprintf(&b, "TCP port %d of %v is taken by %s.\n", port, a, owner)
			}
		}
		b.WriteString("Ways out: give this node another address")
		if loopback(addrs) {
			b.WriteString(" (all of 127.0.0.0/8 can be used: 127.0.0.2, 127.0.0.3, …)")
		}
		b.WriteString(", stop the owner, or use another TCP port (Config.Port) on all nodes that are to talk to each other.")
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		b.WriteString("Ways out: use an address of this machine (see \"ip address\"), or add this one to an interface.")
	}
	return b.String()
}

func loopback(addrs []netip.Addr) bool {
	for _, a := range addrs {
		if a.Is4() && a.IsLoopback() {
			return true
		}
	}
	return false
}
