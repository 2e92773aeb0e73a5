package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// door is a listener of the network: where a node seems to be.
type door struct {
	// from is the member that uses the door; nil if the connection has to tell.
	from, to *member
	service  Service
}

// listen opens a door until Close.
func (n *Network) listen(ctx context.Context, at netip.AddrPort, d door) (net.Addr, error) {
	// Keep-alives are the ends' own business: a proxy that sent them would notice a cut where they do
	// not.
	config := net.ListenConfig{KeepAlive: -1}
	listener, err := config.Listen(ctx, "tcp4", at.String())
	if err != nil {
		return nil, err
	}
	// The caller's context bounds the opening; what comes through lives until Close.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.onClose(func() error {
		cancel()
		return listener.Close()
	})
	n.running.Go(func() { n.accept(life, listener, d) })
	return listener.Addr(), nil
}

// acceptPause is the time between two attempts to accept when the first one failed.
const acceptPause = 100 * time.Millisecond

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// accept takes connections until the listener is closed, and waits for them.
func (n *Network) accept(ctx context.Context, listener net.Listener, d door) {
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, connsMax)
	for {
		accepted, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Most likely this process has no file descriptor left; the connection waits in the listener's
			// queue.
			n.logger.Error("a connection cannot be accepted now", "node", d.to.name, "service", d.service.String(), "error", err)
			pause(ctx, acceptPause)
			continue
		}
		up := accepted.(*net.TCPConn)
		select {
		case places <- struct{}{}:
		default:
			n.logger.Warn("a connection is refused, since there are too many", "node", d.to.name, "service", d.service.String(),
				"max", connsMax)
			abort(up)
			continue
		}
		open.Go(func() {
			defer func() { <-places }()
			n.admit(ctx, up, d)
		})
	}
}

// admit finds out whose connection it is and carries it.
func (n *Network) admit(ctx context.Context, up *net.TCPConn, d door) {
	from, err := n.source(up, d)
	if err != nil {
		// It has ended already, or its origin is unknown, so that no rules can be chosen.
		n.logger.Debug("a connection is refused", "node", d.to.name, "service", d.service.String(), "error", err)
		abort(up)
		return
	}
	name := Outside
	if from != nil {
		name = from.name
	}
	c := &conn{
		network: n, up: up, from: from, to: d.to,
		there: n.table.link(way{name, d.to.name, d.service}), back: n.table.link(way{d.to.name, name, d.service}),
	}
	// A connection that ends for one of these is a fault that was asked for, or a node that is down.
	err = c.carry(ctx)
	n.logger.Debug("a connection ended", slog.Any("way", c.there.way), slog.Any("why", err))
}

// source returns the opener of a connection; nil for Outside.
func (n *Network) source(up *net.TCPConn, d door) (*member, error) {
	if d.from != nil {
		return d.from, nil
	}
	remote := addrPort(up.RemoteAddr())
	if n.spaces != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.byHost[remote.Addr()], nil
	}
	name, err := n.owners.find(remote, addrPort(up.LocalAddr()))
	if err != nil || name == "" {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[name] == nil {
		return nil, fmt.Errorf("there is no node %s", name)
	}
	return n.nodes[name], nil
}

// addrPort returns the address of an end of a connection.
func addrPort(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// abort ends a connection by RST. What could be said about a connection that ended already is of no
// interest.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// errBroken ends a connection by RST on both sides.
var errBroken = errors.New("the connection was broken")
