package stress

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds"
)

func addr(ip netip.Addr, port uint16) rds.Addr { return rds.AddrFrom(ip, port) }

// outbox is a socket that keeps what is sent, as long as it has room.
type outbox struct {
	layout layout
	full   error // what TrySend returns; nil: there is room
	room   chan struct{}
	// heard is called when Send has sent and not yet returned; nil: nothing is.
	heard func()
	sent  []string
}

func (o *outbox) TrySend(to rds.Addr, m []byte) error {
	if o.full != nil {
		return o.full
	}
	h, v := o.layout.parse(m)
	o.sent = append(o.sent, fmt.Sprintf("%v %s %d #%d %d", to.Port, map[kind]string{request: "request", answer: "answer"}[h.kind], h.request, h.number, v))
	return nil
}

func (o *outbox) Send(ctx context.Context, to rds.Addr, m []byte) error {
	select {
	case <-o.room:
		o.full = nil
		err := o.TrySend(to, m)
		if o.heard != nil {
			o.heard()
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*outbox) Recv(ctx context.Context, _ []byte) (int, rds.Addr, error) {
	<-ctx.Done()
	return 0, rds.Addr{}, ctx.Err()
}

func (*outbox) Close() error { return nil }

// wantSent compares what was sent since the last call.
func (o *outbox) wantSent(t *testing.T, want ...string) {
	t.Helper()
	if fmt.Sprint(o.sent) != fmt.Sprint(want) {
		t.Errorf("sent %q, want %q", o.sent, want)
	}
	o.sent = nil
}

// newTestTask makes task 1 (the second) of a side with two tasks on each and two requests outstanding.
func newTestTask() (*task, *outbox) {
	box := &outbox{layout: newLayout(&testOptions, 7), room: make(chan struct{})}
	return newTask(1, box, []rds.Addr{addr(addrB, 4001), addr(addrB, 4002)}, &testOptions, 7, 0), box
}

// give hands the task a message of the peer with this index.
func give(t *testing.T, k *task, h header) {
	t.Helper()
	m := k.layout.put(make([]byte, 100), h)
	if err := k.take(k.peers[h.from], m, time.Now()); err != nil {
		t.Error(err)
	}
}

// A task asks all of the other side, answers what it is asked, and asks again when it was answered.
func TestTask(t *testing.T) {
	k, box := newTestTask()
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	box.wantSent(t, "4001 request 0 #0 0", "4002 request 0 #0 0", "4001 request 1 #1 0", "4002 request 1 #1 0")
	give(t, k, header{from: 1, to: 1, kind: request, number: 0, request: 0})
	box.wantSent(t, "4002 answer 0 #2 0")
	give(t, k, header{from: 0, to: 1, kind: answer, number: 0, request: 0})
	box.wantSent(t, "4001 request 2 #2 0")
	k.stop()
	give(t, k, header{from: 0, to: 1, kind: answer, number: 1, request: 1})
	box.wantSent(t)
	give(t, k, header{from: 0, to: 1, kind: request, number: 2, request: 0})
	box.wantSent(t, "4001 answer 0 #3 0")
	if n := k.unanswered(); n != 3 {
		t.Errorf("%d requests unanswered, want 3", n)
	}
	k.freeze()
	give(t, k, header{from: 0, to: 1, kind: request, number: 3, request: 1})
	box.wantSent(t)
}

// What is wrong with single messages is counted, and the task goes on.
func TestTaskWrong(t *testing.T) {
	stray := func(k *task, from rds.Addr, l layout, h header) {
		k.take(from, l.put(make([]byte, 100), h), time.Now())
	}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, k *task)
		want Tally // less Received
		// strays and unanswered at the end, of 4 requests made
		strays, unanswered uint64
	}{
		{"nothing", func(*testing.T, *task) {}, Tally{}, 0, 4},
		{"doubled request", func(t *testing.T, k *task) {
			give(t, k, header{from: 0, to: 1, kind: request})
			give(t, k, header{from: 0, to: 1, kind: request})
		}, Tally{Doubled: 1}, 0, 4},
		{"doubled answer", func(t *testing.T, k *task) {
			give(t, k, header{from: 0, to: 1, kind: answer})
			give(t, k, header{from: 0, to: 1, kind: answer})
		}, Tally{Doubled: 1}, 0, 3},
		{"second answer under a new number", func(t *testing.T, k *task) {
			give(t, k, header{from: 0, to: 1, kind: answer})
			give(t, k, header{from: 0, to: 1, kind: answer, number: 1})
		}, Tally{Damaged: 1}, 0, 3},
		{"answer to what was not asked", func(t *testing.T, k *task) {
			give(t, k, header{from: 0, to: 1, kind: answer, request: 99})
		}, Tally{Damaged: 1}, 0, 4},
		{"answers in the wrong order", func(t *testing.T, k *task) {
			give(t, k, header{from: 0, to: 1, kind: answer, request: 1, number: 1})
			give(t, k, header{from: 0, to: 1, kind: answer, request: 0, number: 0})
		}, Tally{Reordered: 1}, 0, 2},
		{"for another task", func(t *testing.T, k *task) { give(t, k, header{from: 0, to: 0, kind: request}) }, Tally{Damaged: 1}, 0, 4},
		{"another sender", func(t *testing.T, k *task) {
			stray(k, k.peers[1], k.layout, header{from: 0, to: 1})
		}, Tally{Damaged: 1}, 0, 4},
		{"empty", func(t *testing.T, k *task) { k.take(k.peers[0], nil, time.Now()) }, Tally{Damaged: 1}, 0, 4},
		{"a stranger", func(t *testing.T, k *task) {
			stray(k, addr(addrB, 9), k.layout, header{from: 0, to: 1})
		}, Tally{}, 1, 4},
		{"an earlier run", func(t *testing.T, k *task) {
			stray(k, k.peers[0], newLayout(&testOptions, 6), header{from: 0, to: 1})
		}, Tally{}, 1, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _ := newTestTask()
			if err := k.start(); err != nil {
				t.Fatal(err)
			}
			k.stop()
			tt.do(t, k)
			var got Tally
			k.tally(&got, k.highest())
			got.Received = 0
			if got != tt.want || k.strayed() != tt.strays || k.unanswered() != tt.unanswered {
				t.Errorf("got %+v, %d strays, %d unanswered", got, k.strayed(), k.unanswered())
			}
		})
	}
}

// A peer that asks more than the depth while nothing can be sent does not make the task's queue grow.
func TestTaskFlooded(t *testing.T) {
	k, box := newTestTask()
	box.full = syscall.EAGAIN
	for n := range uint64(1000) {
		give(t, k, header{from: 0, to: 1, kind: request, number: n, request: n})
	}
	// Besides the one that is blocked.
	if k.answers.len() != k.depth {
		t.Errorf("%d answers queued, depth %d", k.answers.len(), k.depth)
	}
	var got Tally
	k.tally(&got, k.highest())
	if got.Damaged != 1000-uint64(k.depth)-1 {
		t.Errorf("%+v", got)
	}
}

// The other side may react to a blocked message before the task knows that it was sent: an answer makes
// room for another request.
func TestTaskQuickReaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, box := newTestTask()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.unblock(ctx) }()
		box.full = syscall.ENOBUFS
		for n := range uint64(k.depth) {
			give(t, k, header{from: 0, to: 1, kind: request, number: n, request: n})
		}
		box.heard = func() {
			box.heard = nil
			give(t, k, header{from: 0, to: 1, kind: request, number: 2, request: 2})
		}
		box.room <- struct{}{}
		synctest.Wait()
		box.wantSent(t, "4001 answer 0 #0 0", "4001 answer 1 #1 0", "4001 answer 2 #2 0")
		cancel()
		if err := <-ended; err != nil || k.damaged > 0 {
			t.Errorf("error %v, %d damaged", err, k.damaged)
		}
	})
}

// A message without room blocks sending, not receiving; when there is room all follows in order.
func TestTaskBlocked(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOBUFS, syscall.EAGAIN} {
		synctest.Test(t, func(t *testing.T) {
			k, box := newTestTask()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- k.unblock(ctx) }()
			box.full = fmt.Errorf("wrapped: %w", errno)
			if err := k.start(); err != nil {
				t.Fatal(err)
			}
			give(t, k, header{from: 1, to: 1, kind: request})
			synctest.Wait()
			box.wantSent(t)
			if n := k.unanswered(); n != 1 {
				t.Errorf("%d requests unanswered, want the blocked one", n)
			}
			time.Sleep(time.Second)
			box.room <- struct{}{}
			synctest.Wait()
			box.wantSent(t, "4001 request 0 #0 0", "4002 answer 0 #0 0", "4002 request 0 #1 0", "4001 request 1 #1 0", "4002 request 1 #2 0")
			c := k.snapshot()
			if c.congested+c.full != 1 || (c.congested == 1) != (errno == syscall.ENOBUFS) || c.waited != time.Second || c.sends != 4 || c.txMessages != 5 {
				t.Errorf("%v: counts %+v", errno, c)
			}

			// Once more, and nothing comes of it: the message counts as not sent.
			box.full = errno
			give(t, k, header{from: 0, to: 1, kind: request})
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if got := fmt.Sprint(k.sentTo()); got != "[2 3]" {
				t.Errorf("sent %v", got)
			}
		})
	}
}
