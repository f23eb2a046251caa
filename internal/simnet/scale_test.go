package simnet

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rds-go/rds/internal/transport"
)

// TestThousandHosts lets each of a thousand hosts connect to the next, talk and lose the
// connection, again and again.
func TestThousandHosts(t *testing.T) {
	hosts, rounds := 1000, 20
	if testing.Short() {
		hosts, rounds = 100, 5
	}
	bubble(t, func(t *testing.T) {
		n := New(Options{Seed: 1, Link: Link{Delay: oneWay, Jitter: oneWay}})
		addr := func(i int) netip.AddrPort {
			i %= hosts
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 16385)
		}
		var wg sync.WaitGroup
		all := make([]*Host, hosts)
		for i := range all {
			all[i] = n.Host(addr(i).Addr())
			l, err := all[i].Listen(addr(i))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for range rounds {
					s, err := l.Accept()
					if err != nil {
						t.Error(err)
						return
					}
					got, _ := readAll(s)
					if len(got)%100 != 0 {
						t.Errorf("read %d bytes", len(got))
					}
					s.Close()
				}
				l.Close()
			})
		}
		for i, h := range all {
			wg.Go(func() {
				for round := range rounds {
					s, err := h.Dial(t.Context(), addr(i).Addr(), addr(i+1), 0, 0)
					if err != nil {
						t.Errorf("host %d, round %d: %v", i, round, err)
						return
					}
					mustWrite(t, s, string(make([]byte, 100)))
					if round%2 == 0 {
						s.Close()
						continue
					}
					time.Sleep(10 * oneWay)
					s.Reset()
				}
			})
		}
		wg.Wait()
		settle(time.Minute)
		if c := n.Conns(); len(c) != 0 {
			t.Errorf("%d connections left over", len(c))
		}
		if s := n.Stats(); s.Accepts != uint64(hosts*rounds) || s.Bytes != uint64(hosts*rounds*100) {
			t.Errorf("%+v", s)
		}
	})
}

// BenchmarkConnection makes a connection, moves a message and ends it again.
func BenchmarkConnection(b *testing.B) {
	n := New(Options{Link: Link{Delay: -1}})
	defer n.Close()
	host := n.Host(addrA, addrB)
	l, err := host.Listen(portB)
	if err != nil {
		b.Fatal(err)
	}
	message, buf := make([]byte, 100), &into{b: make([]byte, 100)}
	b.ReportAllocs()
	for b.Loop() {
		s, err := host.Dial(b.Context(), addrA, portB, 0, 0)
		if err != nil {
			b.Fatal(err)
		}
		r, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		write(s, message)
		r.Read(buf)
		s.Close()
		r.Close()
	}
}

// BenchmarkStream moves bytes through one stream.
func BenchmarkStream(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "64KiB": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			n := New(Options{Link: Link{Delay: -1}})
			defer n.Close()
			host := n.Host(addrA, addrB)
			l, _ := host.Listen(portB)
			s, err := host.Dial(b.Context(), addrA, portB, 0, 0)
			if err != nil {
				b.Fatal(err)
			}
			r, _ := l.Accept()
			done := make(chan struct{})
			go func(r transport.Stream) {
				defer close(done)
				buf := &into{b: make([]byte, 64<<10)}
				for {
					if _, err := r.Read(buf); err != nil {
						return
					}
				}
			}(r)
			p := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				write(s, p)
			}
			s.CloseWrite()
			<-done
		})
	}
}
