// Package stress is the load behind `rds stress`: the tasks of two sides send
// numbered requests to each other and answer them, each side records what it
// gets, and at the end both compare that with what the other one has sent.
//
// In come a control connection (any net.Conn), the Options that both sides share,
// the Config of this side and a Node to bind sockets on; out come an Interval each
// second and a Summary. The two ends of the control connection may be of different
// kinds: the tests against real kernels bring a Node of AF_RDS sockets. The verdict
// rests on the numbers in the messages of this package; it must not ask RDS.
// Flags, columns on a terminal and exit codes belong to package cli.
package stress
