package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rds-go/rds/internal/cli"
	"github.com/rds-go/rds/internal/cli/loopback"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rds": func() { os.Exit(cli.Main()) }})
}

// Each script has addresses of its own: ADDR1 to ADDR4, in ascending order. PORT is a TCP port for
// those who need another than RDS's, PID the process of the test.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for i, a := range addresses(4) {
				env.Setenv(fmt.Sprintf("ADDR%d", i+1), a)
			}
			env.Setenv("PID", strconv.Itoa(os.Getpid()))
			env.Setenv("PORT", strconv.Itoa(20000+rand.IntN(10000))) // below the ephemeral ports
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "ipv6" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			l, err := net.Listen("tcp6", "[::1]:0")
			if err != nil {
				return false, nil
			}
			return true, l.Close()
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"within": within,
			"occupy": occupy,
			"lines":  lines,
			"frames": frames,
		},
	})
}

// addresses returns n different addresses of 127.0.0.0/8, the smallest first.
func addresses(n int) []string {
	for {
		a := make([]string, n)
		last := loopback.Random()
		a[0] = last.String()
		i := 1
		for tries := 0; i < n && tries < 1000; tries++ {
			if next := loopback.Random(); last.Less(next) {
				last = next
				a[i] = last.String()
				i++
			}
		}
		if i == n {
			return a
		}
	}
}

// exits CODE PROGRAM ARG...: the program must exit with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// within TIME CODE PROGRAM ARG...: exits, and that before the time is over.
func within(ts *testscript.TestScript, neg bool, args []string) {
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	start := time.Now()
	exits(ts, neg, args[1:])
	if took := time.Since(start); took > limit {
		ts.Fatalf("took %v, limit %v", took, limit)
	}
}

// occupy ADDR:PORT listens there until the end of the script.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy ADDR:PORT")
	}
	l, err := net.Listen("tcp", args[0])
	ts.Check(err)
	ts.Defer(func() { l.Close() })
}

// lines FILE COUNT makes a file of numbered lines.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines FILE COUNT")
	}
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o666))
}

// frames FILE SIZE... makes a file of random messages, framed by len32be.
func frames(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: frames FILE SIZE...")
	}
	var b []byte
	for _, arg := range args[1:] {
		size, err := strconv.Atoi(arg)
		ts.Check(err)
		b = binary.BigEndian.AppendUint32(b, uint32(size))
		for range size {
			b = append(b, byte(rand.Uint32()))
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o666))
}
