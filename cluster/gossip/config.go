package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
)

// Config says how a node gossips. It is not changed after Start.
type Config struct {
	// Self is what the node says of itself at first; see Update.
	Self Info
	// Listen is where gossip listens, host:port, for packets (UDP) and streams (TCP). Port 0 picks a
	// free port.
	Listen string
	// Advertise is the host at which others reach this node, resolved once at the start. Empty means
	// the host of Listen. It must be given if Listen is an unspecified address: which of a machine's
	// addresses others can reach is never guessed.
	Advertise string
	// Join are addresses to look for others at, host:port. They may name the node itself. A host that
	// has several addresses stands for all of them, and is resolved anew at each attempt.
	Join []string
	// Dir is the data directory, in which the addresses of other nodes are kept over a restart. Empty
	// keeps them in memory only.
	Dir string
	// KeyFile holds the gossip keys; see ReadKeyFile and Gossip.ReloadKeys. Without one, Insecure must
	// be set.
	KeyFile string
	// Insecure lets gossip run without a key. Every host that reaches the port can then
	// read and forge what nodes say of each other.
	Insecure bool
	// AllowFrom are the networks from which messages are read; nil means all.
	AllowFrom []netip.Prefix
	// Network is what to run on; nil means the sockets of the machine.
	Network Network
	// Logger takes transitions and what needs attention.
	Logger *slog.Logger
}

var errNoKey = errors.New("gossip needs a key file, or the explicit permission to run without")

// check reports all that is wrong with a configuration.
func (c Config) check() error {
	var errs []error
	if c.Logger == nil {
		errs = append(errs, errors.New("gossip needs a logger"))
	}
	if _, err := c.Self.encode(); err != nil {
		errs = append(errs, err)
	}
	if c.KeyFile == "" && !c.Insecure {
		errs = append(errs, errNoKey)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("%q is no address to listen at: %w", c.Listen, err))
	}
	for _, addr := range c.Join {
		if !Dialable(addr) {
			errs = append(errs, fmt.Errorf("join address %q is not host:port", addr))
		}
	}
	return errors.Join(errs...)
}

// addresses returns where to listen, and the address to advertise without its port.
func (c Config) addresses(ctx context.Context,
	lookup lookupFunc) (listen netip.AddrPort, advertise netip.Addr, err error) {
	hostPort := c.Listen
	if strings.HasPrefix(hostPort, ":") {
		hostPort = "[::]" + hostPort
	}
	at, err := resolveOne(ctx, lookup, hostPort)
	if err != nil {
		return netip.AddrPort{}, netip.Addr{}, err
	}
	if c.Advertise == "" {
		if at.Addr().IsUnspecified() {
			return netip.AddrPort{}, netip.Addr{},
				fmt.Errorf("gossip listens at %s, every address of this machine: say at which host others reach it", c.Listen)
		}
		return at, at.Addr(), nil
	}
	told, err := resolveOne(ctx, lookup, net.JoinHostPort(c.Advertise, "0"))
	if err == nil && told.Addr().IsUnspecified() {
		err = fmt.Errorf("no node can reach another at %s: advertise a host with an address", c.Advertise)
	}
	return at, told.Addr(), err
}

// resolveOne returns one address of host:port, an IPv4 one if there is any.
func resolveOne(ctx context.Context, lookup lookupFunc, hostPort string) (netip.AddrPort, error) {
	addrs, err := resolve(ctx, lookup, hostPort)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, addr := range addrs {
		if addr.Addr().Is4() {
			return addr, nil
		}
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q has no address", hostPort)
	}
	return addrs[0], nil
}
