package engine

import (
	"testing"

	"github.com/rds-go/rds/internal/wire"
)

func TestBindErrors(t *testing.T) {
	e := newFake(t, Config{}, here, here2, "127.0.0.1", "fd00::1", "fe80::1%eth0")
	for _, tc := range []struct {
		addr string
		want error
	}{
		{"0.0.0.0:100", ErrInvalid},
		{"255.255.255.255:100", ErrInvalid},
		{"224.0.0.1:100", ErrInvalid},
		{"10.9.9.9:100", ErrAddrNotAvail},
		{"10.9.9.9:1", ErrAddrNotAvail}, // the address is checked before the port
		{"10.0.0.255:100", ErrAddrNotAvail},
		{here + ":1", ErrInvalid},
		{here + ":2000", nil},
		{here + ":2000", ErrAddrInUse},
		{here2 + ":2000", nil}, // ports belong to addresses
		{here + ":2", nil},
		{here + ":65535", nil},
		{here + ":0", nil},
		{"127.0.0.1:2000", nil},
		{"[::]:100", ErrInvalid},
		{"[ff02::1]:100", ErrInvalid},
		{"[fe80::1]:100", ErrInvalid},
		{"[fe80::1%eth1]:100", ErrAddrNotAvail},
		{"[fe80::1%eth0]:100", nil},
		{"[2001:db8::77]:100", ErrAddrNotAvail},
		{"[fd00::1]:100", nil},
		{"[::ffff:10.0.0.1]:100", nil},
		{here + ":100", ErrAddrInUse}, // the same address
	} {
		s, err := e.Bind(ap(tc.addr), nil)
		wantErr(t, "bind "+tc.addr, err, tc.want)
		if (s != nil) != (err == nil) {
			t.Errorf("bind %s: socket %v with error %v", tc.addr, s, err)
		}
	}
	s := bind(t, e.Engine, "[::ffff:10.0.0.3]:7")
	if got := s.Addr(); got != ap(here2+":7") {
		t.Errorf("address of a socket bound to a mapped address is %v", got)
	}
	s.Close()
	bind(t, e.Engine, here2+":7") // free again
	e.Close()
	_, err := e.Bind(ap(here+":3"), nil)
	wantErr(t, "bind after Close", err, ErrClosed)
}

func TestAutomaticPorts(t *testing.T) {
	var table portTable
	s := new(Socket)
	var got uint16
	named := func(p uint16) { got = p }
	take := func(start, want uint16) {
		t.Helper()
		table.mu.Lock()
		defer table.mu.Unlock()
		if err := table.bindFrom(s, start, named); err != nil || got != want {
			t.Errorf("from %d: port %d, error %v; want port %d", start, got, err, want)
		}
	}
	take(65534, 65534)
	take(65534, 65535) // upwards
	take(65534, 2)     // around the end, without 0 and 1
	take(2, 3)

	for i := 4; i < 65534; i++ {
		if err := table.bind(s, uint16(i), named); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		wantErr(t, "no port is left", table.bind(s, 0, named), ErrAddrInUse)
	}
	for i := range wire.MapPorts {
		if has := table.lookup(uint16(i)) != nil; has != (i >= 2) {
			t.Errorf("port %d bound: %v", i, has)
		}
	}
	table.unbind(new(Socket), 777)
	if table.lookup(777) != s {
		t.Error("a socket freed a port of another one")
	}
	table.unbind(s, 777)
	if err := table.bind(s, 0, named); err != nil || got != 777 {
		t.Errorf("port %d, error %v; want the only free one", got, err)
	}
}

// TestAutomaticPortIsRandom: two nodes do not begin with the same one. It fails by
// chance once in 65534² runs.
func TestAutomaticPortIsRandom(t *testing.T) {
	seen := map[uint16]bool{}
	for range 3 {
		var table portTable
		table.bind(new(Socket), 0, func(p uint16) { seen[p] = true })
	}
	if len(seen) == 1 {
		t.Errorf("three tables chose the same port: %v", seen)
	}
}
