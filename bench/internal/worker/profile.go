package worker

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
)

// ProfileDir is the environment variable that names a directory for processor
// profiles of the Go processes: TEST-ROLE-KIND-SIZE.pprof, the last round's.
const ProfileDir = "RDS_BENCH_PROFILE"

// profile begins one. It is completed by stop, or when the coordinator asks the
// process to end.
func (j Job) profile(dir string) (stop func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-%s-%d.pprof", j.Test, j.Role, j.Kind, j.Load.Size)))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	stop = func() {
		pprof.StopCPUProfile()
		f.Close()
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		stop()
		os.Exit(0)
	}()
	return stop, nil
}
