// The library itself comes through the go.work of the repository: a required
// version would have to be published before its own benchmarks could run.
module github.com/rds-go/rds/bench

go 1.26.0

require golang.org/x/sys v0.50.0
