package fault

import (
	"fmt"
	"syscall"
	"time"
)

// Kind is a kind of fault.
type Kind uint8

const (
	// Reset ends a stream with an RST at once.
	Reset Kind = iota
	// FIN ends the direction of writing with a FIN where it is. Reading goes on, TryWrite fails with EPIPE.
	FIN
	// Cut is a Reset after some more bytes were written: in the middle of a frame.
	Cut
	// ShortWrite makes TryWrite take only a few bytes.
	ShortWrite
	// Stall makes Read and WaitWrite wait, and TryWrite take nothing meanwhile.
	Stall
	// Corrupt flips one bit in the header of a frame.
	Corrupt

	numKinds = iota
)

var kindNames = [numKinds]string{"reset", "fin", "cut", "short write", "stall", "corrupt"}

func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Kinds lists all kinds, for tables.
func Kinds() []Kind { return []Kind{Reset, FIN, Cut, ShortWrite, Stall, Corrupt} }

// Rates are the probabilities of random faults, each in [0, 1]; 0 = never. Reset and
// Stall are drawn for every Read and every TryWrite, the others for every TryWrite.
type Rates struct {
	Reset, FIN, Cut, ShortWrite, Stall, Corrupt float64
}

func (r Rates) check() error {
	for i, p := range []float64{r.Reset, r.FIN, r.Cut, r.ShortWrite, r.Stall, r.Corrupt} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("fault: rate of %v is %v, outside [0, 1]", Kind(i), p)
		}
	}
	return nil
}

// Options says what goes wrong.
type Options struct {
	// Seed of everything random. Each stream draws from a generator of its own, made from Seed,
	// its addresses and how many streams of these there were before.
	Seed uint64
	// Rates of random faults. The zero value injects nothing but what is ordered.
	Rates Rates
	// MaxStall is the longest Stall; each is drawn evenly. 0 = 100 ms; must not be negative.
	MaxStall time.Duration
	// MaxShort is the most bytes that a ShortWrite takes, at least one. 0 = 16; must not be negative.
	MaxShort int
	// CorruptAny lets Corrupt flip bits in any header. Otherwise it leaves headers without a
	// checksum alone, whose damage no receiver could notice.
	CorruptAny bool
	// OnFault, when not nil, is called after each fault by the goroutine that met it: within its
	// Read, TryWrite or order, without locks of this package.
	OnFault func(s *Stream, k Kind)
}

// Error is the reason of a failure that was made here, below a *net.OpError. It matches
// its errno: errors.Is(err, syscall.ECONNRESET).
type Error struct {
	Kind  Kind
	Errno syscall.Errno
}

func (e *Error) Error() string { return fmt.Sprintf("%v (injected %v)", e.Errno, e.Kind) }

func (e *Error) Unwrap() error { return e.Errno }
