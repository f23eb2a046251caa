package simnet

// flow is one direction of a connection: its bytes, and how far each party has got.
// At all times
//
//	una ≤ received ≤ edge        una ≤ next ≤ written
//	read ≤ received ≤ written    received ≤ advertised
//
// It belongs to both ends, like everything guarded by the lock of the Net.
type flow struct {
	data byteQueue

	// The sender's part.
	una       int64 // acknowledged
	next      int64 // sent; back to una when that has to be done again
	written   int64 // taken from the application
	edge      int64 // right edge of the window, as far as the sender knows
	finQueued bool  // the application has closed this direction
	finSent   bool
	finAcked  bool
	limit     int // most bytes a TryWrite takes; 0 = no limit

	// The receiver's part.
	received    int64
	read        int64
	advertised  int64 // right edge of the window, as the receiver last told
	finReceived bool
	noReader    bool // nobody will read: bytes are counted but not kept

	cutAt  int64 // offset where the connection is cut; -1 = nowhere
	cutHow CutHow
}

// outstanding tells whether the sender waits for an acknowledgement or for window.
func (f *flow) outstanding() bool {
	return f.una < f.written || f.finQueued && !f.finAcked
}

// ackNumber is the next offset that the receiver expects; a FIN counts one.
func (f *flow) ackNumber() int64 {
	if f.finReceived {
		return f.received + 1
	}
	return f.received
}

// advertise moves the edge of the window as far as a buffer of the given size allows,
// and returns it. A window never shrinks.
func (f *flow) advertise(buffer int64) int64 {
	read := f.read
	if f.noReader {
		read = f.received
	}
	f.advertised = max(f.advertised, read+buffer)
	return f.advertised
}

// trim lets go of the bytes that nobody needs any more. What was read need not be kept
// for sending it again: the receiver would not look at it.
func (f *flow) trim() {
	if f.noReader {
		f.data.trim(f.data.end)
	} else {
		f.data.trim(f.read)
	}
}
