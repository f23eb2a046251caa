package stress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
)

// ErrHello is matched by errors of Passive that came up before the other side turned out to be one:
// a stranger, another version, impossible options. The passive side may wait for another.
var ErrHello = errors.New("no hello of rds stress")

// Active runs the active side over a control connection, whose local address must be one of the node's:
// it is where the tasks send from, to the connection's other end. It closes the connection.
func Active(ctx context.Context, conn net.Conn, node Node, o Options, cfg Config) (Summary, error) {
	defer conn.Close()
	if err := errors.Join(o.Check(), cfg.Check(&o)); err != nil {
		return Summary{}, err
	}
	local, remote, err := ends(conn)
	if err != nil {
		return Summary{}, err
	}
	tag := rand.Uint32()
	s := &session{cfg: cfg, opts: o, ctl: newControl(conn, cfg.Timeout), node: node, local: local, remote: remote, active: true}
	defer s.close()
	if err := s.bind(tag); err != nil {
		return Summary{}, err
	}
	options, err := json.Marshal(o)
	if err != nil {
		return Summary{}, err
	}
	if err := s.ctl.send(line{Type: "hello", Protocol: Protocol, Version: Version, Tag: tag, Options: options}); err != nil {
		return Summary{}, err
	}
	if err := s.ctl.expect(ctx, "ready"); err != nil {
		return Summary{}, err
	}
	if err := s.ctl.send(line{Type: "go"}); err != nil {
		return Summary{}, err
	}
	return s.run(ctx)
}

// Passive runs the passive side over a control connection. open gives the node when the other side has
// said hello; local is the connection's own end, from where the tasks send, to its other end.
// Passive closes the connection, and the node is the caller's to close.
func Passive(ctx context.Context, conn net.Conn, open func(local netip.Addr) (Node, error), cfg Config) (Summary, error) {
	defer conn.Close()
	ctl := newControl(conn, cfg.Timeout)
	local, remote, err := ends(conn)
	if err != nil {
		return Summary{}, err
	}
	o, tag, err := ctl.hello(ctx, &cfg)
	if err != nil {
		ctl.refuse(err)
		return Summary{}, fmt.Errorf("%w: %w", ErrHello, err)
	}
	node, err := open(local)
	if err != nil {
		ctl.refuse(err)
		return Summary{}, err
	}
	s := &session{cfg: cfg, opts: o, ctl: ctl, node: node, local: local, remote: remote}
	defer s.close()
	if err := s.bind(tag); err != nil {
		ctl.refuse(err)
		return Summary{}, err
	}
	if err := ctl.send(line{Type: "ready"}); err != nil {
		return Summary{}, err
	}
	if err := ctl.expect(ctx, "go"); err != nil {
		return Summary{}, err
	}
	return s.run(ctx)
}

// hello waits for the first line of the active side and checks it.
func (c *control) hello(ctx context.Context, cfg *Config) (o Options, tag uint32, err error) {
	l, err := c.receive(ctx, helloLimit)
	switch {
	case err != nil:
		return o, 0, err
	case l.Type != "hello" || l.Protocol != Protocol:
		return o, 0, peerErrorf("%v does not speak the control protocol of rds stress", c.conn.RemoteAddr())
	case l.Version != Version:
		return o, 0, peerErrorf("the active side speaks version %d of the control protocol, the passive side version %d: use the same release on both", l.Version, Version)
	}
	if err := json.Unmarshal(l.Options, &o); err != nil {
		return o, 0, peerErrorf("options of the active side: %w", err)
	}
	if err := errors.Join(o.Check(), cfg.Check(&o)); err != nil {
		return o, 0, &peerError{err}
	}
	return o, l.Tag, nil
}

// expect waits for a line of this type.
func (c *control) expect(ctx context.Context, what string) error {
	l, err := c.receive(ctx, lineLimit)
	if err == nil && l.Type != what {
		err = peerErrorf("the other side sent the line %.20q instead of %q", l.Type, what)
	}
	return err
}

// refuse tells the other side why nothing comes of it. It may not hear it, and is not waited for long.
func (c *control) refuse(reason error) {
	brief := control{conn: c.conn, timeout: min(pace, c.timeout)}
	_ = brief.send(line{Type: "error", Error: reason.Error()})
}

// ends returns the two addresses of a control connection.
func ends(conn net.Conn) (local, remote netip.Addr, err error) {
	for _, e := range []struct {
		a  net.Addr
		ip *netip.Addr
	}{{conn.LocalAddr(), &local}, {conn.RemoteAddr(), &remote}} {
		ap, err := netip.ParseAddrPort(e.a.String())
		if err != nil {
			return local, remote, fmt.Errorf("control connection: %w", err)
		}
		*e.ip = ap.Addr().Unmap()
	}
	return local, remote, nil
}
