// Package interop runs a static Go test binary inside QEMU, on a real Linux
// kernel with AF_RDS and RDS/TCP. In: a kernel prepared by setup.sh, a binary,
// arguments. Out: exit status, logs and the files the binary left behind. It
// knows nothing of RDS; what happens inside the machine is the business of
// package guest.
package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kernel is one prepared kernel of the cache.
type Kernel struct {
	Label   string // "6.1" or "7.x"
	Version string // as uname -r prints it
	Image   string // vmlinuz
	Initrd  string
}

// Labels lists the kernels that setup.sh prepares.
var Labels = []string{"6.1", "7.x"}

// qemu is looked up in PATH.
const qemu = "qemu-system-x86_64"

// CacheDir is where setup.sh keeps kernels; the rules are the same as there.
func CacheDir() (string, error) {
	if d := os.Getenv("RDS_VM_CACHE"); d != "" {
		return d, nil
	}
	if d := os.Getenv("XDG_CACHE_HOME"); d != "" {
		return filepath.Join(d, "rds-interop"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "rds-interop"), nil
}

// Find returns the kernel with this label, or an error that says what is
// missing and how to get it.
func Find(label string) (Kernel, error) {
	if _, err := exec.LookPath(qemu); err != nil {
		return Kernel{}, fmt.Errorf("%s is not installed (interop/setup.sh installs it)", qemu)
	}
	cache, err := CacheDir()
	if err != nil {
		return Kernel{}, err
	}
	dir := filepath.Join(cache, "kernels", label)
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return Kernel{}, fmt.Errorf("no kernel %s in %s (interop/setup.sh prepares it): %w", label, cache, err)
	}
	k := Kernel{
		Label:   label,
		Version: strings.TrimSpace(string(version)),
		Image:   filepath.Join(dir, "vmlinuz"),
		Initrd:  filepath.Join(dir, "initrd.gz"),
	}
	for _, f := range []string{k.Image, k.Initrd} {
		if _, err := os.Stat(f); err != nil {
			return Kernel{}, fmt.Errorf("kernel %s is incomplete, run interop/setup.sh --refresh: %w", label, err)
		}
	}
	return k, nil
}

// Job is what one boot runs.
type Job struct {
	Binary string            // static executable, copied into the machine
	Args   []string          // its arguments
	Env    map[string]string // its environment, added to PATH and HOME
	Files  map[string]string // more files for /tmp of the machine: name there -> path here

	// OutDir receives everything: console.log, test.log, dmesg.txt and out/.
	// It is created; files of an earlier run are overwritten.
	OutDir string

	// Timeout ends the machine the hard way. Zero means 4 minutes.
	Timeout time.Duration

	Memory int // MiB; zero means 2048
}

// Result is what is left of a machine that ran its job to the end.
type Result struct {
	RC      int           // exit status of the binary
	Accel   string        // "kvm" or "tcg"
	Boot    time.Duration // uptime of the machine when the binary started
	Elapsed time.Duration // start to end of QEMU
	Log     string        // file with the output of the binary
	Console string        // file with the console of the machine
	Out     string        // directory with what the binary wrote to $RDS_OUT

	// Trouble has console and kernel log lines that speak of a kernel bug
	// without a panic.
	Trouble []string
}

// ErrNoResult means that the machine ended before the binary did: a kernel
// panic, the time limit, a cancelled context, or QEMU itself.
var ErrNoResult = errors.New("the machine ended without a result")

// Boot starts kernel k, runs the job in it and waits for the end. QEMU is
// killed when ctx ends or the job's time is up. The error is ErrNoResult
// (wrapped, with the end of the console) unless something on this side failed.
func Boot(ctx context.Context, k Kernel, job Job) (*Result, error) {
	if job.Timeout == 0 {
		job.Timeout = 4 * time.Minute
	}
	if job.Memory == 0 {
		job.Memory = 2048
	}
	share := filepath.Join(job.OutDir, "share")
	if err := fillShare(share, job); err != nil {
		return nil, err
	}
	accel, err := accelerator(ctx, k)
	if err != nil {
		return nil, err
	}
	res := &Result{
		Accel:   accel,
		Log:     filepath.Join(share, "test.log"),
		Console: filepath.Join(job.OutDir, "console.log"),
		Out:     filepath.Join(share, "out"),
	}
	console, err := os.Create(res.Console)
	if err != nil {
		return nil, err
	}
	defer console.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, job.Timeout, fmt.Errorf("no end after %v", job.Timeout))
	defer cancel()
	start := time.Now()
	runErr := runQEMU(ctx, console, qemuArgs(k, accel, job.Memory, "",
		"-virtfs", "local,path="+qemuEscape(share)+",mount_tag=share,security_model=none"))
	res.Elapsed = time.Since(start)
	res.Boot = uptime(filepath.Join(share, "uptime"))
	res.Trouble = append(trouble(res.Console), trouble(filepath.Join(share, "dmesg.txt"))...)
	rc, err := os.ReadFile(filepath.Join(share, "rc"))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			runErr = cause
		}
		return res, fmt.Errorf("%w: kernel %s (%s), %v; console:\n%s\nlog:\n%s", ErrNoResult, k.Version, accel, runErr,
			tail(res.Console, 25), tail(res.Log, 15))
	}
	if res.RC, err = strconv.Atoi(strings.TrimSpace(string(rc))); err != nil {
		return res, fmt.Errorf("share/rc: %w", err)
	}
	return res, nil
}

// qemuArgs is the command line; see interop/README.md for why.
func qemuArgs(k Kernel, accel string, memory int, cmdline string, more ...string) []string {
	a := "tcg,thread=multi"
	if accel == "kvm" {
		a = "kvm"
	}
	return append([]string{
		"-accel", a, "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(memory),
		"-kernel", k.Image, "-initrd", k.Initrd,
		// An oops becomes a panic, and a panic ends QEMU: better no result than
		// results of a damaged kernel.
		"-append", strings.TrimSpace("console=ttyS0 quiet oops=panic panic=-1 mitigations=off " + cmdline),
		"-nographic", "-no-reboot", "-nic", "none",
	}, more...)
}

// qemuEscape doubles commas, which separate QEMU's suboptions.
func qemuEscape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// fillShare makes the directory the machine mounts at /share.
func fillShare(share string, job Job) error {
	for _, old := range []string{"rc", "uptime", "test.log", "dmesg.txt", "out"} {
		if err := os.RemoveAll(filepath.Join(share, old)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(share, "files"), 0o755); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(share, "binary"), job.Binary); err != nil {
		return err
	}
	for name, from := range job.Files {
		if err := copyFile(filepath.Join(share, "files", name), from); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(share, "run.sh"), []byte(runScript(job)), 0o755)
}

// runScript works in /tmp: the share is slow, and too slow for captures.
// Only the log goes there directly, so that a machine that hangs leaves one.
func runScript(job Job) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\ncat /proc/uptime >/share/uptime\ncd /tmp\nmkdir -p out\n")
	b.WriteString("cp /share/binary binary\ncp -r /share/files/. . 2>/dev/null\nchmod 755 binary\n")
	b.WriteString("export RDS_IN_VM=1 RDS_OUT=/tmp/out\n")
	names := make([]string, 0, len(job.Env))
	for name := range job.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "export %s=%s\n", name, shellQuote(job.Env[name]))
	}
	b.WriteString("./binary")
	for _, a := range job.Args {
		b.WriteString(" " + shellQuote(a))
	}
	b.WriteString(" >/share/test.log 2>&1\nrc=$?\ncp -r out /share/\nexit $rc\n")
	return b.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// uptime reads the first number of /proc/uptime; zero if there is none.
func uptime(file string) time.Duration {
	b, _ := os.ReadFile(file)
	s, _, _ := strings.Cut(string(b), " ")
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return time.Duration(f * float64(time.Second))
}

// troubleLine matches what a kernel prints when it finds a bug in itself. RCU
// stalls and soft lockups are left out: an overloaded host is enough for them.
var troubleLine = regexp.MustCompile(`Kernel panic|\bBUG: (?:KASAN|kernel|unable|sleeping|scheduling)|\bOops\b|general protection fault|refcount_t:|WARNING: CPU: \d+ PID: \d+ at net/rds|kernel BUG at`)

func trouble(file string) []string {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var out []string
	for line := range bytes.Lines(b) {
		if troubleLine.Match(line) {
			out = append(out, strings.TrimSpace(string(line)))
		}
	}
	return out
}

// escapes are the terminal sequences of the firmware.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?=]*[a-zA-Z]|\x1bc|\r")

// tail returns the last n lines of a log, made readable.
func tail(file string, n int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimSpace(escapes.ReplaceAllString(string(b), "")), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
