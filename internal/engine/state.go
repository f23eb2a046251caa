package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// numbers keeps message numbers growing from one life of a node to the next.
//
// Peers drop messages whose numbers they have seen, so a node must start with a
// number that it never used before (RDS spec section 11, "What an implementation
// must do", rule 6). That is the wall clock in microseconds, which grows faster
// than messages can be sent, unless the clock is set back between two lives. For
// that case the file seq in the state directory holds a high water mark that no
// number has reached. It is written ahead of use, so that it holds after a crash.
type numbers struct {
	first uint64 // where numbers begin in this life

	dir  string   // "" when nothing is kept
	lock *os.File // the directory, locked against a second node

	mu     sync.Mutex // guards the fields below and the file
	timer  *time.Timer
	closed bool
}

const (
	// reserve is how far the mark is ahead of the clock and of use, in numbers,
	// that is in microseconds; refresh is how often it is moved. A path could
	// send 12 million messages a second before it reached the mark.
	reserve = uint64(time.Hour / time.Microsecond)
	refresh = 5 * time.Minute

	stateFile = "seq"
)

// errDirInUse: two nodes would overwrite each other's mark.
var errDirInUse = errors.New("in use by another node")

// openNumbers determines the first number and reserves what follows. dir "" means
// the clock alone.
func openNumbers(dir string) (*numbers, error) {
	n := &numbers{first: clock(), dir: dir}
	if dir == "" {
		return n, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("Config.StateDir: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("Config.StateDir %s: %w", dir, err)
	}
	n.lock = lock
	mark, err := readMark(filepath.Join(dir, stateFile))
	if err == nil {
		n.first = max(n.first, mark)
		err = n.write(n.first + reserve)
	}
	if err != nil {
		n.lock.Close()
		return nil, fmt.Errorf("Config.StateDir: %w", err)
	}
	return n, nil
}

func clock() uint64 { return uint64(max(time.Now().UnixMicro(), 1)) }

// readMark returns the mark in a file, 0 if there is no file.
func readMark(name string) (uint64, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	mark, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s does not hold a message number (remove it if the clock was never set back): %w", name, err)
	}
	return mark, nil
}

// keep moves the mark from time to time, until close. used returns a number that
// is greater than all that were used; failed is told when writing fails.
func (n *numbers) keep(used func() uint64, failed func(error)) {
	if n.dir == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timer = time.AfterFunc(refresh, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.closed {
			return
		}
		if err := n.write(max(clock(), used()) + reserve); err != nil {
			failed(err)
		}
		n.timer.Reset(refresh)
	})
}

// close leaves used as the mark: there is nothing to reserve any more.
func (n *numbers) close(used uint64) error {
	if n.dir == "" {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
	return errors.Join(n.write(max(n.first, used)), n.lock.Close())
}

// write replaces the file so that after a crash either the old or the new one is
// there.
func (n *numbers) write(mark uint64) error {
	f, err := os.CreateTemp(n.dir, stateFile+".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, mark)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(n.dir, stateFile))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return n.lock.Sync() // the directory: makes the renaming last
}
