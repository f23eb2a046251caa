// Command rds speaks Reliable Datagram Sockets: see `rds --help` and docs/cli.md.
package main

import (
	"os"

	"github.com/rds-go/rds/internal/cli"
)

func main() { os.Exit(cli.Main()) }
