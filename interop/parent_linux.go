package interop

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes QEMU end with a test process that is killed or panics.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
