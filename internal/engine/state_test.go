package engine

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openEngine(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := New(Config{Addrs: []netip.Addr{netip.MustParseAddr(here)}, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func mark(t *testing.T, dir string) uint64 {
	t.Helper()
	n, err := readMark(filepath.Join(dir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFirstSeqWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got, want := openEngine(t, "").FirstSeq(), uint64(time.Now().UnixMicro()); got != want {
			t.Errorf("FirstSeq = %d, want the clock, %d", got, want)
		}
	})
}

// TestNumbersGrow over a crash, a clock set back, and an orderly end.
func TestNumbersGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "made", "if", "missing")
		e := openEngine(t, dir)
		first := e.FirstSeq()
		if first != clock() {
			t.Errorf("FirstSeq = %d, want the clock, %d", first, clock())
		}
		if got := mark(t, dir); got != first+reserve {
			t.Errorf("mark = %d, want an hour ahead, %d", got, first+reserve)
		}
		e.seq.lock.Close() // as a crash does

		// The clock has not moved, so for the file it might as well have been
		// set back.
		e = openEngine(t, dir)
		if got := e.FirstSeq(); got != first+reserve {
			t.Errorf("after a crash FirstSeq = %d, want %d", got, first+reserve)
		}
		crashed := e.FirstSeq()
		e.Close()
		if got := mark(t, dir); got != crashed {
			t.Errorf("after Close mark = %d, want %d: nothing was sent", got, crashed)
		}
		time.Sleep(3 * time.Hour)
		if got, want := openEngine(t, dir).FirstSeq(), clock(); got != want {
			t.Errorf("later FirstSeq = %d, want the clock, %d", got, want)
		}
	})
}

// TestMarkKeepsAhead of the clock and of the numbers used.
func TestMarkKeepsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var failed []Event
		e := newFake(t, Config{StateDir: dir, Listener: func(ev Event) { failed = append(failed, ev) }}, here)
		l := e.to(here, there)
		time.Sleep(refresh)
		synctest.Wait()
		if got, want := mark(t, dir), clock()+reserve; got != want {
			t.Errorf("mark = %d, want %d", got, want)
		}
		l.mu.Lock()
		l.nextSeq = clock() * 2
		l.mu.Unlock()
		time.Sleep(refresh)
		synctest.Wait()
		if got, want := mark(t, dir), l.nextSeq+reserve; got != want {
			t.Errorf("mark = %d, want ahead of use, %d", got, want)
		}
		os.RemoveAll(dir)
		time.Sleep(refresh)
		synctest.Wait()
		if len(failed) != 1 || failed[0].Kind != StateFailed || failed[0].Err == nil {
			t.Errorf("events %+v, want one StateFailed", failed)
		}
		if e.Engine.Close() == nil {
			t.Error("Close hides that the mark could not be written")
		}
	})
}

func TestStateErrors(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, dir)
	cfg := Config{Addrs: []netip.Addr{netip.MustParseAddr(here)}, StateDir: dir}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), dir) || !errors.Is(err, errDirInUse) {
		t.Errorf("a second node in the same StateDir: %v", err)
	}
	e.Close()
	name := filepath.Join(dir, stateFile)
	for _, text := range []string{"", "x", "-1", strconv.Itoa(1<<62) + "0"} {
		os.WriteFile(name, []byte(text), 0o600)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("mark %q: error %v, want one that names %s", text, err, name)
		}
	}
	os.Remove(name)
	openEngine(t, dir).Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
}
