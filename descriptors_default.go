//go:build !unix

package rds

// descriptorLimit is how many descriptors the process may open: as many as it likes.
func descriptorLimit() uint64 { return 1 << 20 }
