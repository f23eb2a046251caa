//go:build unix && !solaris && !aix

package engine

import (
	"os"
	"syscall"
)

// lockDir opens a directory and locks it for as long as it is open.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			err = errDirInUse
		}
		return nil, err
	}
	return f, nil
}
