package run

import (
	"fmt"

	"github.com/rds-go/rds/bench/internal/worker"
)

// A Step is one case of one test, and who is compared in it. All of them do it in
// turn, once in each round.
type Step struct {
	Test       string
	Name       string
	Contenders []Contender // the first one is the yardstick
	Size       int         // of a message in bytes
	Peers      int         // endpoints of a mesh, idle peers
	Place      Place
	Net        Net
}

// Host is the plan for the machine on which the program runs.
func Host() []Step {
	raw, ours, framed, seqpacket, zmq := goContender(Raw), goContender(Ours), goContender(Framed), goContender("seqpacket"), zmqContender()
	var plan []Step
	for _, size := range []int{16, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		for _, place := range []Place{Apart, Free} {
			plan = append(plan, Step{
				Test: worker.OneWay, Name: caseName(size, place), Size: size, Place: place,
				Contenders: []Contender{raw, ours, goContender("rds-batch"), framed, seqpacket, zmq},
			})
		}
	}
	for _, size := range []int{64, 8 << 10} {
		for _, place := range []Place{Apart, Together, Free} {
			plan = append(plan, Step{
				Test: worker.RoundTrip, Name: caseName(size, place), Size: size, Place: place,
				Contenders: []Contender{raw, ours, framed, seqpacket, zmq},
			})
		}
	}
	for _, n := range []int{8, 32, 128} {
		plan = append(plan, Step{
			Test: worker.Mesh, Name: fmt.Sprint(n, " endpoints"), Size: 64, Peers: n,
			Contenders: []Contender{framed, ours, zmq},
		})
	}
	return append(plan, Step{
		Test: worker.Idle, Name: "1000 peers", Size: 1, Peers: 1000,
		Contenders: []Contender{raw, ours, zmq},
	})
}

// Namespaces is the plan for two network namespaces of a machine whose kernel has
// RDS. Its tests have names of their own: they are compared with other things.
func Namespaces(net Net) []Step {
	contenders := []Contender{goContender(Kernel), goContender(Ours), goContender(Raw)}
	var plan []Step
	for _, size := range []int{64, 1 << 10, 8 << 10, 64 << 10} {
		for _, place := range []Place{Apart, Free} {
			plan = append(plan, Step{Test: worker.OneWay, Name: caseName(size, place), Size: size, Place: place, Net: net, Contenders: contenders})
		}
	}
	for _, place := range []Place{Apart, Together, Free} {
		plan = append(plan, Step{Test: worker.RoundTrip, Name: caseName(64, place), Size: 64, Place: place, Net: net, Contenders: contenders})
	}
	return plan
}

func caseName(size int, place Place) string {
	return sizeName(size) + " " + string(place)
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
