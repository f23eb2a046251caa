//go:build linux

package guest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("RDS_GUEST_CHILD") != "" {
		childMain()
		return
	}
	if InVM() {
		if err := spendFirstSeed(); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// spendFirstSeed binds the first socket after module load, the only one whose
// path hash is random: all others use the paths that KernelPath computes.
func spendFirstSeed() error {
	fd, err := unix.Socket(unix.AF_RDS, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("this kernel has no AF_RDS: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 60000, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("binding an RDS socket to 127.0.0.1: %w", err)
	}
	return nil
}

// The values were observed on 6.1 for ports 5200 to 5215.
func TestKernelPath(t *testing.T) {
	for i, want := range []int{7, 4, 2, 0, 5, 5, 6, 5, 1, 4, 0, 3, 5, 5, 1, 0} {
		if got := KernelPath(uint16(5200+i), 8); got != want {
			t.Errorf("port %d: path %d, want %d", 5200+i, got, want)
		}
	}
}
