package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// probeTime is how long a machine under KVM may take to say that it works.
// It takes one second where KVM is sound, and for ever where it is not.
const probeTime = 20 * time.Second

// accelerator chooses between KVM and emulation. RDS_VM_ACCEL (kvm or tcg)
// decides if set. Otherwise KVM is used only if a machine was seen to boot
// with it: in nested virtualisation /dev/kvm can be there, open and create
// machines, and still never run one.
func accelerator(ctx context.Context, k Kernel) (string, error) {
	switch a := os.Getenv("RDS_VM_ACCEL"); a {
	case "kvm", "tcg":
		return a, nil
	case "", "auto":
	default:
		return "", fmt.Errorf("RDS_VM_ACCEL=%s: want kvm, tcg or auto", a)
	}
	dev, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg", nil
	}
	dev.Close()

	// The answer holds until the host boots again or gets another QEMU.
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	verdict := filepath.Join(cache, "accel")
	key := hostKey()
	if old, err := os.ReadFile(verdict); err == nil {
		if a, ok := strings.CutPrefix(strings.TrimSpace(string(old)), key+" "); ok && (a == "kvm" || a == "tcg") {
			return a, nil
		}
	}
	a := "tcg"
	probeCtx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var console bytes.Buffer
	if err := runQEMU(probeCtx, &console, qemuArgs(k, "kvm", 512, "rds_probe")); err == nil &&
		bytes.Contains(console.Bytes(), []byte("rds-probe-ok")) {
		a = "kvm"
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	// Only a cache: the next run probes again if this fails.
	_ = os.WriteFile(verdict, []byte(key+" "+a+"\n"), 0o644)
	return a, nil
}

// hostKey names this boot of this host with this QEMU.
func hostKey() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	key := strings.TrimSpace(string(boot))
	if path, err := exec.LookPath(qemu); err == nil {
		if st, err := os.Stat(path); err == nil {
			key += fmt.Sprintf(" %d %d", st.Size(), st.ModTime().Unix())
		}
	}
	return key
}

// runQEMU runs QEMU until it ends or ctx does. Its standard input is the null
// device, or it would take over the terminal.
func runQEMU(ctx context.Context, console io.Writer, args []string) error {
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.WaitDelay = 5 * time.Second
	// The kernel sends the parent-death signal when the starting thread dies,
	// so that thread must live as long as QEMU.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dieWithParent(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", qemu, err)
	}
	return nil
}
