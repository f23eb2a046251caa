package buffer

import "testing"

func TestClassesFitTightly(t *testing.T) {
	for n := 1; n <= 1<<maxShift+5; n += 1 + n/97 {
		class, size := classOf(n)
		if size < n {
			t.Fatalf("classOf(%d) = size %d, too small", n, size)
		}
		if class >= classes {
			t.Fatalf("classOf(%d) = class %d of %d", n, class, classes)
		}
		if n > 1<<minShift && class >= 0 && size > n+n/2 {
			t.Fatalf("classOf(%d) = size %d wastes more than a third", n, size)
		}
	}
}

func TestGetReleaseKeepsSizeAndCount(t *testing.T) {
	before := Live()
	for _, n := range []int{0, 1, 512, 513, 768, 769, 1 << 20, 1<<21 + 1} {
		b := Get(n)
		if len(b.B) < n {
			t.Fatalf("Get(%d) has %d bytes", n, len(b.B))
		}
		b.Release()
		b = Get(n)
		if len(b.B) < n {
			t.Fatalf("second Get(%d) has %d bytes", n, len(b.B))
		}
		b.Release()
	}
	if Live() != before {
		t.Fatalf("Live() = %d, want %d", Live(), before)
	}
}

func TestGetDoesNotAllocateInSteadyState(t *testing.T) {
	Get(4096).Release()
	if n := testing.AllocsPerRun(1000, func() { Get(4096).Release() }); n > 0.1 {
		t.Fatalf("Get allocates %v times a call", n)
	}
}
