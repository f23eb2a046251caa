package cli

import (
	"errors"
	"fmt"
)

// Exit codes, the same for all commands. docs/cli.md and exitCodesHelp explain them to users.
const (
	exitOK       = 0 // done
	exitNegative = 1 // the answer is no: no pong, verdict failed, fewer messages than asked for
	exitUsage    = 2 // unknown flag, bad argument, input that does not fit the framing
	exitLocal    = 3 // this side failed: address in use or not local, input or output error
	exitUnacked  = 4 // messages were not acknowledged in time
)

const exitCodesHelp = `Exit codes:
  0  done
  1  the answer is no: no pong, verdict failed, fewer messages than --count
  2  usage: unknown flag, bad argument, input that does not fit the framing
  3  this side failed: address in use or not local, input or output error
  4  messages were not acknowledged in time`

// failure is an error that knows the exit code it leads to.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usagef returns an error of whoever typed the command.
func usagef(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// negativef returns an error that says: the answer is no.
func negativef(format string, args ...any) error {
	return &failure{exitNegative, fmt.Errorf(format, args...)}
}

// unackedf returns an error that says that messages were not acknowledged.
func unackedf(format string, args ...any) error {
	return &failure{exitUnacked, fmt.Errorf(format, args...)}
}

// exitCode returns the exit code for what a command returned. An error without a code of its own is a
// failure of this side.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	return exitLocal
}
