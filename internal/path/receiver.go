package path

import "github.com/rds-go/rds/internal/wire"

// Class says what a frame is, from its header alone.
type Class uint8

const (
	ClassData   Class = iota // for a socket; a pong to a socket's ping as well
	ClassMap                 // congestion map
	ClassBadMap              // flags of a map, but not its length: ignored (RDS spec section 5)
	ClassAck                 // pure acknowledgement of an own peer
	ClassPing                // to port 0, answered by the stack
	ClassProbe               // handshake
	ClassPong                // answer to a probe
)

// Classify tells what a frame is.
func Classify(v wire.HeaderView) Class {
	if v.Flags() == wire.FlagCongBitmap {
		if v.Len() == wire.MapLen {
			return ClassMap
		}
		return ClassBadMap
	}
	sport, dport := v.SPort(), v.DPort()
	switch {
	case v.Seq() == 0 && sport == 0 && dport == 0 && v.Len() == 0:
		return ClassAck
	case dport == wire.PingPort && sport == wire.ProbePort:
		return ClassProbe
	case dport == wire.PingPort:
		return ClassPing
	case dport == wire.ProbePort && sport == wire.PingPort:
		return ClassPong
	}
	return ClassData
}

// Verdict is what the duplicate filter says of a numbered frame.
type Verdict uint8

const (
	// Accept: new, process it.
	Accept Verdict = iota
	// Duplicate: it was processed before; drop it.
	Duplicate
	// AcceptRestart: an old number without RETRANSMITTED as the first of a stream:
	// the peer started numbering again. Process it.
	AcceptRestart
	// AcceptOdd: an old number without RETRANSMITTED in mid-stream. No correct peer
	// sends that; kernels accept it, so do we, but it is counted.
	AcceptOdd
)

// Receiver is the incoming half of a path: the duplicate filter of RDS spec
// section 11. It belongs to the goroutine that reads the path's stream.
type Receiver struct {
	last  uint64 // last number accepted
	fresh bool   // no numbered frame on this stream yet
	own   bool   // a handshake message on this stream showed one of ours
	epoch uint64 // of the connection, when last was valid
	csum  bool   // own peer that sets h_csum

	// Duplicates counts what the filter dropped.
	Duplicates uint64
}

// Accept filters a numbered frame.
//
// Own peers send every number once or flagged, so all old numbers are dropped.
// That holds only after a handshake message on this very stream: until then the
// peer may have been replaced by a kernel that numbers from 1.
func (r *Receiver) Accept(seq uint64, flags wire.Flags) Verdict {
	if seq > r.last {
		r.last, r.fresh = seq, false
		return Accept
	}
	if r.own || flags&wire.FlagRetransmitted != 0 {
		r.Duplicates++
		return Duplicate
	}
	// Accepting an old number moves the filter back to it, as in the kernel.
	verdict := AcceptOdd
	if r.fresh {
		verdict = AcceptRestart
	}
	r.last, r.fresh = seq, false
	return verdict
}

// Last is the last number accepted: what h_ack tells an own peer, once the message is delivered.
func (r *Receiver) Last() uint64 { return r.last }

// Checksummed says that the peer sets h_csum, so that a wrong one means a stream out of step.
func (r *Receiver) Checksummed() bool { return r.csum }

// forget starts numbering anew: the peer restarted.
func (r *Receiver) forget() { r.last = 0 }
