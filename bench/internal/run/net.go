package run

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Net says where in the network the two processes live.
type Net struct {
	// ServeNS and MeasureNS are network namespaces by their names in /run/netns;
	// "" means that of the coordinator.
	ServeNS, MeasureNS string
	// ServeAt and MeasureAt are their addresses; the zero values mean two of
	// 127.0.0.0/8.
	ServeAt, MeasureAt netip.Addr
	// Port is the TCP port of user-space RDS, 0 for the standard one. A kernel
	// with RDS has that one in all its namespaces.
	Port uint16
}

// addresses returns the two, which no other run is likely to use.
func (n Net) addresses() (serve, measure netip.Addr) {
	if n.ServeAt.IsValid() {
		return n.ServeAt, n.MeasureAt
	}
	serve = netip.AddrFrom4([4]byte{127, byte(64 + rand.IntN(128)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))})
	return serve, serve.Prev()
}

// enter moves the calling thread to a namespace.
func enter(ns string) error {
	fd, err := unix.Open(filepath.Join("/run/netns", ns), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", ns, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %s: %w", ns, err)
	}
	return nil
}
