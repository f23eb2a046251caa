package run

import "github.com/rds-go/rds/bench/internal/worker"

// headerSize of an RDS message on the wire, which the stream ratio counts as
// payload: it is what the protocol costs, not the implementation.
const headerSize = 48

// Names of figures that follow from those of the processes.
const (
	Rate         = "rate"         // messages per second
	Bytes        = "bytes_rate"   // payload bytes per second
	Stream       = "stream_ratio" // (48 + size) * rate / bytes_rate of raw TCP
	VersusRaw    = "p50_vs_raw"   // round trip time / that of raw TCP
	TailRaw      = "p99_vs_raw"
	VersusMsg    = "vs_tcp_msg" // rate / that of a system call for each message
	VersusZMQ    = "vs_libzmq"  // how many times better than libzmq: rate, round trips per second, memory
	VersusKernel = "vs_kernel"  // how many times better than the kernel's RDS
	CPU          = "cpu_ns"     // processor time of both processes per message
)

// derive adds what follows from the figures of one contender and of the others
// in the same round.
func derive(s Step, f Figures, all map[string]Figures) {
	// over is this contender's figure divided by another one's.
	over := func(result, figure, other string, inverse bool) {
		o := all[other]
		switch {
		case f[figure] == 0 || o[figure] == 0:
		case inverse:
			f[result] = o[figure] / f[figure]
		default:
			f[result] = f[figure] / o[figure]
		}
	}
	switch s.Test {
	case worker.OneWay:
		if raw := all[Raw][Bytes]; raw > 0 && f[Rate] > 0 {
			f[Stream] = float64(headerSize+s.Size) * f[Rate] / raw
		}
		over(VersusZMQ, Rate, Peer, false)
		over(VersusKernel, Rate, Kernel, false)
	case worker.RoundTrip:
		over(VersusRaw, "p50_ns", Raw, false)
		over(TailRaw, "p99_ns", Raw, false)
		over(VersusZMQ, "p50_ns", Peer, true)
		over(VersusKernel, "p50_ns", Kernel, true)
	case worker.Mesh:
		over(VersusMsg, Rate, Framed, false)
		over(VersusZMQ, Rate, Peer, false)
	case worker.Idle:
		over(VersusZMQ, "resident", Peer, true)
	}
}

// rates adds what follows from the figures of one contender alone. It goes before
// derive.
func rates(f Figures) {
	seconds := f["ns"] / 1e9
	if f["messages"] > 0 {
		f[Rate] = f["messages"] / seconds
		f[CPU] = (f["cpu_serve_ns"] + f["cpu_measure_ns"]) / f["messages"]
	}
	if f["bytes"] > 0 {
		f[Bytes] = f["bytes"] / seconds
	}
}
