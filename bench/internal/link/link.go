// Package link holds the ways to carry messages between two processes that the
// benchmarks compare: this library, and what a program might use in its place.
//
// In comes a Load (how large, how many in a call), out come Links whose calls do
// one unit of work: a message, a batch, or a chunk of a stream. The package knows
// no clocks and no processes; the loops around the calls, and all measuring, are
// the business of package worker.
package link

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// Load is what travels over a link.
type Load struct {
	// Size is the payload of a message in bytes, at least 1.
	Size int
	// Batch is the number of messages in a batch call, for those that have
	// such calls.
	Batch int
	// RoundTrip says that both sides take turns; otherwise the side that
	// listened only sends and the one that dialled only receives.
	RoundTrip bool
	// Buffer is the send and receive buffer of an RDS socket in bytes.
	Buffer int
	// Peers is the number of endpoints of a mesh, or of peers of a crowd.
	Peers int
	// Port is the TCP port of user-space RDS; 0 means the standard one.
	Port uint16
}

// A Link is one end of a connection. It belongs to one goroutine. Its calls
// use buffers of its own: what travels is of no interest here.
type Link interface {
	// Send sends one unit.
	Send() error
	// Recv receives one unit and says what it was. messages may be 0 for a
	// stream without messages.
	Recv() (messages, bytes int, err error)
}

// A Listener waits for the other process.
type Listener interface {
	// Endpoint is what the other process needs to know to dial.
	Endpoint() string
	// Accept waits for it until the context of Listen ends. It is called once.
	Accept() (Link, error)
}

// A Kind is one way to carry messages. Links end with their process; nothing of
// them is ever closed, so that no close is part of what is measured.
type Kind struct {
	Name string
	// Listen makes the first end, on an address of this machine.
	Listen func(ctx context.Context, load Load, at netip.Addr) (Listener, error)
	// Dial makes the second end, from an address of this machine.
	Dial func(ctx context.Context, load Load, at netip.Addr, endpoint string) (Link, error)
}

// Kinds are all ways that are written in Go.
func Kinds() []Kind {
	return append([]Kind{
		{Name: "rds", Listen: listenRDS, Dial: dialRDS},
		{Name: "rds-batch", Listen: listenRDSBatch, Dial: dialRDSBatch},
		{Name: "tcp", Listen: listenRaw, Dial: dialRaw},
		{Name: "tcp-msg", Listen: listenFramed, Dial: dialFramed},
		{Name: "seqpacket", Listen: listenSeqpacket, Dial: dialSeqpacket},
	}, platformKinds...)
}

// Find returns the kind of that name.
func Find(name string) (Kind, error) {
	var names []string
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("no link of kind %q: there are %s", name, strings.Join(names, ", "))
}

// A SkipError says that a link cannot carry the load on this machine, and why.
// It is a result, not a failure.
type SkipError struct{ Reason string }

func (e *SkipError) Error() string { return "cannot be measured here: " + e.Reason }

// payload is n bytes that are not zero: a fresh buffer is one page of zeros again
// and again, which caches far too well.
func payload(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i%251 + 1)
	}
	return p
}
