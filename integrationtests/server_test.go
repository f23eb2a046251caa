//go:build linux

package integrationtests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rds-go/rds"
)

// serverEnv holds the arguments of a server process: its address and, after a comma, the number of
// descriptors that it may open.
const serverEnv = "RDS_TEST_SERVER"

const (
	echoPort = 4000 // sends back what it gets
	askPort  = 4001 // answers "counter NAME" and "heap"
	sinkPort = 4002 // reads and forgets
)

// server is another process with a node.
type server struct {
	t   testing.TB
	cmd *exec.Cmd
	ip  netip.Addr
}

// startServer starts a process with a node at an address; it ends with the test. descriptors 0 means no limit.
func startServer(t testing.TB, ip netip.Addr, descriptors int) *server {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%v,%d", serverEnv, ip, descriptors))
	in, err := cmd.StdinPipe() // its end tells the server to stop
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGCONT)
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("server process: %v", err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("server process says %q, %v", line, err)
	}
	return &server{t: t, cmd: cmd, ip: ip}
}

func (s *server) echo() rds.Addr { return rds.AddrFrom(s.ip, echoPort) }
func (s *server) sink() rds.Addr { return rds.AddrFrom(s.ip, sinkPort) }

// signal stops the process or lets it go on.
func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// ask asks a question by way of a socket that nobody else uses.
func (s *server) ask(from *rds.Socket, question string) uint64 {
	s.t.Helper()
	ctx := limited(s.t)
	if err := from.Send(ctx, rds.AddrFrom(s.ip, askPort), []byte(question)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _, err := from.Recv(ctx, buf)
	if err != nil {
		s.t.Fatalf("the server does not answer %q: %v", question, err)
	}
	v, err := strconv.ParseUint(string(buf[:n]), 10, 64)
	if err != nil {
		s.t.Fatalf("the server answers %q to %q", buf[:n], question)
	}
	return v
}

// serve is the server process.
func serve() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "server process:", err)
			os.Exit(1)
		}
	}
	ip, limit, _ := strings.Cut(os.Getenv(serverEnv), ",")
	if n, _ := strconv.ParseUint(limit, 10, 64); n > 0 {
		fail(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}))
	}
	node, err := rds.NewNode(rds.Config{Addrs: []netip.Addr{netip.MustParseAddr(ip)}})
	fail(err)
	ctx := context.Background()
	on := func(port uint16, answer func(p []byte) []byte) {
		s, err := node.Bind(rds.AddrFrom(node.Addrs()[0], port))
		fail(err)
		go func() {
			buf := make([]byte, 1<<20)
			for {
				n, from, err := s.Recv(ctx, buf)
				if err != nil {
					return
				}
				if a := answer(buf[:n]); a != nil {
					s.Send(ctx, from, a)
				}
			}
		}()
	}
	on(echoPort, func(p []byte) []byte { return p })
	on(sinkPort, func([]byte) []byte { return nil })
	on(askPort, func(p []byte) []byte {
		var v uint64
		switch name, isCounter := strings.CutPrefix(string(p), "counter "); {
		case isCounter:
			v = node.Stat(name)
		case name == "heap":
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			v = m.HeapAlloc
		case name == "goroutines":
			v = uint64(runtime.NumGoroutine())
		}
		return strconv.AppendUint(nil, v, 10)
	})
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	node.Close()
}
