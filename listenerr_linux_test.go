package rds

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tcpTable is a piece of /proc/net/tcp, little-endian.
const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4001 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0000000000000000 100 0 0 10 0
   1: 0200007F:4001 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 23456 1 0000000000000000 100 0 0 10 0
   2: 00000000:4002 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 34567 1 0000000000000000 100 0 0 10 0
   3: 000000000000000000000000000000FD:4001 00000000:0000 0A 0:0 0:0 0 0 0 1
garbage
`

// tcp6Table is a piece of /proc/net/tcp6.
const tcp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 000000FD000000000000000001000000:4001 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 99 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:4003 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 98 1 0000000000000000 100 0 0 10 0
`

func TestFindListener(t *testing.T) {
	if !littleEndian() {
		t.Skip("the tables are of a little-endian machine")
	}
	for _, tc := range []struct {
		table, at, inode string // inode "": nobody
	}{
		{tcpTable, "127.0.0.1:16385", "12345"},
		{tcpTable, "127.0.0.2:16385", ""}, // connected, not listening
		{tcpTable, "127.0.0.1:16386", "34567"},
		{tcpTable, "127.0.0.1:16387", ""},
		{tcp6Table, "[fd00::1]:16385", "99"},
		{tcp6Table, "[fd00::2]:16385", ""},
		{tcp6Table, "10.0.0.1:16387", "98"}, // dual stack
	} {
		l, ok := findListener(bufio.NewScanner(strings.NewReader(tc.table)), netip.MustParseAddrPort(tc.at))
		if ok != (tc.inode != "") || l.inode != tc.inode {
			t.Errorf("%s: inode %q, found %v; want %q", tc.at, l.inode, ok, tc.inode)
		}
	}
}

func littleEndian() bool {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return false
	}
	defer l.Close()
	text, _ := os.ReadFile("/proc/net/tcp")
	return strings.Contains(string(text), fmt.Sprintf("0100007F:%04X", l.Addr().(*net.TCPAddr).Port))
}

func TestListenerOwner(t *testing.T) {
	proc := t.TempDir()
	fd := filepath.Join(proc, "4711", "fd")
	os.MkdirAll(fd, 0o700)
	os.WriteFile(filepath.Join(proc, "4711", "comm"), []byte("rds\n"), 0o600)
	os.Symlink("socket:[12345]", filepath.Join(fd, "5"))
	if got := (listener{inode: "12345"}).owner(proc); got != "process 4711 (rds)" {
		t.Errorf("owner %q", got)
	}
	if got := (listener{inode: "1"}).owner(proc); !strings.Contains(got, "kernel") || strings.Contains(got, "rds_tcp") {
		t.Errorf("owner %q", got)
	}
	os.WriteFile(filepath.Join(proc, "modules"), []byte("rds_tcp 40960 3 - Live 0x0\nrds 1 1 rds_tcp, Live 0x0\n"), 0o600)
	if got := (listener{inode: "1"}).owner(proc); !strings.Contains(got, "module rds_tcp is loaded") {
		t.Errorf("owner %q", got)
	}
}

// TestNewNodeNamesTheOwner of a port that is taken, and the ways out.
func TestNewNodeNamesTheOwner(t *testing.T) {
	addr := testAddr()
	cfg := Config{Addrs: []netip.Addr{addr}}
	n, err := NewNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	_, err = NewNode(cfg)
	var op *OpError
	if !errors.As(err, &op) || !errors.Is(err, ErrAddrInUse) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{addr.String() + ":16385", fmt.Sprintf("process %d", os.Getpid()), "127.0.0.2", "Config.Port"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	cfg.Port = 16400
	other, err := NewNode(cfg)
	if err != nil {
		t.Fatalf("another port: %v", err)
	}
	other.Close()
	_, err = NewNode(Config{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	if !errors.Is(err, ErrAddrNotAvail) || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("foreign address: %v", err)
	}
}
