package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestKernels boots every kernel once and runs all guest tests in it.
//
//	RDS_VM=1            run; a missing QEMU or kernel is then a failure, not a skip
//	RDS_VM_RUN=regexp   only these guest tests
//	RDS_VM_FULL=1       long runs: 30 minutes for each kernel instead of 4.5
//	RDS_VM_PCAP=1       one capture for each pair of namespaces
//	RDS_VM_OUT=dir      where logs and captures go
//	RDS_VM_ACCEL=tcg    no KVM
//
// Every variable with the prefix RDS_VM_ is also seen by the guest tests.
func TestKernels(t *testing.T) {
	kernels := map[string]Kernel{}
	for _, label := range Labels {
		k, err := Find(label)
		switch {
		case err != nil && os.Getenv("RDS_VM") == "1":
			t.Fatalf("RDS_VM=1, but the suite cannot run: %v", err)
		case err != nil:
			t.Skipf("the suite cannot run: %v", err)
		case os.Getenv("RDS_VM") != "1":
			t.Skip("booting two kernels takes minutes: set RDS_VM=1")
		}
		kernels[label] = k
	}
	binary := buildGuest(t)
	figures := map[string][]Figure{}
	var ran []string
	for _, label := range Labels {
		t.Run(label, func(t *testing.T) {
			rep := runKernel(t, kernels[label], binary)
			figures[label] = rep.Figures
			ran = append(ran, label)
		})
	}
	var table strings.Builder
	if err := WriteFigures(&table, ran, figures); err != nil {
		t.Error(err)
	}
	if table.Len() > 0 {
		t.Logf("figures\n%s", table.String())
	}
}

// buildGuest compiles the tests that run inside the machine. Without cgo the
// binary is static, and the machine has no C library to speak of.
func buildGuest(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "guest.test")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c ./guest: %v\n%s", err, out)
	}
	return binary
}

// outDir keeps what a run leaves, since the logs of a failure must survive the
// test. Directories older than a day are removed.
func outDir(t *testing.T, label string) string {
	t.Helper()
	if d := os.Getenv("RDS_VM_OUT"); d != "" {
		d, err := filepath.Abs(filepath.Join(d, label))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(cache, "out")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadDir(base)
	for _, e := range old {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > 24*time.Hour {
			os.RemoveAll(filepath.Join(base, e.Name()))
		}
	}
	d, err := os.MkdirTemp(base, time.Now().Format("150405-")+label+"-")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// guestEnv hands the RDS_VM_ variables on, except those about this side.
func guestEnv(label string) map[string]string {
	env := map[string]string{"RDS_VM_KERNEL": label}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "RDS_VM_CACHE", "RDS_VM_OUT", "RDS_VM_ACCEL", "RDS_VM_RUN":
		default:
			if strings.HasPrefix(name, "RDS_VM_") {
				env[name] = value
			}
		}
	}
	return env
}

func runKernel(t *testing.T, k Kernel, binary string) *Report {
	limit := 270 * time.Second
	if os.Getenv("RDS_VM_FULL") == "1" {
		limit = 30 * time.Minute
	}
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		deadline = deadline.Add(-5 * time.Second)
		limit = min(limit, time.Until(deadline))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, fmt.Errorf("the time of go test is up (-timeout)"))
		defer cancel()
	}
	// Inside, the limit comes first: then the log has the goroutines of the
	// test that hangs.
	inside := max(limit-40*time.Second, limit/2).Truncate(time.Second)
	args := []string{"-test.v", "-test.timeout=" + inside.String()}
	if run := os.Getenv("RDS_VM_RUN"); run != "" {
		args = append(args, "-test.run="+run)
	}
	dir := outDir(t, k.Label)
	t.Logf("kernel %s, logs and captures in %s", k.Version, dir)
	res, bootErr := Boot(ctx, k, Job{
		Binary: binary, Args: args, Env: guestEnv(k.Label), OutDir: dir, Timeout: limit,
	})
	if res == nil {
		t.Fatal(bootErr)
	}
	rep := &Report{}
	if f, err := os.Open(res.Log); err == nil {
		rep, err = Parse(f)
		f.Close()
		if err != nil {
			t.Errorf("%s: %v", res.Log, err)
		}
	}
	for _, g := range rep.Tests {
		// Flat names: a guest subtest fails under its own name, and its parent
		// with the lines of its own.
		t.Run(strings.ReplaceAll(g.Name, "/", "-"), func(t *testing.T) {
			t.Logf("%.2f s in the machine\n%s", g.Elapsed.Seconds(), strings.Join(g.Output, "\n"))
			switch g.Status {
			case "PASS":
			case "SKIP":
				t.Skip("skipped in the machine")
			case "":
				t.Error("did not end")
			default:
				t.Error("failed in the machine")
			}
		})
	}
	t.Logf("kernel %s, %s: booted in %.1f s, all %.1f s; %d passed, %d failed, %d skipped", k.Version, res.Accel,
		res.Boot.Seconds(), res.Elapsed.Seconds(), rep.Count("PASS"), rep.Count("FAIL"), rep.Count("SKIP"))
	for _, line := range res.Trouble {
		t.Errorf("kernel log: %s", line)
	}
	if crash := rep.Crash(); crash != nil {
		t.Errorf("the test binary crashed:\n%s", strings.Join(crash[:min(len(crash), 80)], "\n"))
	}
	switch {
	case bootErr != nil:
		t.Error(bootErr)
	case rep.Ran() == 0:
		t.Errorf("no guest test ran (RDS_VM_RUN=%q):\n%s", os.Getenv("RDS_VM_RUN"), tail(res.Log, 20))
	case res.RC != 0 && rep.Count("FAIL") == 0 && rep.Crash() == nil:
		t.Errorf("the test binary ended with status %d:\n%s", res.RC, tail(res.Log, 60))
	}
	return rep
}
