//go:build linux

package integrationtests

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or is the server process that one of them started.
func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}
