// Package cli is the command rds without its process: commands, flags, output
// and exit codes.
//
// In come the arguments and the standard streams, out goes the exit code. The
// commands use the public API of package rds like any other program. What can be
// tested without a node has a room of its own: framing (messages in a pipe) and
// demo (the show with its checker). Protocol logic does not belong here.
package cli
