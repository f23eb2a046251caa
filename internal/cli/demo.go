package cli

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rds-go/rds"
	"github.com/rds-go/rds/internal/cli/demo"
)

func demoCommand(c *common) *cobra.Command {
	cfg := demo.Config{Nodes: 4, Sockets: 2, Duration: 10 * time.Second, Size: 1024, Rate: 12000}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Four nodes, killed connections, and a verdict",
		Long: `demo runs several RDS nodes in one process, each on an address of its own in
127.0.0.0/8. All sockets send to all sockets of the other nodes, over real TCP
connections, and all the time connections are killed: by the node with the
smaller address (the one that dials), by the one with the larger, and in the
middle of a frame. A table shows what happens.

At the end each message must have arrived exactly once and in the order in which
its sender sent it to that receiver, with all its bytes. That is checked by
numbers inside the messages, not by those of RDS. The seed decides which
connections are killed when, and the lengths and contents of the messages.

After --duration the demo needs a moment to flush and check, at most 15 s.

` + exitCodesHelp + `
demo exits 0 when connections were killed and nothing was lost, doubled,
reordered or damaged, and 1 otherwise.`,
		Example: `  rds demo
  rds demo --nodes 8 --duration 30s
  rds demo --seed 42 --size 65536
  rds demo --duration 2s --json`,
		Args: noArgs,
		RunE: run(func(ctx context.Context, _ []string) error { return c.demo(ctx, cfg, asJSON) }),
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "number of nodes, 2 to 16")
	f.IntVar(&cfg.Sockets, "sockets", cfg.Sockets, "sockets on each node, 1 to 16")
	f.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long to send and to kill, at least 1s")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed of kills and messages, 0 = a random one")
	f.IntVar(&cfg.Size, "size", cfg.Size, "length of the largest message in bytes, 16 to 1048576")
	f.IntVar(&cfg.Rate, "rate", cfg.Rate, "messages a second, all together")
	f.BoolVar(&asJSON, "json", false, "print the verdict as a JSON object, and no table")
	return cmd
}

func (c *common) demo(ctx context.Context, cfg demo.Config, asJSON bool) error {
	logger, err := c.logger()
	if err != nil {
		return err
	}
	if logger != nil {
		cfg.Events = rds.SlogEvents(logger)
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(rand.Uint32()) // short enough to be typed again
	}
	cfg.Port = c.port
	if !asJSON {
		cfg.Screen = c.Out
		if f, ok := c.Out.(*os.File); ok {
			cfg.Repaint = term.IsTerminal(int(f.Fd()))
		}
	}
	v, err := demo.Run(ctx, cfg)
	if bad := (*demo.ConfigError)(nil); errors.As(err, &bad) {
		return usagef("%w", err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(c.Out).Encode(v)
	} else {
		err = v.Print(c.Out)
	}
	if err != nil {
		return err
	}
	if !v.Pass {
		return negativef("failed: %s", strings.Join(v.Reasons, ", "))
	}
	return nil
}
