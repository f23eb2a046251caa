package stress

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rds-go/rds"
)

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		change func(*Options)
		err    string
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.Tasks, o.Depth = MaxTasks, 100 }, ""},
		{func(o *Options) { o.Tasks = 0 }, "-t 0: want 1 to 256"},
		{func(o *Options) { o.Depth = 0 }, "-d 0: want 1 to 65536"},
		{func(o *Options) { o.Depth = MaxDepth + 1 }, "-d 65537"},
		{func(o *Options) { o.ReqBytes = MinSize - 1 }, "-q 31: want 32 to 1048576"},
		{func(o *Options) { o.AckBytes = rds.DefaultMaxMessage + 1 }, "-a 1048577: want 32 to 1048576"},
		{func(o *Options) { o.Depth, o.ReqBytes = 1024, 1<<20 }, "-t 1 -d 1024 -q 1048576 -a 63: a task could have 1073806336 bytes outstanding"},
	} {
		o := Options{Tasks: 1, Depth: 1, ReqBytes: 1024, AckBytes: 63}
		tt.change(&o)
		checkOptions(t, o.Check(), tt.err)
	}
}

func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		err    string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Port = 65525 }, ""},
		{func(c *Config) { c.Port = 65526 }, "-p 65526: want 1 to 65525, because 10 tasks need the ports after it"},
		{func(c *Config) { c.Port = 0 }, "-p 0"},
		{func(c *Config) { c.Time = -1 }, "-T -1ns is negative"},
		{func(c *Config) { c.Timeout = time.Second }, "--timeout 1s: want at least 3s"},
		{func(c *Config) { c.SendBuffer = 1024 }, ""},
		{func(c *Config) { c.SendBuffer = 1023 }, "--send-buffer 1023: want 0 or 1024 (the largest message)"},
		{func(c *Config) { c.RecvBuffer = 1 }, ""},
		{func(c *Config) { c.RecvBuffer = maxBuffer + 1 }, "--recv-buffer 1073741825"},
		{func(c *Config) { c.ReadDelay = -time.Second }, "--read-delay -1s is negative"},
	} {
		o, c := Options{Tasks: 10, Depth: 1, ReqBytes: 1024, AckBytes: 63}, quick
		tt.change(&c)
		checkOptions(t, c.Check(&o), tt.err)
	}
}

func checkOptions(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("error %v", err)
		}
		return
	}
	if bad := (*OptionsError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestBuffers(t *testing.T) {
	o := Options{Tasks: 4, Depth: 100, ReqBytes: 1000, AckBytes: 100}
	for _, tt := range []struct {
		c          Config
		o          Options
		send, recv int
	}{
		{Config{}, Options{Tasks: 1, Depth: 1, ReqBytes: 1024, AckBytes: 63}, rds.DefaultBuffer, rds.DefaultBuffer},
		{Config{}, o, 440000, 440000},
		{Config{SendBuffer: 5000}, o, 5000, 440000},
		{Config{RecvBuffer: 10}, o, 440000, 10},
	} {
		if send, recv := tt.c.buffers(&tt.o); send != tt.send || recv != tt.recv {
			t.Errorf("%+v %+v: %d and %d, want %d and %d", tt.c, tt.o, send, recv, tt.send, tt.recv)
		}
	}
}
