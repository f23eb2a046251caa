package simnet

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPartitionThatHealsLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		mustWrite(t, p.da, "before ")
		p.net.Partition(addrA, addrB)
		mustWrite(t, p.da, "during ")
		settle(10 * time.Second)
		if u := unacked(t, p.da); u != 14 {
			t.Fatalf("%d unacknowledged, want 14", u)
		}
		p.net.Heal(addrA, addrB)
		settle(15 * time.Second) // the retransmission timeout has grown
		mustWrite(t, p.da, "after")
		settle(oneWay)
		wantRead(t, p.db, "before during after")
		settle(time.Hour)
		if u := unacked(t, p.da); u != 0 || !p.c.Established() {
			t.Fatal(u, p.c.Established())
		}
		if s := p.net.Stats(); s.Retransmits == 0 || s.Drops == 0 || s.Timeouts != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestBytesBehindLostOnesWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.net.Partition(addrA, addrB)
		mustWrite(t, p.da, "1")
		p.net.HealAll()
		mustWrite(t, p.da, "2")
		settle(minRTO - 1)
		if d := p.c.Progress(Dialer).Delivered; d != 0 {
			t.Fatalf("%d bytes arrived although the first was lost", d)
		}
		settle(1 + oneWay)
		wantRead(t, p.db, "12")
	})
}

func TestLostAcknowledgementIsFoundOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.net.PartitionFrom(addrB, addrA)
		mustWrite(t, p.da, "x")
		settle(100 * time.Millisecond)
		if pr := p.c.Progress(Dialer); pr.Delivered != 1 || pr.Acked != 0 {
			t.Fatalf("%+v", pr)
		}
		p.net.HealAll()
		settle(time.Second)
		if u := unacked(t, p.da); u != 0 {
			t.Fatalf("%d unacknowledged", u)
		}
		wantRead(t, p.db, "x")
		if n, err := p.db.TryWrite([][]byte{[]byte("y")}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	})
}

func TestLostWindowUpdateIsFoundOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{RecvBuffer: 100})
		mustWrite(t, p.da, strings.Repeat("x", 150))
		settle(time.Second)
		p.net.PartitionFrom(addrB, addrA)
		wantReadLen(t, p.db, 100) // the window update is lost
		settle(time.Second)
		p.net.HealAll()
		wantReadLen(t, p.db, 50)
	})
}

func wantReadLen(t *testing.T, s *Stream, n int) {
	t.Helper()
	got, err := read(s, n)
	if len(got) != n || err != nil {
		t.Fatalf("read %d bytes, %v; want %d", len(got), err, n)
	}
}

func TestUserTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{UserTimeout: 7 * time.Second})
		settle(time.Hour)
		p.net.Partition(addrA, addrB)
		start := p.net.Now()
		mustWrite(t, p.da, "x")
		wantErr(t, "WaitWrite", waitFull(p.da), syscall.ETIMEDOUT)
		if d := p.net.Now() - start; d != 7*time.Second {
			t.Errorf("took %v", d)
		}
		if u := unacked(t, p.da); u != 256<<10 {
			t.Errorf("%d unacknowledged", u)
		}
	})
}

// waitFull fills the send buffer and waits for room.
func waitFull(e *Stream) error {
	if _, err := e.TryWrite([][]byte{make([]byte, 1<<20)}); err != nil {
		return err
	}
	return e.WaitWrite()
}

func TestKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{KeepAlive: 12 * time.Second})
		settle(1001 * time.Second)
		if n := p.net.alarms(); n != 0 {
			t.Errorf("%d alarms on a healthy idle connection", n)
		}
		p.net.Partition(addrA, addrB)
		start := p.net.Now()
		wantReadErr(t, p.da, syscall.ETIMEDOUT)
		if d := p.net.Now() - start; d <= 10*time.Second || d > 12*time.Second {
			t.Errorf("took %v", d)
		}
		// One that heals in time survives.
		p.net.HealAll()
		p.dial(t)
		p.net.Partition(addrA, addrB)
		settle(8 * time.Second)
		p.net.HealAll()
		settle(time.Hour)
		if !p.c.Established() {
			t.Error("lost")
		}
	})
}

func TestTimeoutsCanBeOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{KeepAlive: -1, UserTimeout: -1, RecvBuffer: 10})
		mustWrite(t, p.db, strings.Repeat("zero window", 10))
		p.net.Partition(addrA, addrB)
		settle(time.Hour)
		p.net.HealAll()
		settle(time.Hour)
		if !p.c.Established() {
			// The data in flight was given up after 15 retransmissions.
			wantReadErr(t, p.db, syscall.ETIMEDOUT)
		} else {
			t.Error("retransmitted for an hour")
		}
		p.dial(t)
		p.net.Partition(addrA, addrB)
		settle(100 * time.Hour)
		p.net.HealAll()
		if !p.c.Established() {
			t.Error("an idle connection was lost")
		}
		mustWrite(t, p.db, strings.Repeat("zero window", 10))
		settle(100 * time.Hour)
		if !p.c.Established() {
			t.Error("a connection with a zero window was lost")
		}
	})
}

func TestLostSYNIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.net.Partition(addrA, addrB)
		done := make(chan error)
		go func() { _, err := p.a.Dial(t.Context(), addrA, portB, 1, 0); done <- err }()
		start := p.net.Now()
		settle(1500 * time.Millisecond)
		p.net.HealAll()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d := p.net.Now() - start; d != 3*time.Second+2*oneWay {
			t.Errorf("took %v", d)
		}
		// A SYN-ACK, too.
		p.net.PartitionFrom(addrB, addrA)
		go func() { _, err := p.a.Dial(t.Context(), addrA, portB, 2, 0); done <- err }()
		settle(500 * time.Millisecond)
		p.net.HealAll()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := p.l.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.l.Accept(); err != nil {
			t.Fatal(err)
		}
		settle(time.Hour)
		if p.l.Backlogged() != 0 || len(p.net.Conns()) != 3 {
			t.Errorf("%d waiting, %v", p.l.Backlogged(), p.net.Conns())
		}
	})
}

func TestLostThirdPacketOfTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		cut := make(chan struct{})
		go func() { // between the SYN and the ACK
			time.Sleep(oneWay + oneWay/2)
			p.net.PartitionFrom(addrA, addrB)
			close(cut)
		}()
		s, err := p.a.Dial(t.Context(), addrA, portB, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		<-cut
		settle(100 * time.Millisecond)
		if p.l.Backlogged() != 0 {
			t.Fatal("accepted without the third packet")
		}
		p.net.HealAll()
		b, err := p.l.Accept() // after the SYN-ACK was repeated
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, s, "x")
		settle(oneWay)
		wantRead(t, b, "x")
	})
}

func TestDialCancelledOnItsWayLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), oneWay/2)
		defer cancel()
		_, err := p.a.Dial(ctx, addrA, portB, 1, 0)
		wantErr(t, "Dial", err, context.DeadlineExceeded)
		settle(time.Second)
		if p.l.handshakes() != 0 || p.l.Backlogged() != 0 || len(p.net.Conns()) != 1 {
			t.Errorf("%d pending, %d waiting, %v", p.l.handshakes(), p.l.Backlogged(), p.net.Conns())
		}
	})
}

func TestOrphanGivesUpOnAPeerThatDoesNotClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{})
		p.da.Close()
		settle(59 * time.Second)
		if p.a.streams() != 1 {
			t.Fatal("the orphan is gone early")
		}
		settle(2 * time.Second)
		if p.a.streams() != 0 {
			t.Fatal("the orphan is still there")
		}
		mustWrite(t, p.db, "x")
		synctest.Wait()
		settle(2 * oneWay)
		if got, err := read(p.db, 1); got != "" || err.Error() != "EOF" {
			t.Fatal(got, err)
		}
		_, err := p.db.TryWrite([][]byte{[]byte("x")})
		wantErr(t, "TryWrite", err, syscall.ECONNRESET)
	})
}

// streams counts what the stack of h knows.
func (h *Host) streams() int {
	h.m.net.mu.Lock()
	defer h.m.net.mu.Unlock()
	return len(h.m.streams)
}

// handshakes counts the streams that wait for the third packet.
func (l *Listener) handshakes() int {
	l.m.net.mu.Lock()
	defer l.m.net.mu.Unlock()
	return l.pending
}

// alarms counts the alarms that are set.
func (n *Net) alarms() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.clock.heap)
}

func TestBandwidthAndJitter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, Options{Seed: 5, Link: Link{Delay: oneWay, Jitter: oneWay}})
		p.net.SetLinkFrom(addrA, addrB, Link{Delay: oneWay, Jitter: 3 * oneWay, Bandwidth: 1 << 20})
		start := p.net.Now()
		go func() {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = byte(i * 11 >> 3)
			}
			if err := write(p.da, b); err != nil {
				t.Error(err)
			}
			p.da.CloseWrite()
		}()
		got, _ := readAll(p.db)
		if len(got) != 1<<20 {
			t.Fatalf("%d bytes", len(got))
		}
		for i := range got {
			if got[i] != byte(i*11>>3) {
				t.Fatalf("byte %d is wrong", i)
			}
		}
		if d := p.net.Now() - start; d < time.Second || d > 1100*time.Millisecond {
			t.Errorf("1 MiB at 1 MiB/s took %v", d)
		}
	})
}
