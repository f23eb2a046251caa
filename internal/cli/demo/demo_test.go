package demo

import (
	"errors"
	"testing"
	"time"

	"github.com/rds-go/rds"
)

func usual() Config {
	return Config{Nodes: 4, Sockets: 2, Duration: 10 * time.Second, Size: 1024, Rate: 12000}
}

func TestConfigLimits(t *testing.T) {
	good := usual()
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"one node":      func(c *Config) { c.Nodes = 1 },
		"many nodes":    func(c *Config) { c.Nodes = maxNodes + 1 },
		"no socket":     func(c *Config) { c.Sockets = 0 },
		"many sockets":  func(c *Config) { c.Sockets = maxSockets + 1 },
		"too short":     func(c *Config) { c.Duration = MinDuration - 1 },
		"small message": func(c *Config) { c.Size = MinSize - 1 },
		"large message": func(c *Config) { c.Size = rds.DefaultMaxMessage + 1 },
		"no rate":       func(c *Config) { c.Rate = 0 },
	} {
		c := usual()
		change(&c)
		if e := (*ConfigError)(nil); !errors.As(c.check(), &e) {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPace(t *testing.T) {
	c := usual()
	if got := c.flows(); got != 8*6 {
		t.Errorf("%d flows, want 48", got)
	}
	if got := c.pause(); got != 4*time.Millisecond { // 48 flows share 12000 messages a second
		t.Errorf("pause %v, want 4ms", got)
	}
	c.Size = rds.DefaultMaxMessage // 64 messages of half a MiB a second
	if got := c.pause().Round(time.Millisecond); got != 750*time.Millisecond {
		t.Errorf("pause %v with large messages, want 750ms", got)
	}
}
