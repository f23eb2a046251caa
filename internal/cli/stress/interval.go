package stress

import (
	"fmt"
	"math"
	"time"
)

// counts is what tasks count. They only grow.
type counts struct {
	txMessages, rxMessages uint64
	txBytes, rxBytes       uint64 // payload
	sends                  uint64 // calls that found room at once
	sendTime               time.Duration
	answers                uint64
	roundTrips             time.Duration
	congested, full        uint64 // messages that had to wait: ENOBUFS, EAGAIN
	waited                 time.Duration
}

func (c *counts) sent(bytes int) {
	c.txMessages++
	c.txBytes += uint64(bytes)
}

func (c *counts) received(bytes int) {
	c.rxMessages++
	c.rxBytes += uint64(bytes)
}

func (c *counts) sending(d time.Duration) {
	c.sends++
	c.sendTime += d
}

func (c *counts) answered(roundTrip time.Duration) {
	c.answers++
	c.roundTrips += roundTrip
}

func (c *counts) add(d counts) {
	c.txMessages += d.txMessages
	c.rxMessages += d.rxMessages
	c.txBytes += d.txBytes
	c.rxBytes += d.rxBytes
	c.sends += d.sends
	c.sendTime += d.sendTime
	c.answers += d.answers
	c.roundTrips += d.roundTrips
	c.congested += d.congested
	c.full += d.full
	c.waited += d.waited
}

// Interval is what the tasks of one side did in a stretch of time, in the terms of
// the columns of the classic rds-stress.
type Interval struct {
	Tasks    int     `json:"tasks"`
	TxPerSec float64 `json:"tx_per_s"` // messages
	RxPerSec float64 `json:"rx_per_s"`
	KiBPerS  float64 `json:"kib_per_s"` // payload, sent and received
	// MbiKiBPerS and MboKiBPerS are bytes by RDMA, in and out: none over TCP.
	MbiKiBPerS float64 `json:"mbi_kib_per_s"`
	MboKiBPerS float64 `json:"mbo_kib_per_s"`
	// TxMicros is the mean time of a send call that found room, RTTMicros that from a
	// request to its answer; 0 without any.
	TxMicros  float64 `json:"tx_us"`
	RTTMicros float64 `json:"rtt_us"`
	// CPU is the busy part of all processors in percent, -1 when it is not measured.
	CPU float64 `json:"cpu_percent"`
}

// interval describes what was counted from before to now in d.
func interval(tasks int, before, now counts, d time.Duration, cpu float64) Interval {
	iv := Interval{Tasks: tasks, CPU: hundredths(cpu)}
	if s := d.Seconds(); s > 0 {
		iv.TxPerSec = hundredths(float64(now.txMessages-before.txMessages) / s)
		iv.RxPerSec = hundredths(float64(now.rxMessages-before.rxMessages) / s)
		iv.KiBPerS = hundredths(float64(now.txBytes-before.txBytes+now.rxBytes-before.rxBytes) / 1024 / s)
	}
	if n := now.sends - before.sends; n > 0 {
		iv.TxMicros = hundredths(float64((now.sendTime - before.sendTime).Nanoseconds()) / 1000 / float64(n))
	}
	if n := now.answers - before.answers; n > 0 {
		iv.RTTMicros = hundredths(float64((now.roundTrips - before.roundTrips).Nanoseconds()) / 1000 / float64(n))
	}
	return iv
}

// hundredths rounds x to two decimals, which is what the columns show.
func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

// Header is the head of the columns of Interval.String.
const Header = "tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %"

// String returns the columns of the classic rds-stress.
func (iv Interval) String() string {
	return fmt.Sprintf("%4d %6.0f %6.0f %10.2f %10.2f %10.2f %7.2f %8.2f %5.2f",
		iv.Tasks, iv.TxPerSec, iv.RxPerSec, iv.KiBPerS, iv.MbiKiBPerS, iv.MboKiBPerS, iv.TxMicros, iv.RTTMicros, iv.CPU)
}
