//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/fault"
)

// bothRoles runs a test with our node as the smaller (dialling) and as the larger (accepting) side.
func bothRoles(t *testing.T, f func(t *testing.T, ours Side)) {
	for _, ours := range []Side{A, B} {
		t.Run(map[Side]string{A: "smaller", B: "larger"}[ours], func(t *testing.T) { f(t, ours) })
	}
}

// TestNodeSizes: kernel socket to ours and back, all sizes, IPv4 and IPv6, either side first.
func TestNodeSizes(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		for _, v6 := range []bool{false, true} {
			for _, first := range []string{"kernel-first", "ours-first"} {
				t.Run(map[bool]string{false: "v4", true: "v6"}[v6]+"-"+first, func(t *testing.T) {
					p := NewPair(t)
					k := p.KernelSocketAt(t, ours.Other(), netip.AddrPortFrom(p.Addr(ours.Other(), v6), 4001))
					if err := errors.Join(k.SetSendBuffer(4<<20), k.SetRecvBuffer(8<<20)); err != nil {
						t.Fatal(err)
					}
					n, _ := p.Node(t, ours, nil)
					s := NodeSocket(t, n, netip.AddrPortFrom(p.Addr(ours, v6), 4002))
					ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
					defer cancel()
					buf := make([]byte, MaxMessage+1)
					toOurs := func(data []byte) {
						if err := k.Send(data, netip.AddrPortFrom(p.Addr(ours, v6), 4002), Patience); err != nil {
							t.Fatalf("kernel sends %d bytes: %v", len(data), err)
						}
						m, from, err := s.Recv(ctx, buf)
						if err != nil || from != toRDS(k.Addr()) || !bytes.Equal(buf[:m], data) {
							t.Fatalf("we got %d bytes from %v: %v; want %d from %v", m, from, err, len(data), k.Addr())
						}
					}
					toKernel := func(data []byte) {
						if err := s.Send(ctx, toRDS(k.Addr()), data); err != nil {
							t.Fatalf("we send %d bytes: %v", len(data), err)
						}
						expect(t, k, data, netip.AddrPortFrom(p.Addr(ours, v6), 4002))
					}
					for i, size := range []int{0, 1, 47, 48, 4096, 65536, MaxMessage} {
						if first == "kernel-first" {
							toOurs(pattern(size, byte(i)))
							toKernel(pattern(size, byte(i)))
						} else {
							toKernel(pattern(size, byte(i)))
							toOurs(pattern(size, byte(i)))
						}
					}
					if err := s.Flush(ctx); err != nil {
						t.Errorf("not all was acknowledged: %v", err)
					}
				})
			}
		}
	})
}

// TestNodePing: pings both ways, IPv4 and IPv6.
func TestNodePing(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		p := NewPair(t)
		n, _ := p.Node(t, ours, nil)
		for _, v6 := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(context.Background(), Patience)
			rtt, err := n.Ping(ctx, p.Addr(ours, v6), p.Addr(ours.Other(), v6))
			cancel()
			if err != nil || rtt <= 0 {
				t.Errorf("v6 %v: our ping: %v after %v", v6, err, rtt)
			}
			k := p.KernelSocketAt(t, ours.Other(), netip.AddrPortFrom(p.Addr(ours.Other(), v6), 777))
			for range 3 {
				if err := k.Send(nil, netip.AddrPortFrom(p.Addr(ours, v6), 0), Patience); err != nil {
					t.Fatal(err)
				}
				expect(t, k, nil, netip.AddrPortFrom(p.Addr(ours, v6), 0))
			}
		}
	})
}

// numbered checks that messages count 1, 2, 3, …
type numbered struct {
	mu                          sync.Mutex
	last                        uint64          // largest number seen
	missing                     map[uint64]bool // smaller ones not seen
	doubled, reordered, damaged int
}

func (c *numbered) take(data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing == nil {
		c.missing = map[uint64]bool{}
	}
	n := binary.BigEndian.Uint64(data)
	if !bytes.Equal(data[8:], pattern(len(data)-8, byte(n))) {
		c.damaged++
	}
	switch {
	case n == c.last+1:
		c.last = n
	case n > c.last:
		for i := c.last + 1; i < n; i++ {
			c.missing[i] = true
		}
		c.last = n
	case c.missing[n]:
		delete(c.missing, n)
		c.reordered++
	default:
		c.doubled++
	}
}

func (c *numbered) verdict(sent uint64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("sent %d, lost %d, doubled %d, reordered %d, damaged %d", sent,
		uint64(len(c.missing))+sent-c.last, c.doubled, c.reordered, c.damaged)
}

func (c *numbered) clean(sent uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last == sent && len(c.missing) == 0 && c.doubled == 0 && c.reordered == 0 && c.damaged == 0
}

func (c *numbered) reached(n uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last >= n
}

// message makes a numbered message.
func message(n uint64, size int) []byte {
	return append(binary.BigEndian.AppendUint64(nil, n), pattern(size-8, byte(n))...)
}

func sizeOf(n uint64) int {
	if n%50 == 0 {
		return 60000 // long enough to be cut in the middle
	}
	return 1024
}

// TestNodeResets: numbered messages in both directions while the connection is killed on the
// kernel's side, on ours, and in mid-frame: none lost, doubled or reordered.
func TestNodeResets(t *testing.T) {
	bothRoles(t, func(t *testing.T, ours Side) {
		want := uint64(100)
		if Full() {
			want = 300
		}
		if n, err := strconv.Atoi(os.Getenv("RDS_VM_RESETS")); err == nil {
			want = uint64(n)
		}
		p := NewPair(t)
		k := p.KernelSocket(t, ours.Other(), path0Port)
		if err := errors.Join(k.SetSendBuffer(1<<20), k.SetRecvBuffer(4<<20)); err != nil {
			t.Fatal(err)
		}
		n, net := p.Node(t, ours, func(c *rds.Config) {
			if os.Getenv("RDS_VM_EVENTS") == "1" {
				c.Events = rds.SlogEvents(slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug})))
			}
		})
		at := netip.AddrPortFrom(p.Addr(ours, false), 4002)
		s := NodeSocket(t, n, at)
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		stop := make(chan struct{})
		stopped := func() bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		}
		var toOurs, toKernel numbered
		var kernelSent, weSent atomic.Uint64
		var senders, receivers sync.WaitGroup
		senders.Go(func() {
			for i := uint64(1); !stopped(); i++ {
				if err := k.Send(message(i, sizeOf(i)), at, Patience); err != nil {
					t.Errorf("kernel sends message %d: %v", i, err)
					return
				}
				kernelSent.Store(i)
				time.Sleep(2 * time.Millisecond)
			}
		})
		senders.Go(func() {
			for i := uint64(1); !stopped(); i++ {
				if err := s.Send(ctx, toRDS(k.Addr()), message(i, sizeOf(i))); err != nil {
					t.Errorf("we send message %d: %v", i, err)
					return
				}
				weSent.Store(i)
				time.Sleep(2 * time.Millisecond)
			}
		})
		rctx, rcancel := context.WithCancel(ctx)
		receivers.Go(func() {
			buf := make([]byte, 1<<20)
			for {
				m, _, err := s.Recv(rctx, buf)
				if err != nil {
					return
				}
				toOurs.take(buf[:m])
			}
		})
		receivers.Go(func() {
			for rctx.Err() == nil {
				m, err := k.Recv(100 * time.Millisecond)
				if err == nil && m.From.IsValid() {
					toKernel.take(m.Data)
				}
			}
		})
		conn := func() rds.PathInfo {
			for _, c := range n.Connections() {
				if c.Remote == k.Addr().Addr() {
					return c.Paths[0]
				}
			}
			return rds.PathInfo{}
		}
		kills := map[string]int{}
		outages := map[string][]time.Duration{}
		for i := 0; conn().Resets < want && ctx.Err() == nil; i++ {
			before, began := conn().Resets, time.Now()
			switch i % 3 {
			case 0:
				kills["kernel's-side"] += p.KillTCP(ours.Other())
			case 1:
				kills["our-side"] += p.KillTCP(ours)
			case 2:
				// FIN in the middle of whatever is being written next.
				fins := net.Count(fault.FIN)
				net.SetRates(fault.Rates{ShortWrite: 0.5, FIN: 0.3})
				for j := 0; net.Count(fault.FIN) == fins && j < 100; j++ {
					time.Sleep(5 * time.Millisecond)
				}
				net.SetRates(fault.Rates{})
				kills["FIN-in-mid-frame"] += int(net.Count(fault.FIN) - fins)
			}
			for j := 0; j < 2000 && (conn().Resets == before || conn().State != "UP"); j++ {
				time.Sleep(5 * time.Millisecond)
			}
			kind := [3]string{"kernel's-side", "our-side", "FIN-in-mid-frame"}[i%3]
			outages[kind] = append(outages[kind], time.Since(began))
			time.Sleep(time.Duration(i%7) * 5 * time.Millisecond)
		}
		close(stop)
		senders.Wait()
		for i := 0; i < 600 && !(toOurs.reached(kernelSent.Load()) && toKernel.reached(weSent.Load())); i++ {
			time.Sleep(50 * time.Millisecond)
		}
		if err := s.Flush(ctx); err != nil {
			t.Errorf("not all was acknowledged: %v", err)
		}
		rcancel()
		receivers.Wait()
		info := conn()
		for kind, o := range outages {
			slices.Sort(o)
			Figure(t, "outage-"+kind, fmt.Sprintf("median %v, longest %v", o[len(o)/2].Round(time.Millisecond), o[len(o)-1].Round(time.Millisecond)))
		}
		role := map[Side]string{A: "smaller", B: "larger"}[ours]
		Figure(t, "resets-"+role, info.Resets)
		Figure(t, "kills-"+role, fmt.Sprint(kills))
		Figure(t, "retransmissions-"+role, info.Retransmissions)
		Figure(t, "duplicates-filtered-"+role, info.DroppedDuplicates)
		Figure(t, "kernel-to-ours-"+role, toOurs.verdict(kernelSent.Load()))
		Figure(t, "ours-to-kernel-"+role, toKernel.verdict(weSent.Load()))
		if !toOurs.clean(kernelSent.Load()) {
			t.Errorf("kernel to ours: %s", toOurs.verdict(kernelSent.Load()))
		}
		if !toKernel.clean(weSent.Load()) {
			t.Errorf("ours to kernel: %s", toKernel.verdict(weSent.Load()))
		}
		if info.Resets < want || info.Retransmissions == 0 {
			t.Errorf("only %d resets and %d retransmissions", info.Resets, info.Retransmissions)
		}
	})
}
