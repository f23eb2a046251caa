package engine

// Congestion monitoring (RDS spec section 5): a socket with the monitor on that
// was refused with ErrCongested is told when the port is congested no more. The
// kernel tells it of every map from anybody; here it is told of exactly the ports
// that refused it, and only when the peer has cleared them (defect D11).

// monitor is a socket that is to be told about a port.
type monitor struct {
	port uint16
	s    *Socket
}

// SetCongMonitor says whether the socket is told, through Delivery.CongUpdate. Off
// forgets what it would have been told.
func (s *Socket) SetCongMonitor(on bool) {
	s.rcv.mu.Lock()
	s.rcv.monitor = on
	if !on {
		s.rcv.congUpdate = 0
	}
	s.rcv.mu.Unlock()
	if on {
		return
	}
	s.snd.mu.Lock()
	flows := s.flows()
	s.snd.mu.Unlock()
	for _, f := range flows {
		f.c.peer.cong.unmonitor(s)
	}
}

// monitor notes that a port of p refused the socket, if it wants to know. If the port
// was cleared meanwhile the socket is told at once.
func (s *Socket) monitor(p *peer, port uint16) {
	s.rcv.mu.Lock()
	on := s.rcv.monitor
	s.rcv.mu.Unlock()
	switch {
	case !on:
	case !p.cong.monitor(port, s):
		s.uncongested(port)
	case s.cancelled.Load():
		p.cong.unmonitor(s) // closed meanwhile
	}
}

// uncongested tells the socket that port is congested no more.
func (s *Socket) uncongested(port uint16) {
	h := &s.rcv
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.monitor && !h.closed {
		h.congUpdate |= 1 << (port % 64)
		h.wait.wakeAll() // not every call takes it
	}
}

// monitor enters s for port, unless that is not congested any more.
func (c *congMap) monitor(port uint16, s *Socket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(port) {
		return false
	}
	if c.monitors == nil {
		c.monitors = make(map[monitor]struct{})
	}
	c.monitors[monitor{port, s}] = struct{}{}
	return true
}

// unmonitor takes out all entries of s.
func (c *congMap) unmonitor(s *Socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range c.monitors {
		if m.s == s {
			delete(c.monitors, m)
		}
	}
}
