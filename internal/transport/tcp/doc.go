// Package tcp carries messages over the kernel's RDS/TCP wire protocol.
//
// It is the driver of internal/path: that package decides, this one does. A
// Transport listens on the node's addresses and keeps one Link for each pair of
// addresses. A Link owns the lock of its path.Connection, a timer, and a lane for
// each path that has a stream. A lane has two goroutines:
//
//	reader   the only one that reads the stream: parses frames, filters, delivers;
//	         when the stream ends it drains, takes the last acknowledgements and
//	         reports the end (read.go)
//	writer   sleeps until something is to be written that nobody wrote inline,
//	         and waits while the stream is full (write.go)
//
// A sender whose path is idle writes from its own goroutine; one that sends
// again within microseconds leaves it to the writer, which then takes many
// messages with one system call.
//
// Lock order: Link.mu comes before the engine's locks (Owner.Released and
// Handler.Event are called with it held); Transport.mu is never held with it.
//
// Byte streams come from a transport.Network: OSNetwork here, or a simulated one.
package tcp
