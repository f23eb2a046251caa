package run

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseStat(t *testing.T) {
	const stat = "cpu  1 2 4 1000 2000 8 16 32 64 64\ncpu0 1 1 1 1\n"
	if got, want := parseStat(strings.NewReader(stat)), 630*time.Millisecond; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got := parseStat(strings.NewReader("something else")); got != 0 {
		t.Errorf("%v from nonsense", got)
	}
	if _, err := os.Stat("/proc/stat"); err == nil && busy() <= 0 {
		t.Error("this machine was never busy")
	}
}

func TestUndisturbed(t *testing.T) {
	calls := 0
	measure := func(*time.Duration) (Figures, error) {
		calls++
		return Figures{"call": float64(calls)}, nil
	}
	// A machine whose processors are all in use leaves no room for more than 1.
	for _, foreign := range []float64{0, 2} {
		calls = 0
		if f, disturbed, err := undisturbed(t.Context(), Options{Foreign: foreign}, measure); f["call"] != 1 || disturbed || err != nil {
			t.Errorf("foreign %v: %v, %v, %v", foreign, f, disturbed, err)
		}
	}
	fails := func(*time.Duration) (Figures, error) { return nil, errors.ErrUnsupported }
	if _, _, err := undisturbed(t.Context(), Options{Foreign: 2}, fails); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// What is always disturbed ends after some attempts, with a figure.
func TestDisturbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		// Less than nothing is too much.
		f, disturbed, err := undisturbed(t.Context(), Options{Foreign: -1}, func(*time.Duration) (Figures, error) {
			calls++
			return Figures{"call": float64(calls)}, nil
		})
		if f == nil || !disturbed || err != nil || calls != attempts {
			t.Errorf("%v, %v, %v after %d calls", f, disturbed, err, calls)
		}
	})
	if got := disturbance(0, 9, 0.1); got != "" {
		t.Errorf("%q about nothing", got)
	}
	if got := disturbance(2, 9, 0.1); !strings.Contains(got, "10 %") || !strings.Contains(got, "2 of 9") {
		t.Errorf("%q", got)
	}
}
