package wire

import (
	"errors"
	"fmt"
)

var (
	// ErrShort reports a buffer that ends before the thing it should hold.
	ErrShort = errors.New("too short")
	// ErrMapLen reports a congestion map whose payload is not MapLen bytes.
	// Kernels ignore such a frame silently (RDS spec section 5).
	ErrMapLen = errors.New("wrong length of a congestion map")
)

func errShortHeader(n int) error {
	return fmt.Errorf("wire: header of %d bytes, want %d: %w", n, HeaderLen, ErrShort)
}
