package path

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rds-go/rds/internal/wire"
)

type nobody struct{}

func (*nobody) Released(int, int) {}

func testConnection(local, remote string) *Connection {
	return New(Config{Local: netip.MustParseAddr(local), Remote: netip.MustParseAddr(remote), Generation: 1, FirstSeq: 1,
		MaxAckDelay: 5 * time.Millisecond, MinBackoff: time.Millisecond, MaxBackoff: time.Second, MaxPongs: 10, Rand: rand.Int64N})
}

// TestAckOfCancelledFrame: an acknowledgement that was to ride on a frame is still owed when the stream took nothing of the frame
// and it was cancelled.
func TestAckOfCancelledFrame(t *testing.T) {
	c := testConnection("127.0.0.1", "127.0.0.2")
	now := time.Now()
	write := func(limit int) {
		n := 0
		for _, b := range c.Gather(now, 0, make([][]byte, 0, 64), 1<<20) {
			n += len(b)
		}
		c.Wrote(now, 0, min(n, limit))
	}
	c.Want(now)
	c.Dialed(now, 0, true)
	p := c.Path(0)
	h := wire.Header{Seq: 1, SPort: wire.ProbePort, DPort: wire.PingPort, Ext: c.cfg.Handshake.Area()}
	c.Control(now, 0, ClassProbe, h.AppendTo(nil))
	write(1 << 20)
	if p.ackOwed {
		t.Fatal("the pong says the acknowledgement of the probe, and it is still owed")
	}
	p.Rx.Accept(2, 0)
	c.Batch(now, 0, 0, true, false)
	o := &nobody{}
	p.Tx.Enqueue(&wire.Header{SPort: 5, DPort: 6}, make([]byte, 100), o, false)
	write(0)
	p.Tx.Cancel(o, 0, true)
	now = now.Add(time.Minute)
	c.Tick(now)
	if !c.Writable(now, 0) {
		t.Error("the acknowledgement is lost")
	}
	write(1 << 20)
	if p.ackOwed {
		t.Error("the acknowledgement was written and is still owed")
	}
}

// TestActionsStayValid: what Take returned is not overwritten by the events that carrying it out brings about.
func TestActionsStayValid(t *testing.T) {
	c := testConnection("127.0.0.2", "127.0.0.1")
	now := time.Now()
	c.Incoming(now, 40000)
	c.Take()
	c.act(ActSample, 0)
	c.act(ActHangUp, 0)
	actions, _ := c.Take()
	c.act(ActWrite, 0)
	c.act(ActDial, 0)
	if actions[0].Kind != ActSample || actions[1].Kind != ActHangUp {
		t.Errorf("actions became %v", actions)
	}
}
