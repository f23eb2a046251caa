package demo

import (
	"context"
	"sync"
	"time"
)

// Run shows the demo. It ends after the duration, or earlier with ctx, and the verdict covers what was
// sent until then. An error means that there is no verdict.
//
// The way of a run:
//  1. launch the nodes and bind the sockets
//  2. receive on every socket, until the end
//  3. send from every socket, kill connections, show the table: for the duration
//  4. flush: wait until everything sent is acknowledged
//  5. drain: wait until everything sent has arrived, and a little longer for doubles
//  6. count and judge
func Run(ctx context.Context, cfg Config) (v Verdict, err error) {
	if err := cfg.check(); err != nil {
		return v, err
	}
	f, err := launch(cfg)
	if err != nil {
		return v, err
	}
	defer f.close()
	start := time.Now()
	v = Verdict{Nodes: cfg.Nodes, Sockets: cfg.Sockets, Flows: cfg.flows(), Seed: cfg.Seed}

	listening, deafen := context.WithCancelCause(context.WithoutCancel(ctx))
	var receivers sync.WaitGroup
	for _, s := range f.sockets {
		receivers.Go(func() {
			if err := f.receive(listening, s); err != nil {
				deafen(err)
			}
		})
	}
	defer receivers.Wait()
	defer deafen(nil)

	sending, stop := context.WithTimeout(ctx, cfg.Duration)
	defer stop()
	senders := newGroup(stop)
	for _, s := range f.sockets {
		senders.run(func() error { return f.send(sending, cfg, s) })
	}
	senders.run(func() error { f.kill(sending, newPlan(cfg.Seed, cfg.Nodes, cfg.Size)); return nil })
	tab := table{w: cfg.Screen, repaint: cfg.Repaint}
	senders.run(func() error { f.show(sending, start, &tab); return nil })
	if err := senders.wait(); err != nil {
		return v, err
	}

	f.settle(listening)
	tab.show(time.Since(start), f.rows())
	cause := context.Cause(listening)
	deafen(nil)
	receivers.Wait()
	if cause != nil {
		return v, cause
	}
	f.count(&v)
	v.Seconds = time.Since(start).Seconds()
	v.judge()
	return v, nil
}

// group is goroutines of which the first that fails ends all.
type group struct {
	wg   sync.WaitGroup
	once sync.Once
	stop func()
	err  error
}

func newGroup(stop func()) *group { return &group{stop: stop} }

func (g *group) run(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.once.Do(func() { g.err = err; g.stop() })
		}
	})
}

func (g *group) wait() error {
	g.wg.Wait()
	return g.err
}

// turn is how often a sender looks at the clock.
const turn = 10 * time.Millisecond

// send sends from s to the sockets of all other nodes, in turns, until ctx ends. The pace of each
// flow is what Config.Rate leaves to it. A sender that was held up, by a connection that was down or by a
// busy machine, goes on at its pace and does not make up for it.
func (f *fleet) send(ctx context.Context, cfg Config, s *socket) error {
	var to []*socket
	for _, d := range f.sockets {
		if d.node != s.node {
			to = append(to, d)
		}
	}
	pause := cfg.pause() / time.Duration(len(to)) // between two messages of this socket
	ticker := time.NewTicker(max(turn, pause))
	defer ticker.Stop()
	p := pattern{cfg.Seed, cfg.Size}
	var buf []byte
	for next := 0; ; {
		for range max(1, turn/max(1, pause)) {
			d := to[next%len(to)]
			number := s.sent[d.name].Load()
			buf = p.append(buf[:0], s.name, d.name, number)
			if err := s.Send(ctx, d.Addr(), buf); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			s.sent[d.name].Store(number + 1)
			s.sentBytes.Add(uint64(len(buf)))
			next++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// kill kills connections as planned, until ctx ends.
func (f *fleet) kill(ctx context.Context, p *plan) {
	for {
		k := p.next()
		select {
		case <-ctx.Done():
			return
		case <-time.After(k.after):
			f.nodes[k.killer].kill(k, f.nodes[k.other()])
		}
	}
}

// show shows the table until ctx ends.
func (f *fleet) show(ctx context.Context, start time.Time, t *table) {
	ticker := time.NewTicker(t.every())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.show(time.Since(start), f.rows())
		}
	}
}

// settle waits until everything sent is acknowledged and has arrived, and a little longer for what must
// not arrive. It gives up after maxSettle: what is missing then counts as lost.
func (f *fleet) settle(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, maxSettle)
	defer cancel()
	var flushing sync.WaitGroup
	for _, s := range f.sockets {
		flushing.Go(func() { s.Flush(wait) }) // the verdict counts what is unacknowledged
	}
	flushing.Wait()

	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	for {
		if sent, received := f.totals(); sent <= received {
			break
		}
		select {
		case <-wait.Done():
			return
		case <-ticker.C:
		}
	}
	select {
	case <-wait.Done():
	case <-time.After(afterglow):
	}
}
