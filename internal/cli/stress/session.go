package stress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rds-go/rds"
)

const (
	// watch is how often a side looks whether something has come to its end.
	watch = 10 * time.Millisecond
	// afterglow is how long the sockets go on listening when everything has arrived, for
	// doubles.
	afterglow = 300 * time.Millisecond
)

// phase is how far a session is. Both sides go through all of them, nearly at the same time.
type phase int

const (
	running  phase = iota // requests are made
	draining              // no more requests; the outstanding ones are being answered
	settling              // nothing is sent any more; what was sent arrives
	judged                // this side has compared
)

func (p phase) String() string { return [...]string{"running", "draining", "settling", "judged"}[p] }

// session is one side of a run, after the hello. Its run method owns it.
type session struct {
	cfg    Config
	opts   Options
	ctl    *control
	node   Node
	local  netip.Addr
	remote netip.Addr
	active bool
	tasks  []*task

	phase phase
	// deadline is when a phase goes on without what it waits for, limit when the other side's delay ends
	// the run.
	deadline, limit time.Time
	started         time.Time
	last            time.Time // of the last Interval
	lastCounts      counts
	firstCPU        jiffies
	lastCPU         jiffies
	before          Traffic
	stopping        bool // stop was sent or received
	drained         bool // the own drained was sent
	peerDrained     bool
	arrived         time.Time // since when everything is here
	peerSent        [][]uint64
	peerTally       *Tally
	summary         Summary
	stopSending     func() // ends blocked sends and waits for them
	stopDuring      func() // ends Config.During and waits for it
}

// bind binds the sockets of this side.
func (s *session) bind(tag uint32) error {
	var peers []rds.Addr
	for i := range s.opts.Tasks {
		peers = append(peers, rds.AddrFrom(s.remote, s.cfg.Port+1+uint16(i)))
	}
	sendBuffer, recvBuffer := s.cfg.buffers(&s.opts)
	for i := range s.opts.Tasks {
		sock, err := s.node.Bind(rds.AddrFrom(s.local, s.cfg.Port+1+uint16(i)), sendBuffer, recvBuffer)
		if err != nil {
			return err
		}
		s.tasks = append(s.tasks, newTask(i, sock, peers, &s.opts, tag, s.cfg.ReadDelay))
	}
	return nil
}

func (s *session) close() {
	for _, k := range s.tasks {
		k.sock.Close()
	}
}

// run makes requests, if it is this side's turn to, and ends in good order: when the time is over, when
// ctx ends, or when the other side wants to. It closes the control connection. The summary is filled in
// as far as the run came, with an error too.
func (s *session) run(ctx context.Context) (Summary, error) {
	// The end of ctx is the wish to stop: what runs here ends with life.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var receivers, senders, during sync.WaitGroup
	sending, cancelSending := context.WithCancel(life)
	s.stopSending = func() { cancelSending(); senders.Wait() }
	requesting, cancelRequesting := context.WithCancel(life)
	s.stopDuring = func() { cancelRequesting(); during.Wait() }
	// With room, so that two sides that are writing a long line to each other both go on reading.
	lines := make(chan line, 16)
	defer func() {
		end(nil)
		s.ctl.conn.Close()
		s.stopDuring()
		s.stopSending()
		receivers.Wait()
	}()

	receivers.Go(func() {
		for {
			l, err := s.ctl.receive(life, lineLimit)
			if err != nil {
				end(err)
				return
			}
			select {
			case lines <- l:
			case <-life.Done():
				return
			}
			if l.Type == "verdict" {
				return // the last line
			}
		}
	})
	for _, k := range s.tasks {
		receivers.Go(func() {
			if err := k.receive(life); err != nil {
				end(err)
			}
		})
		senders.Go(func() {
			if err := k.unblock(sending); err != nil {
				end(err)
			}
		})
	}
	s.before = s.node.Traffic()
	s.firstCPU, _ = readCPU()
	s.lastCPU = s.firstCPU
	s.started = time.Now()
	s.last = s.started
	if s.cfg.Started != nil {
		s.cfg.Started(s.opts)
	}
	if s.cfg.During != nil {
		during.Go(func() { s.cfg.During(requesting) })
	}
	if s.active || !s.opts.OneWay {
		for _, k := range s.tasks {
			if err := k.start(); err != nil {
				return s.conclude(err)
			}
		}
	}
	return s.conclude(s.loop(ctx, life, lines))
}

// loop leads the session through its phases.
func (s *session) loop(ctx, life context.Context, lines <-chan line) error {
	second := time.NewTicker(pace)
	defer second.Stop()
	look := time.NewTicker(watch)
	defer look.Stop()
	var over <-chan time.Time
	if s.active && s.cfg.Time > 0 {
		timer := time.NewTimer(s.cfg.Time)
		defer timer.Stop()
		over = timer.C
	}
	interrupt := ctx.Done()
	for {
		var err error
		select {
		case <-life.Done():
			return context.Cause(life)
		case <-interrupt:
			interrupt = nil
			err = s.stop(true)
		case <-over:
			err = s.stop(true)
		case l := <-lines:
			err = s.hear(l)
		case <-second.C:
			err = s.tick()
		case <-look.C:
		}
		if err == nil {
			err = s.advance(time.Now())
		}
		if u := (*unsent)(nil); errors.As(err, &u) {
			select {
			case <-life.Done():
				return context.Cause(life)
			case <-time.After(pace):
			}
		}
		if err != nil || s.phase == judged && s.peerTally != nil {
			return err
		}
	}
}

// tick is what happens every second.
func (s *session) tick() error {
	if s.phase == running {
		if err := s.report(time.Now()); err != nil {
			return err
		}
	}
	err := s.ctl.send(line{Type: "alive"})
	if s.phase == judged {
		return nil // the other side may have had all it wants and hung up; its verdict is on the way
	}
	return err
}

// report tells what was done since the last report.
func (s *session) report(now time.Time) error {
	if s.cfg.Each == nil {
		return nil
	}
	counts := s.counts()
	cpu, _ := readCPU()
	iv := interval(s.opts.Tasks, s.lastCounts, counts, now.Sub(s.last), s.percent(s.lastCPU, cpu))
	s.last, s.lastCounts, s.lastCPU = now, counts, cpu
	return s.cfg.Each(iv)
}

func (s *session) percent(before, now jiffies) float64 {
	if !s.cfg.CPU {
		return unmeasured
	}
	return now.percent(before)
}

// counts returns what all tasks have counted.
func (s *session) counts() (c counts) {
	for _, k := range s.tasks {
		c.add(k.snapshot())
	}
	return c
}

// stop ends the making of requests, on this side's wish or the other's.
func (s *session) stop(tell bool) error {
	if s.stopping {
		return nil
	}
	s.stopping = true
	for _, k := range s.tasks {
		k.stop()
	}
	now := time.Now()
	s.measure(now)
	s.stopDuring()
	s.enter(draining)
	if tell {
		if err := s.ctl.send(line{Type: "stop"}); err != nil {
			return err
		}
	}
	if now.Sub(s.last) > pace/2 { // the last second, when the end came before its tick
		return s.report(now)
	}
	return nil
}

func (s *session) enter(p phase) {
	s.phase = p
	s.deadline = time.Now().Add(s.cfg.Timeout)
	// The other side may have entered the phase a timeout later, and use all of its own.
	s.limit = s.deadline.Add(2 * s.cfg.Timeout)
}

// hear takes one line of the other side.
func (s *session) hear(l line) error {
	switch {
	case l.Type == "alive":
		return nil
	case l.Type == "stop" && s.phase <= draining:
		return s.stop(false)
	case l.Type == "drained" && s.phase == draining && !s.peerDrained:
		s.peerDrained = true
		return nil
	case l.Type == "sent" && s.phase == settling && s.peerSent == nil:
		wrong := func(row []uint64) bool { return len(row) != s.opts.Tasks }
		if len(l.Sent) != s.opts.Tasks || slices.ContainsFunc(l.Sent, wrong) {
			return peerErrorf("the other side did not count messages for %d times %d tasks", s.opts.Tasks, s.opts.Tasks)
		}
		s.peerSent = l.Sent
		return nil
	case l.Type == "verdict" && s.peerSent != nil && l.Tally != nil:
		s.peerTally = l.Tally
		return nil
	}
	return peerErrorf("the other side sent the line %.20q, which has no meaning here (phase: %v)", l.Type, s.phase)
}

// advance goes on to the next phase when it is time for it.
func (s *session) advance(now time.Time) error {
	if s.phase == draining && !s.drained {
		unanswered := s.unanswered()
		if unanswered > 0 && now.Before(s.deadline) {
			return nil
		}
		s.drained = true
		if err := s.ctl.send(line{Type: "drained", Unanswered: unanswered}); err != nil {
			return err
		}
	}
	// Now all answers have been given, too, or never will be.
	if s.phase == draining && s.peerDrained {
		if err := s.count(); err != nil {
			return err
		}
		s.enter(settling)
	}
	if s.phase == settling && s.peerSent != nil {
		if s.arrived.IsZero() && s.allArrived() {
			s.arrived = now
		}
		glowed := !s.arrived.IsZero() && now.Sub(s.arrived) >= afterglow
		if glowed || !now.Before(s.deadline) {
			s.enter(judged)
			tally := s.tally()
			return s.ctl.send(line{Type: "verdict", Tally: &tally})
		}
	}
	if s.phase > running && now.After(s.limit) {
		return peerErrorf("the other side did not finish in time (phase: %v)", s.phase)
	}
	return nil
}

// count ends all sending and tells the other side how much that was.
func (s *session) count() error {
	for _, k := range s.tasks {
		k.freeze()
	}
	s.stopSending()
	l := line{Type: "sent"}
	for _, k := range s.tasks {
		l.Sent = append(l.Sent, k.sentTo())
	}
	return s.ctl.send(l)
}

func (s *session) unanswered() (n uint64) {
	for _, k := range s.tasks {
		n += k.unanswered()
	}
	return n
}

// fromPeer returns the number of messages that a task of the other side has sent to k.
func (s *session) fromPeer(k *task) func(peer int) uint64 {
	return func(peer int) uint64 { return s.peerSent[peer][k.self] }
}

func (s *session) allArrived() bool {
	return !slices.ContainsFunc(s.tasks, func(k *task) bool { return !k.arrived(s.fromPeer(k)) })
}

// tally adds up what this side got. Without the numbers of the other side nothing counts as lost that
// may still come.
func (s *session) tally() (t Tally) {
	for _, k := range s.tasks {
		sent := s.fromPeer
		if s.peerSent == nil {
			sent = (*task).highest
		}
		k.tally(&t, sent(k))
	}
	return t
}

// measure fills in what concerns the time in which requests were made.
func (s *session) measure(now time.Time) {
	cpu, _ := readCPU()
	d := now.Sub(s.started)
	s.summary.Seconds = d.Seconds()
	s.summary.Mean = interval(s.opts.Tasks, counts{}, s.counts(), d, s.percent(s.firstCPU, cpu))
}

// conclude completes the summary.
func (s *session) conclude(err error) (Summary, error) {
	sum := &s.summary
	if s.phase == running {
		s.stopDuring()
		s.measure(time.Now())
	}
	sum.Local, sum.Remote, sum.Options = s.local, s.remote, s.opts
	c := s.counts()
	sum.TxMessages, sum.TxBytes = c.txMessages, c.txBytes
	sum.RxMessages, sum.RxBytes = c.rxMessages, c.rxBytes
	sum.Congested, sum.Full, sum.WaitSeconds = c.congested, c.full, c.waited.Seconds()
	t := s.node.Traffic()
	sum.Resets = t.Resets - s.before.Resets
	sum.Retransmissions = t.Retransmissions - s.before.Retransmissions
	sum.Filtered = t.Filtered - s.before.Filtered
	sum.Tally, sum.Unanswered = s.tally(), s.unanswered()
	for _, k := range s.tasks {
		sum.Strays += k.strayed()
	}
	if s.peerTally != nil {
		sum.Peer = *s.peerTally
	}
	sum.Complete = err == nil
	sum.judge()
	if err != nil {
		s.ctl.refuse(err)
		err = fmt.Errorf("the run ended after %.1f s: %w", time.Since(s.started).Seconds(), err)
	}
	return *sum, err
}
