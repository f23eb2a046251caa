package engine

import "sync/atomic"

// Counter is one counter by name.
type Counter struct {
	Name  string
	Value uint64
}

// kernelCounters are the counters of the kernel in its order (RDS spec section
// 16). Those of work that does not exist here stay 0.
var kernelCounters = [...]string{
	"conn_reset", "recv_drop_bad_checksum", "recv_drop_old_seq", "recv_drop_no_sock",
	"recv_drop_dead_sock", "recv_deliver_raced", "recv_delivered", "recv_queued", "recv_immediate_retry",
	"recv_delayed_retry", "recv_ack_required", "recv_rdma_bytes", "recv_ping", "send_queue_empty", "send_queue_full",
	"send_lock_contention", "send_lock_queue_raced", "send_immediate_retry", "send_delayed_retry", "send_drop_acked",
	"send_ack_required", "send_queued", "send_rdma", "send_rdma_bytes", "send_pong", "page_remainder_hit",
	"page_remainder_miss", "copy_to_user", "copy_from_user", "cong_update_queued", "cong_update_received",
	"cong_send_error", "cong_send_blocked", "recv_bytes_added_to_sock", "recv_bytes_freed_fromsock", "send_stuck_rm",
	"tcp_data_ready_calls", "tcp_write_space_calls", "tcp_sndbuf_full", "tcp_connect_raced", "tcp_listen_closed_stale",
}

// ownCounters are the engine's further ones. Transports may add more.
var ownCounters = [...]string{
	"send_retransmitted", "recv_queue_limit", "peer_restarts", "protocol_errors", "connections_refused", "dials_failed",
	"peer_stalls", "peers_given_up", "send_given_up", "pings_unanswered", "events_lost",
}

// counts are the counters of rare happenings. Those of every message are kept by
// sockets and connections, under locks that they hold anyway.
type counts struct {
	connReset, mapsQueued, mapsReceived                atomic.Uint64
	peerRestarts, protocolErrors, refused, dialsFailed atomic.Uint64
	stalls, gone, lost, pingsUnanswered                atomic.Uint64
}

// traffic is the sum of what sockets count.
type traffic struct {
	sent, sentBytes, full, congested, congWait     uint64
	queued, delivered, bytesIn, bytesOut, copiedIn uint64
}

// add adds what s has counted.
func (t *traffic) add(s *Socket) {
	h := &s.snd
	h.mu.Lock()
	t.sent += h.sent
	t.sentBytes += h.copied
	t.full += h.full
	t.congested += h.congested
	t.congWait += h.congWait
	h.mu.Unlock()
	r := &s.rcv
	r.mu.Lock()
	t.queued += r.queued
	t.delivered += r.delivered
	t.bytesIn += r.bytesIn
	t.bytesOut += r.bytesOut
	t.copiedIn += r.copied
	r.mu.Unlock()
}

// counting is what transports implement that count something themselves.
type counting interface {
	// Counters calls f for each counter. Values are added to those of the same
	// name.
	Counters(f func(name string, value uint64))
}

// Counters returns all counters: the kernel's in its order, ours, and then those
// of transports.
func (e *Engine) Counters() []Counter {
	e.mu.Lock()
	sum := e.retired
	for s := range e.sockets {
		sum.add(s)
	}
	e.mu.Unlock()
	var noSock, deadSock, oldSeq, again uint64
	for _, l := range e.locals {
		for _, c := range l.connections() {
			noSock += c.noSock.Load()
			deadSock += c.deadSock.Load()
			for _, path := range c.link.Info().Paths {
				oldSeq += path.DroppedDuplicates
				again += path.Retransmissions
			}
		}
	}
	list := make([]Counter, 0, len(kernelCounters)+len(ownCounters)+16)
	at := make(map[string]int, cap(list))
	add := func(name string, v uint64) {
		i, ok := at[name]
		if !ok {
			i = len(list)
			at[name] = i
			list = append(list, Counter{Name: name})
		}
		list[i].Value += v
	}
	for _, name := range kernelCounters {
		add(name, 0)
	}
	for _, name := range ownCounters {
		add(name, 0)
	}
	add("conn_reset", e.count.connReset.Load())
	add("recv_drop_old_seq", oldSeq)
	add("recv_drop_no_sock", noSock)
	add("recv_drop_dead_sock", deadSock)
	add("recv_delivered", sum.delivered)
	add("recv_queued", sum.queued)
	add("send_queue_full", sum.full)
	add("send_queued", sum.sent)
	add("copy_to_user", sum.copiedIn)
	add("copy_from_user", sum.sentBytes)
	add("cong_update_queued", e.count.mapsQueued.Load())
	add("cong_update_received", e.count.mapsReceived.Load())
	add("cong_send_error", sum.congested)
	add("cong_send_blocked", sum.congWait)
	add("recv_bytes_added_to_sock", sum.bytesIn)
	add("recv_bytes_freed_fromsock", sum.bytesOut)
	add("send_retransmitted", again)
	add("recv_queue_limit", e.limits.stops.Load())
	add("peer_restarts", e.count.peerRestarts.Load())
	add("protocol_errors", e.count.protocolErrors.Load())
	add("connections_refused", e.count.refused.Load())
	add("dials_failed", e.count.dialsFailed.Load())
	add("peer_stalls", e.count.stalls.Load())
	add("peers_given_up", e.count.gone.Load())
	add("send_given_up", e.count.lost.Load())
	add("pings_unanswered", e.count.pingsUnanswered.Load())
	add("events_lost", e.events.lost.Load())
	for _, t := range e.transports() {
		if c, ok := t.(counting); ok {
			c.Counters(add)
		}
	}
	return list
}

// retire moves the counts of a socket that is closed to the sum of such.
func (e *Engine) retire(s *Socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.sockets[s]; ok {
		delete(e.sockets, s)
		e.retired.add(s)
	}
}
