//go:build unix

package rds

import "syscall"

// descriptorLimit is how many descriptors the process may open.
func descriptorLimit() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1 << 20
	}
	return uint64(l.Cur) // signed on some systems
}
