package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/framing"
)

// ears is a sender with a limit: it has room for so many messages to each destination, then waiting
// ends in a timeout.
type ears struct {
	room int
	got  map[rds.Addr][]string
}

func (e *ears) TrySend(to rds.Addr, p []byte) error {
	if len(e.got[to]) == e.room {
		return rds.ErrAgain
	}
	e.got[to] = append(e.got[to], string(p))
	return nil
}

func (e *ears) Send(ctx context.Context, to rds.Addr, p []byte) error {
	if !errors.Is(e.TrySend(to, p), rds.ErrAgain) {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", rds.ErrTimeout, ctx.Err())
}

func to(port uint16) rds.Addr { return rds.AddrFrom(peer.IP, port) }

func TestPump(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in       string
		room     int
		want     []string
		unsent   []rds.Addr
		messages uint64
		err      string
	}{
		{"to both", "a\nbb\n", 10, []string{"a", "bb"}, nil, 4, ""},
		{"nothing", "", 10, nil, nil, 0, ""},
		{"no room", "a\nbb\nc\n", 1, []string{"a"}, []rds.Addr{to(7), to(8)}, 2, "deadline"},
		{"bad input", "a\n" + strings.Repeat("x", 11), 10, []string{"a"}, nil, 2, "line 2 of the input"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := ears{tt.room, map[rds.Addr][]string{}}
				p := pump{
					in: framing.Line.NewReader(strings.NewReader(tt.in), 10), out: &out,
					dests: []rds.Addr{to(7), to(8)}, timeout: 30 * time.Second,
				}
				start := time.Now()
				err := p.run(t.Context())
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if errors.Is(err, rds.ErrTimeout) && time.Since(start) != p.timeout {
					t.Errorf("gave up after %v, want %v", time.Since(start), p.timeout)
				}
				for _, d := range p.dests {
					if diff := cmp.Diff(tt.want, out.got[d]); diff != "" {
						t.Errorf("sent to %v (-want +got):\n%s", d, diff)
					}
				}
				if !slices.Equal(p.unsent, tt.unsent) {
					t.Errorf("unsent %v, want %v", p.unsent, tt.unsent)
				}
				if p.messages != tt.messages {
					t.Errorf("%d messages, want %d", p.messages, tt.messages)
				}
			})
		})
	}
}

// An interrupt ends a pump that waits for input; what is read later is not sent.
func TestPumpInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		out := ears{10, map[rds.Addr][]string{}}
		p := pump{in: framing.Line.NewReader(in, 10), out: &out, dests: []rds.Addr{to(7)}, timeout: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			fmt.Fprintln(stdin, "a")
			synctest.Wait()
			cancel()
		}()
		if err := p.run(ctx); err != nil {
			t.Error(err)
		}
		fmt.Fprintln(stdin, "b") // taken by the reader that was left behind
		stdin.Close()
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, out.got[to(7)]); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// A message that was read is not given up because of an interrupt.
func TestPumpInterruptedInSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := ears{1, map[rds.Addr][]string{}}
		p := pump{in: framing.Line.NewReader(strings.NewReader("a\nb\nc\n"), 10), out: &out, dests: []rds.Addr{to(7)}, timeout: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait() // "b" finds no room
			cancel()
		}()
		start := time.Now()
		if err := p.run(ctx); !errors.Is(err, rds.ErrTimeout) {
			t.Errorf("error %v, want a timeout", err)
		}
		if time.Since(start) != p.timeout {
			t.Errorf("ended after %v, want %v", time.Since(start), p.timeout)
		}
		if want := []rds.Addr{to(7)}; !slices.Equal(p.unsent, want) {
			t.Errorf("unsent %v, want %v", p.unsent, want)
		}
	})
}

func TestNotAcknowledged(t *testing.T) {
	var why trouble
	why.note(peer.IP, "cannot connect: connection refused")
	other := rds.AddrFrom(peer.IP.Next(), 9)
	err := notAcknowledged(30*time.Second, []rds.Addr{to(7), to(8), other}, map[rds.Addr]int{to(7): 3, other: 1}, &why)
	if exitCode(err) != exitUnacked {
		t.Errorf("exit code %d", exitCode(err))
	}
	want := "3 messages not acknowledged by 127.0.0.9:7 within 30s: cannot connect: connection refused\n" +
		"1 message not acknowledged by 127.0.0.10:9 within 30s: no connection and no refusal yet: packets may be dropped on the way"
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestDestinations(t *testing.T) {
	v4, v6 := peer.IP, "[fd00::1]:4000"
	for _, tt := range []struct {
		name string
		args []string
		err  string
	}{
		{"two", []string{"127.0.0.2:4000", "127.0.0.3:4000"}, ""},
		{"twice the same", []string{"127.0.0.2:4000", "127.0.0.2:4000"}, "given twice"},
		{"ping port", []string{"127.0.0.2:0"}, "port 0 is where pings go"},
		{"no port", []string{"127.0.0.2"}, "want ADDR:PORT"},
		{"other family than --bind", []string{v6}, "no way between"},
	} {
		_, err := destinations(context.Background(), v4, tt.args)
		if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || exitCode(err) != exitUsage) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}
