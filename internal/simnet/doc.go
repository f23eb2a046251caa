// Package simnet is a network in memory: hosts, listeners and byte streams that
// behave like TCP sockets on Linux, with a network between them that delays,
// loses, stalls, breaks and comes apart as a test tells it to.
//
// In come the calls of transport.Network, Listener and Stream from the code
// under test, and orders from the test (Conn, Host, Net). Out go the same bytes
// in the same order up to the break, and the errors that Linux would give. The
// package knows TCP and nothing of what the bytes mean.
//
// # Time
//
// All waiting is done on sync.Cond, channels and one time.Timer, so that inside
// a testing/synctest bubble time is virtual: make the Net inside the bubble.
// Outside of one everything works in real time.
//
// One lock guards the whole Net and one timer drives it: a heap of alarms holds
// at most one alarm for each direction of a connection (its next packet) and
// three for each end (retransmission, user timeout, keepalive), the latter only
// while they are needed. A healthy idle network therefore has no alarm at all, and
// synctest still finds tests that wait for something that never comes.
//
// # What is modelled
//
//   - SYN, SYN-ACK and ACK travel like other packets, so dials cross each other,
//     are refused after a round trip, and are repeated after 1, 3, 7 … s when lost.
//   - Send buffer, receive buffer and window: a reader that does not read
//     closes the window; a sender keeps what is not acknowledged.
//   - The peer's stack acknowledges what is in its receive buffer, read or not,
//     and the acknowledgement takes its time to travel back.
//   - FIN and half-close; close with unread bytes, or bytes arriving at a closed
//     stream, make an RST; orphans finish sending after Close; TIME_WAIT.
//   - Lost packets are sent again after a retransmission timeout that doubles. A
//     user timeout (which also ends a stream that is kept at a zero window) and
//     keepalive end streams to peers that are gone.
//   - A SYN for a four-tuple that the other side still believes established is
//     challenged, clears the old connection, and then succeeds.
//
// Not modelled: congestion control, segment sizes below 64 KiB, delayed
// acknowledgements, selective acknowledgement, simultaneous open, urgent data.
package simnet
