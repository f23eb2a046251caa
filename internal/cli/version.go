package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(c *common) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  rds version
  rds version --json`,
		Args: noArgs,
		RunE: run(func(context.Context, []string) error {
			v := buildVersion()
			if asJSON {
				return json.NewEncoder(c.Out).Encode(v)
			}
			_, err := fmt.Fprintf(c.Out, "rds %s %s/%s %s\n", v.Version, v.OS, v.Arch, v.Go)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// version says what this binary was built from.
type version struct {
	Version  string `json:"version"`            // of the module, or "devel"
	Revision string `json:"revision,omitempty"` // of the source, when the build knows it
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func buildVersion() version {
	v := version{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if mv := info.Main.Version; mv != "" && mv != "(devel)" {
		v.Version = mv
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
