package rds_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/rds-go/rds"
)

// Two nodes in one process, each with an address of its own. On two machines the
// addresses are those of the machines.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	newSocket := func(ip string) (*rds.Node, *rds.Socket) {
		addr := netip.MustParseAddr(ip)
		node, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{addr}})
		if err != nil {
			log.Fatal(err)
		}
		s, err := node.Bind(rds.AddrFrom(addr, 4000))
		if err != nil {
			log.Fatal(err)
		}
		return node, s
	}
	node1, client := newSocket("127.21.0.1")
	defer node1.Close()
	node2, server := newSocket("127.21.0.2")
	defer node2.Close()

	if err := client.Send(ctx, server.Addr(), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, 1500)
	n, from, err := server.Recv(ctx, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s from %v\n", buf[:n], from)

	if err := server.Send(ctx, from, []byte("hello yourself")); err != nil {
		log.Fatal(err)
	}
	if err := server.Flush(ctx); err != nil { // wait until it is acknowledged
		log.Fatal(err)
	}
	n, from, err = client.Recv(ctx, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s from %v\n", buf[:n], from)
	// Output:
	// hello from 127.21.0.1:4000
	// hello yourself from 127.21.0.2:4000
}

// Messages can be received without copying them.
func ExampleSocket_Next() {
	addr := netip.MustParseAddr("127.21.0.3")
	node, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{addr}})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	s, err := node.Bind(rds.AddrFrom(addr, 0)) // any port
	if err != nil {
		log.Fatal(err)
	}
	if err := s.TrySend(s.Addr(), []byte("to myself")); err != nil {
		log.Fatal(err)
	}
	m, err := s.Next(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m.Payload)
	m.Release()
	// Output: to myself
}
