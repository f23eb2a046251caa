// Package path is the protocol of one RDS connection, without any input or
// output: events go in, frames, verdicts and actions come out.
//
// A Connection is what two IP addresses share. It knows the role that the
// address order gives it (the smaller address dials), what the handshake said of
// the peer, and a list of paths. A Path is one numbered lane of it: a Sender
// (numbering, the queue that is also the retransmission store, acknowledgement
// by either rule) and a Receiver (the duplicate filter). The driver
// (internal/transport/tcp) owns sockets, goroutines and the clock: it tells the
// Connection what happened and when, and does what the actions say.
//
// Ownership: everything in a Connection is guarded by one lock of the driver,
// except the fields of a Receiver, which belong to the one goroutine that reads
// the path's stream (RDS spec section 11: one reader at a time).
//
// This package must not know sockets, goroutines or clocks.
package path
