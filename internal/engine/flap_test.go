package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCongestedAndClear: at most one report a second, and the last one is right.
func TestCongestedAndClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		e := newFake(t, Config{Listener: r.listen}, here)
		h := e.to(here, there).handler
		h.RemoteMap(congest())
		r.want(t, "nothing is congested")
		h.RemoteMap(congest(1, 2, 3))
		if ev := r.want(t, "congested", PeerCongested); ev.Count != 3 || ev.Remote.String() != there {
			t.Errorf("%+v", ev)
		}
		h.RemoteMap(congest(2))
		h.RemoteMap(congest())
		r.want(t, "too soon")
		time.Sleep(time.Second)
		if ev := r.want(t, "after a second", PeerClear); ev.Count != 0 || ev.Suppressed != 1 {
			t.Errorf("%+v", ev)
		}
		for range 1000 {
			h.RemoteMap(congest(1))
			h.RemoteMap(congest())
		}
		r.want(t, "flapping, too soon")
		time.Sleep(time.Second)
		r.want(t, "flapped, but as before")
		h.RemoteMap(congest(1))
		if ev := r.want(t, "at once after a rest", PeerCongested); ev.Suppressed != 2000 {
			t.Errorf("%+v", ev)
		}
		time.Sleep(time.Minute)
		h.RemoteMap(congest())
		r.want(t, "at once after a minute", PeerClear)
	})
}

// TestQueueLimitEvents are told in the same way.
func TestQueueLimitEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		e := newFake(t, Config{Listener: r.listen, PeerQueueLimit: 1000}, here)
		l := e.to(here, there)
		s := bind(t, e.Engine, here+":5")
		for range 3 {
			deliver(l, 5, 100, 200)
			take(t, s, s.info().RecvMessages)
		}
		deliver(l, 5, 100, 200)
		r.want(t, "stopped, resumed, …", QueueLimit)
		time.Sleep(time.Second)
		r.want(t, "stopped")
		take(t, s, s.info().RecvMessages)
		r.want(t, "resumed", QueueResumed)
		if got := counter(e.Engine, "recv_queue_limit"); got != 4 {
			t.Errorf("recv_queue_limit = %d", got)
		}
	})
}
