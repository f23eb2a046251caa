package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

var address atomic.Uint32

// somewhere is an address that no other test of this process uses, and the next
// 15 are free as well.
func somewhere() netip.Addr {
	n := address.Add(16)
	return netip.AddrFrom4([4]byte{127, 200, byte(n >> 8), byte(n)})
}

// connect makes both ends of a link.
func connect(t *testing.T, k Kind, load Load) (served, dialled Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	at := somewhere()
	l, err := k.Listen(ctx, load, at)
	var skip *SkipError
	if errors.As(err, &skip) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		Link
		error
	}
	accepted := make(chan end, 1)
	go func() {
		l, err := l.Accept()
		accepted <- end{l, err}
	}()
	if dialled, err = k.Dial(ctx, load, at.Next(), l.Endpoint()); err != nil {
		t.Fatal(err)
	}
	e := <-accepted
	if e.error != nil {
		t.Fatal(e.error)
	}
	return e.Link, dialled
}

func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		for _, size := range []int{1, 1000, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", k.Name, size), func(t *testing.T) {
				load := Load{Size: size, Batch: 3, Buffer: 1 << 20}
				t.Run("oneway", func(t *testing.T) { oneWay(t, k, load) })
				load.RoundTrip = true
				t.Run("roundtrip", func(t *testing.T) { roundTrip(t, k, load) })
			})
		}
	}
}

// oneWay: the end that listened sends, and all that the other one says it
// received is as long as it should be.
func oneWay(t *testing.T, k Kind, load Load) {
	from, to := connect(t, k, load)
	const units = 10
	sent := make(chan error, 1)
	go func() {
		for range units {
			if err := from.Send(); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	want := units * load.Size
	switch k.Name {
	case "tcp":
		want = units * ChunkSize
	case "rds-batch":
		want *= load.Batch
	}
	messages, bytes := 0, 0
	for bytes < want {
		m, b, err := to.Recv()
		if err != nil {
			t.Fatal(err)
		}
		messages, bytes = messages+m, bytes+b
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if k.Name == "tcp" {
		load.Size, messages = 1, messages+bytes
	}
	if bytes != want || messages*load.Size != want {
		t.Errorf("%d messages, %d bytes; want %d bytes", messages, bytes, want)
	}
}

func roundTrip(t *testing.T, k Kind, load Load) {
	if k.Name == "rds-batch" {
		t.Skip("one at a time is no batch")
	}
	a, b := connect(t, k, load)
	for range 3 {
		for _, way := range [][2]Link{{b, a}, {a, b}} {
			if err := way[0].Send(); err != nil {
				t.Fatal(err)
			}
			if m, n, err := way[1].Recv(); err != nil || m != 1 || n != load.Size {
				t.Fatalf("%d messages, %d bytes, %v", m, n, err)
			}
		}
	}
}

func TestFind(t *testing.T) {
	if k, err := Find("rds"); err != nil || k.Name != "rds" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := Find("pigeon"); err == nil {
		t.Error("there are pigeons")
	}
}

func TestMesh(t *testing.T) {
	for _, kind := range []string{"rds", "tcp-msg"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			const n = 3
			at := []netip.Addr{somewhere(), somewhere(), somewhere()}
			m, err := OpenMesh(ctx, kind, Load{Size: 64, Buffer: 1 << 16}, at)
			if err != nil {
				t.Fatal(err)
			}
			var got [n]atomic.Int64
			for i := range n {
				go m.Receive(i, &got[i])
				for j := range n {
					if i == j {
						continue
					}
					if err := m.Send(i, j); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range n {
				for got[i].Load() != n-1 && ctx.Err() == nil {
					runtime.Gosched()
				}
				if g := got[i].Load(); g != n-1 {
					t.Errorf("endpoint %d has %d messages, want %d", i, g, n-1)
				}
			}
		})
	}
	if _, err := OpenMesh(t.Context(), "pigeon", Load{}, nil); err == nil {
		t.Error("there are pigeons")
	}
}

func TestCrowd(t *testing.T) {
	for _, kind := range []string{"rds", "tcp"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			first := somewhere()
			c, err := OpenCrowd(ctx, kind, []netip.Addr{first, first.Next()})
			if err != nil {
				t.Fatal(err)
			}
			v, err := NewVisitor(ctx, kind, c.Endpoint(), somewhere())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := v.Visit(); err != nil {
					t.Fatal(err)
				}
			}
			if kind == "rds" {
				if n := len(v.(*rdsVisitor).node.Connections()); n != 2 {
					t.Errorf("%d connections, want 2", n)
				}
			}
		})
	}
}
