// Package seam is a door for the module's own tests and tools into places that
// the public API does not show: it makes a node whose streams come from
// somewhere else than the operating system.
//
// The root package puts its constructor here when it is initialised. The types
// are any, because this package may not import the root package, which imports
// it; callers outside use [New], which puts the types back.
package seam

import "github.com/rds-go/rds/internal/transport"

// NewNode makes an *rds.Node from an rds.Config over a network. The root package
// sets it.
var NewNode func(cfg any, n transport.Network) (any, error)

// New is [NewNode] with types: seam.New[*rds.Node](cfg, network).
func New[Node, Config any](cfg Config, n transport.Network) (Node, error) {
	v, err := NewNode(cfg, n)
	if err != nil {
		var none Node
		return none, err
	}
	return v.(Node), nil
}

// GenNum makes nodes announce their generation to kernels as GEN_NUM too, which
// they do not by default. The tests against real kernels measure what that costs
// (path.Config.GenNum). To be set before the first node is made.
var GenNum bool
