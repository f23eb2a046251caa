package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rds-go/rds/bench/internal/worker"
)

// A Contender is one of those compared.
type Contender struct {
	Name string
	// Command is the command line of a process; the error may be a *skipped.
	Command func(worker.Job) ([]string, error)
}

// Names of contenders with a part in the comparison: Raw is the yardstick of
// ratios, Ours what is held against the targets, Peer what it has to beat.
const (
	Raw    = "tcp"
	Ours   = "rds"
	Peer   = "libzmq"
	Framed = "tcp-msg"
	Kernel = "kernel"
)

// goContender runs this same program as a worker.
func goContender(kind string) Contender {
	return Contender{Name: kind, Command: func(j worker.Job) ([]string, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		j.Kind = kind
		return append([]string{self, "worker"}, j.Args()...), nil
	}}
}

// zmqContender runs the program that bench/setup.sh compiles.
func zmqContender() Contender {
	return Contender{Name: Peer, Command: func(j worker.Job) ([]string, error) {
		program, err := zmqProgram()
		if err != nil {
			return nil, err
		}
		if j.Endpoint == "" {
			j.Endpoint = fmt.Sprintf("tcp://%v:*", j.At)
		}
		return []string{program, j.Test, j.Role, fmt.Sprint(j.Load.Size), j.Endpoint, fmt.Sprint(j.ServePID),
			fmt.Sprint(j.Warm.Milliseconds()), fmt.Sprint(j.Span.Milliseconds()), fmt.Sprint(int(j.Limit.Seconds())), fmt.Sprint(j.Load.Peers)}, nil
	}}
}

func zmqProgram() (string, error) {
	dir := os.Getenv("RDS_BENCH_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "rds-bench")
	}
	program, err := exec.LookPath(filepath.Join(dir, "zmqbench"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &skipped{"libzmq is not prepared: run bench/setup.sh"}
	}
	return program, err
}
