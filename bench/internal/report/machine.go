package report

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what figures depend on besides the program.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Load is the load average at the start: figures of a busy machine are
	// worth less.
	Load string `json:"load"`
}

// ThisMachine describes the machine that runs the program.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown processor", Cores: runtime.NumCPU(), Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	return m
}

// Revision is the commit from which this program was built, "+" after it for one
// with changes, or "unknown".
func Revision() string {
	revision, modified := "unknown", ""
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return revision
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	return revision + modified
}

func (m Machine) String() string {
	return fmt.Sprintf("%s, %d processors, %s, %s, load %s", m.CPU, m.Cores, m.Kernel, m.Go, m.Load)
}
