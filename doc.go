// Package rds is Reliable Datagram Sockets in user space. It speaks the Linux
// kernel's own RDS/TCP protocol, so a [Node] talks to other nodes and to kernels
// alike.
//
// RDS sends messages, like UDP, and delivers each of them at most once and in
// order, like TCP, without a connection for every pair of sockets: all that goes
// between two IP addresses shares one connection, which is made at first use and
// repairs itself for ever.
//
// # Nodes and sockets
//
// A Node owns local IP addresses and listens on TCP port 16385 of each. Each
// address has 65536 RDS ports of its own. [Node.Bind] makes a [Socket] on one,
// and the socket sends to any port of any address:
//
//	node, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
//	…
//	s, err := node.Bind(rds.AddrFrom(node.Addrs()[0], 4000))
//	…
//	err = s.Send(ctx, rds.AddrFrom(netip.MustParseAddr("10.0.0.2"), 4000), []byte("hello"))
//	n, from, err := s.Recv(ctx, buf)
//
// A Socket is also a [net.PacketConn], and with [Socket.Connect] a [net.Conn].
//
// # What sending means
//
// [Socket.Send] returns when the message is queued, not when it has arrived.
// What a socket has sent and its peers have not acknowledged is bounded by its
// send buffer S ([Config.SendBuffer], [Socket.SetSendBuffer]); with S reached,
// Send waits and [Socket.TrySend] returns [ErrAgain]. [Socket.Flush] waits for
// the acknowledgements, [Socket.Pending] counts what is outstanding,
// [Socket.Cancel] forgets it. A peer that cannot be reached is tried for ever;
// the context or deadline of Send or Flush says for how long the caller is
// interested. With [Config.GiveUp] or [Socket.SetGiveUp] a socket gives up on a peer
// that makes no progress for that time: what is queued for it is cancelled, and
// sending to it fails with [ErrPeerGone] until it answers again.
//
// The send buffer is shared by all destinations of a socket, as in the kernel: one
// that takes nothing can fill it. Use a socket for each destination, or give up,
// or look at Pending, where that matters.
//
// Closing a socket cancels what is outstanding, as in the kernel; use
// [Socket.Flush] or [Socket.SetLinger] to have it delivered first. A message to a
// port on which nobody is bound is dropped there, without a word to the sender.
//
// # Congestion
//
// Receivers do not refuse messages. A socket with more than its receive buffer R
// unread marks its port as congested, until less than R/2 is left, and the mark
// goes to all peers. Sending to a congested port waits, or fails with
// [ErrCongested]; other ports of the same peer are not affected. One message
// larger than R congests the port, so R should be twice the largest message.
// [Socket.SetCongMonitor] tells who was refused when it is worth trying again.
//
// Besides that, a node limits what it holds unread for each peer and for all
// ([Config.PeerQueueLimit], [Config.NodeQueueLimit]). At a limit it stops
// reading that peer's connections. Nothing is lost by that.
//
// # Receiving
//
// [Socket.Recv] copies one message to the caller's buffer; what does not fit is
// lost, which [Socket.RecvMsg] reports. [Socket.Next] lends a message without
// copying it. [Socket.RecvBatch] takes what is there. Several goroutines may
// receive from one socket; each message goes to one of them.
//
// # Waiting and errors
//
// Every wait ends with its context or with the socket's deadline, whichever is
// first. Errors are [*OpError]s that wrap one of the package's sentinels, each
// of which also matches the errno of the kernel:
// errors.Is(err, rds.ErrCongested) and errors.Is(err, syscall.ENOBUFS) are the
// same test.
//
// # What can be lost
//
// Between two nodes of this package a message counts as acknowledged when it is in
// the receiving socket's queue, so only the end of the receiving process, or of
// the receiving socket, loses it. A kernel's acknowledgement says less: that its
// TCP has the message. When a peer restarts, what it had not acknowledged is sent
// to its successor, and listeners of [Events.PeerRestarted] are told.
//
// # Where it differs from the kernel
//
//   - 127.0.0.0/8 and ::1 are addresses like others, and congestion counts for
//     them as well: several nodes can run on one machine.
//   - Local means: an address of this node. Messages between those do not leave
//     the process.
//   - Deadlines apply to waits for congestion too; nothing waits for a handshake.
//   - Congestion is accounted on the receiving socket's own address, wakes and
//     notifies only those that wait for the port that was cleared, and is forgotten
//     when a peer is gone for a minute ([Config.MapTimeout]).
//   - Empty messages take no room in the send buffer, but their number is bounded
//     by S as well.
//   - A connected address of another family than the socket's is refused when
//     sending, where the kernel loses the message.
//
// RDS has no authentication and no encryption: see [Config.AllowPeers].
package rds
