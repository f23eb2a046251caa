package run

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Rows are found by these names.
func TestPlanNamesAreUnique(t *testing.T) {
	for name, plan := range map[string][]Step{"host": Host(), "namespaces": Namespaces(Net{})} {
		seen := map[string]bool{}
		for _, s := range plan {
			for _, c := range s.Contenders {
				key := fmt.Sprintf("%s/%s/%s", s.Test, s.Name, c.Name)
				if seen[key] {
					t.Errorf("%s: %s twice", name, key)
				}
				seen[key] = true
			}
		}
	}
}

func TestPlaces(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if s, m, err := Free.cpus(); s != nil || m != nil || err != nil {
		t.Errorf("free: %v, %v, %v", s, m, err)
	}
	if s, m, err := Together.cpus(); err != nil || s.Count() != 1 || *s != *m {
		t.Errorf("together: %v, %v, %v", s, m, err)
	}
	s, m, err := Apart.cpus()
	if all.Count() < 2 {
		t.Skipf("one processor: %v", err)
	}
	if err != nil || s.Count() == 0 || s.Count()+m.Count() != all.Count() {
		t.Fatalf("apart: %v, %v, %v", s, m, err)
	}
	for cpu := range 1024 {
		if s.IsSet(cpu) && m.IsSet(cpu) {
			t.Errorf("processor %d belongs to both", cpu)
		}
	}
}

func TestBatchOf(t *testing.T) {
	for size, want := range map[int]int{16: 64, 8 << 10: 64, 64 << 10: 8, 1 << 20: 2} {
		if got := batchOf(size); got != want {
			t.Errorf("%d messages of %d bytes in a batch, want %d", got, size, want)
		}
	}
}
