package simnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A history is drawn first and played in a bubble afterwards, because rapid wants
// to be called by its own goroutine.

type step struct {
	op   string
	side Side
	n    int
}

func (s step) String() string { return fmt.Sprintf("%s %v %d", s.op, s.side, s.n) }

// harmless operations let every byte arrive in the end; the others may break the connection.
var (
	harmless = []string{"write", "write", "write", "read", "read", "read", "wait", "wait", "stall", "limit", "jitter", "closewrite"}
	harmful  = []string{"partition", "partition-from", "heal", "silence", "speak", "cut", "vanish", "rst", "break", "close", "reset", "kill"}
)

func drawHistory(t *rapid.T) (o Options, steps []step) {
	o = Options{
		Seed:       rapid.Uint64Range(0, 1<<20).Draw(t, "seed"),
		SendBuffer: rapid.SampledFrom([]int{1, 100, 10_000, 0}).Draw(t, "send buffer"),
		RecvBuffer: rapid.SampledFrom([]int{64, 1000, 10_000, 0}).Draw(t, "receive buffer"),
		Link: Link{
			Delay:     rapid.SampledFrom([]time.Duration{-1, oneWay, time.Second}).Draw(t, "delay"),
			Jitter:    rapid.SampledFrom([]time.Duration{0, oneWay}).Draw(t, "jitter"),
			Bandwidth: rapid.SampledFrom([]int64{0, 100_000}).Draw(t, "bandwidth"),
			Loss:      rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "loss"),
		},
		Chaos: Chaos{ShortWrite: rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "short"), Stall: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "stalls")},
	}
	if o.Link.Loss > 0 {
		o.UserTimeout = -1 // several losses in a row must not end a connection
	}
	ops := harmless
	if rapid.Bool().Draw(t, "harm") {
		ops = append(append([]string{}, harmless...), harmful...)
	}
	steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			op:   rapid.SampledFrom(ops).Draw(t, "op"),
			side: Side(rapid.IntRange(0, 1).Draw(t, "side")),
			n:    rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 3000), rapid.IntRange(0, 1<<18)).Draw(t, "n"),
		}
	}), 0, 40).Draw(t, "steps")
	return o, steps
}

// pattern is the byte at an offset of the stream that starts at from.
func pattern(from Side, offset int) byte { return byte(offset*31>>2) + byte(from)*101 }

// player plays a history and compares with what a stream must do.
type player struct {
	*pair
	ends    [2]*Stream
	written [2]int // taken by TryWrite
	got     [2]int // read by the other side
	closed  [2]bool
	harmed  bool

	mu   sync.Mutex
	errs []string // guarded by mu
}

func (p *player) errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Sprintf(format, args...))
}

func (p *player) play(s step) {
	e := p.ends[s.side]
	switch s.op {
	case "write":
		b := make([]byte, s.n)
		for i := range b {
			b[i] = pattern(s.side, p.written[s.side]+i)
		}
		n, err := e.TryWrite([][]byte{b[:s.n/3], b[s.n/3:]})
		if n < 0 || n > s.n || err != nil && n != 0 {
			p.errorf("%v: took %d, %v", s, n, err)
		}
		p.written[s.side] += n
	case "read":
		e.lock()
		ready := e.canRead()
		e.unlock()
		if ready {
			p.read(s.side, s.n+1)
		}
	case "wait":
		time.Sleep(time.Duration(s.n) * 10 * time.Microsecond)
	case "stall":
		p.c.Stall(s.side, time.Duration(s.n)*10*time.Microsecond)
	case "limit":
		p.c.LimitWrites(s.side, s.n)
	case "jitter":
		p.net.SetLinkFrom(p.ends[s.side].local.Addr(), p.ends[s.side].remote.Addr(), Link{Delay: oneWay, Jitter: time.Duration(s.n) * time.Microsecond})
	case "closewrite":
		e.CloseWrite()
	default:
		p.harm(s)
	}
}

func (p *player) harm(s step) {
	p.harmed = true
	e := p.ends[s.side]
	switch s.op {
	case "partition":
		p.net.Partition(addrA, addrB)
	case "partition-from":
		p.net.PartitionFrom(e.local.Addr(), e.remote.Addr())
	case "heal":
		p.net.HealAll()
	case "silence":
		p.c.Silence(true)
	case "speak":
		p.c.Silence(false)
	case "cut":
		p.c.CutAfter(s.side, int64(s.n/2), CutHow(s.n%numCutHow))
	case "vanish":
		p.c.Vanish(s.side)
	case "rst":
		p.c.RST(s.side)
	case "break":
		p.c.Break()
	case "close":
		e.Close()
		p.closed[s.side] = true
	case "reset":
		e.Reset()
		p.closed[s.side] = true
	case "kill":
		[]*Host{p.a, p.b}[s.side].Kill(How(s.n % 3))
	default:
		p.errorf("no such operation: %v", s)
	}
}

// read reads once at the given side and checks what came.
func (p *player) read(at Side, n int) error {
	got, err := read(p.ends[at], n)
	from := at.Other()
	for i := range len(got) {
		if got[i] != pattern(from, p.got[from]+i) {
			p.errorf("byte %d from the %v is wrong", p.got[from]+i, from)
			break
		}
	}
	p.got[from] += len(got)
	switch {
	case err == nil && got == "":
		p.errorf("read nothing and no error")
	case err == nil, err == io.EOF, errors.Is(err, net.ErrClosed) && p.closed[at]:
	case !p.harmed:
		p.errorf("read at the %v: %v", at, err)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.ETIMEDOUT):
	default:
		p.errorf("read at the %v: %v", at, err)
	}
	return err
}

// check compares what the stack says with what was done.
func (p *player) check() {
	for from := Dialer; from <= Acceptor; from++ {
		pr := p.c.Progress(from)
		if pr.Acked > pr.Delivered || pr.Delivered > pr.Written || pr.Read > pr.Delivered ||
			pr.Written != int64(p.written[from]) || pr.Read != int64(p.got[from]) {
			p.errorf("%v: %+v, written %d, read %d", from, pr, p.written[from], p.got[from])
		}
		if u, err := p.ends[from].Unacked(); err == nil && int64(u) != pr.Written-pr.Acked {
			p.errorf("%v: %d unacknowledged, %+v", from, u, pr)
		} else if (err != nil) != p.closed[from] {
			p.errorf("%v: Unacked: %v", from, err)
		}
	}
}

func playHistory(t *testing.T, o Options, steps []step) []string {
	var p player
	bubble(t, func(t *testing.T) {
		p.pair = newPair(t, o)
		p.ends = [2]*Stream{p.da, p.db}
		for _, s := range steps {
			p.play(s)
			p.check()
		}
		// Both sides end in good order, if they still can.
		p.net.HealAll()
		p.c.LimitWrites(Dialer, 0)
		start := p.net.Now()
		var wg sync.WaitGroup
		for side := Dialer; side <= Acceptor; side++ {
			p.ends[side].CloseWrite()
			wg.Go(func() {
				for p.read(side, 1<<16) == nil {
				}
			})
		}
		wg.Wait()
		p.check()
		if d := p.net.Now() - start; d > 24*time.Hour {
			p.errorf("the end took %v", d)
		}
		if !p.harmed && p.got != p.written {
			p.errorf("written %v, read %v", p.written, p.got)
		}
		for _, e := range p.ends {
			e.Close()
		}
		settle(time.Hour)
		if c, a, s := p.net.Conns(), p.net.alarms(), p.a.streams()+p.b.streams(); len(c) != 0 || a != 0 || s != 0 {
			p.errorf("left over: connections %v, %d alarms, %d streams", c, a, s)
		}
		for _, f := range p.c.flows {
			if len(f.data.blocks) != 0 {
				p.errorf("left over: %d blocks of bytes", len(f.data.blocks))
			}
		}
		synctest.Wait()
	})
	return p.errs
}

func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o, steps := drawHistory(rt)
		if errs := playHistory(t, o, steps); len(errs) > 0 {
			rt.Fatalf("%s\noptions %+v\nsteps %v", strings.Join(errs, "\n"), o, steps)
		}
	})
}
