package stress

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/fault"
	"github.com/rds-go/rds/internal/seam"
	"github.com/rds-go/rds/internal/simnet"
)

// Two nodes of ours in a simulated network, whose connections both sides kill: nothing is lost.
func TestKiller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simnet.New(simnet.Options{})
		defer sim.Close()
		sim.SetLink(addrA, addrB, simnet.Link{Delay: 2 * time.Millisecond})
		node := func(at netip.Addr) (Library, *Killer) {
			broken := fault.Wrap(sim.Host(at), fault.Options{})
			n, err := seam.New[*rds.Node](rds.Config{Addrs: []netip.Addr{at}}, broken)
			if err != nil {
				t.Fatal(err)
			}
			return Library{n}, &Killer{Network: broken, Every: 50 * time.Millisecond, Kernel: func() bool { return false }}
		}
		na, ka := node(addrA)
		defer na.Node.Close()
		nb, kb := node(addrB)
		defer nb.Node.Close()
		o := Options{Tasks: 2, Depth: 4, ReqBytes: 2000, AckBytes: 100, Verify: true}
		ca, cb := quick, quick
		ca.During, cb.During = ka.Run, kb.Run
		x, y := tcpPipe()
		var a, p outcome
		var wg sync.WaitGroup
		wg.Go(func() { a.sum, a.err = Active(t.Context(), x, na, o, ca) })
		wg.Go(func() {
			p.sum, p.err = Passive(t.Context(), y, func(netip.Addr) (Node, error) { return nb, nil }, cb)
		})
		wg.Wait()
		if a.err != nil || p.err != nil || !a.sum.Pass || !p.sum.Pass {
			t.Errorf("active %v %v, passive %v %v", a.sum.Reasons, a.err, p.sum.Reasons, p.err)
		}
		if ka.Killed() == 0 || kb.Killed() == 0 || a.sum.Resets == 0 || a.sum.Retransmissions+p.sum.Retransmissions == 0 {
			t.Errorf("killed %d and %d, active %+v", ka.Killed(), kb.Killed(), a.sum)
		}
	})
}

// Towards a kernel connections are only ended with a FIN.
func TestKillerKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simnet.New(simnet.Options{})
		defer sim.Close()
		broken := fault.Wrap(sim.Host(addrA), fault.Options{})
		l, err := sim.Host(addrB).Listen(netip.AddrPortFrom(addrB, 16385))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for manner := range 4 {
			s, err := broken.Dial(t.Context(), addrA, netip.AddrPortFrom(addrB, 16385), 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			kernel := &Killer{Network: broken, Kernel: func() bool { return true }}
			kernel.kill(manner, 7)
			s.Close()
		}
		if fins, all := broken.Count(fault.FIN), broken.Total(); fins != 4 || all != 4 {
			t.Errorf("%d FINs of %d faults, want 4 of 4", fins, all)
		}
		// Nothing left to kill.
		(&Killer{Network: broken, Kernel: func() bool { return false }}).kill(0, 7)
		if all := broken.Total(); all != 4 {
			t.Errorf("%d faults", all)
		}
	})
}
