// Package engine is what stands between an application's sockets and the
// transports that carry messages: sockets and their ports, send and receive
// accounting, congestion, the routing of messages to connections, limits,
// counters and events (RDS spec sections 2 to 7).
//
// In come, from above, the calls of the root package, and from below, through
// [transport.Host] and [transport.Handler], messages, maps and events of
// connections. Out go messages to [transport.Link] and what is received to the
// callers.
//
// The engine must not know how bytes travel: no stream, frame, descriptor or
// path choice is seen here. Local destinations go through the same seam, to the
// loop transport.
//
// # Who owns what
//
//	Engine   addresses, peers, transports
//	 local   one local address: port table, congestion map, connections
//	 peer    one remote address: its congestion map, what it has unread here
//	 conn    one pair of the two: the engine's side of a transport.Link
//	 Socket  two halves, sending and receiving, each with its own lock
//	 flow    a socket's view of one conn on which it sends
//
// The only goroutines are that of the listener of events and those of timers: one
// for each conn with something unacknowledged (watch.go), and one for each peer that
// is unreachable (peer.go) or of which listeners were told a moment ago (flap.go).
//
// # Locks
//
// Each lock guards the fields named below it in its struct. Most are taken alone;
// where one is taken with another held, it is in this order:
//
//	Link's own > sendHalf.mu > local.mu, peer.mu
//	Link's own > peer.mu > congMap.mu > recvHalf.mu
//	peer.mu > dispatcher.mu
//	Engine.mu > portTable.mu, peer.mu, sendHalf.mu, recvHalf.mu
//
// Links call [Socket.Released] and conn.Event with their own locks held. So no Link
// is called, and no other Link's lock taken, with any lock of the engine held.
// Events go to their listener from a goroutine that holds none.
package engine
