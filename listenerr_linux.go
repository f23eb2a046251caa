package rds

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listenerOn says who listens on a TCP port of this machine, as far as /proc
// tells; "" if nobody seems to.
func listenerOn(at netip.AddrPort) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		l, found := findListener(bufio.NewScanner(f), at)
		f.Close()
		if found {
			return l.owner("/proc")
		}
	}
	return ""
}

// listener is a listening socket as /proc/net/tcp shows it.
type listener struct {
	inode string
	uid   string
}

// findListener looks in a table of /proc/net for a socket that listens on at or on
// the port of all addresses.
func findListener(table *bufio.Scanner, at netip.AddrPort) (listener, bool) {
	const listening = "0A" // TCP_LISTEN
	for table.Scan() {
		f := strings.Fields(table.Text())
		if len(f) < 10 || f[3] != listening {
			continue
		}
		local, ok := parseProcAddr(f[1])
		if !ok || local.Port() != at.Port() {
			continue
		}
		if ip := local.Addr().Unmap(); ip == at.Addr().Unmap().WithZone("") || ip.IsUnspecified() {
			return listener{inode: f[9], uid: f[7]}, true
		}
	}
	return listener{}, false
}

// parseProcAddr parses "0100007F:4001": the address in hexadecimal, as words of 32
// bits in the machine's byte order, and the port.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	hexIP, hexPort, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(hexIP)
	port, err2 := strconv.ParseUint(hexPort, 16, 16)
	if !ok || err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip, uint16(port)), ok
}

// owner names the process that has the socket open, or says why it cannot.
func (l listener) owner(proc string) string {
	want := "socket:[" + l.inode + "]"
	hidden := false
	procs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, p := range procs {
		fds, err := os.ReadDir(filepath.Join(p, "fd"))
		if err != nil {
			hidden = hidden || os.IsPermission(err)
			continue
		}
		for _, fd := range fds {
			if target, _ := os.Readlink(filepath.Join(p, "fd", fd.Name())); target == want {
				comm, _ := os.ReadFile(filepath.Join(p, "comm"))
				return fmt.Sprintf("process %s (%s)", filepath.Base(p), strings.TrimSpace(string(comm)))
			}
		}
	}
	switch {
	case moduleLoaded(filepath.Join(proc, "modules"), "rds_tcp"):
		// A kernel socket: no process has it open.
		return "the kernel's RDS (module rds_tcp is loaded: \"rmmod rds_tcp\" frees the port)"
	case hidden:
		return fmt.Sprintf("a process of user %s that is not visible to this one", l.uid)
	}
	return "the kernel, or a process outside of this PID namespace"
}

func moduleLoaded(modules, name string) bool {
	text, _ := os.ReadFile(modules)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == name {
			return true
		}
	}
	return false
}
