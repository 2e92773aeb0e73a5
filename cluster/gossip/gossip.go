package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is a node's part in discovery. Its methods may be called from any goroutine.
type Gossip struct {
	cfg      Config
	list     *memberlist.Memberlist
	members  *members
	problems *problems
	joiner   *joiner
	keys     *keyring
	failures *failures
	addr     netip.AddrPort

	cancel  context.CancelFunc
	joining sync.WaitGroup

	mu     sync.Mutex // one change of what the node says at a time, and none after the end
	closed bool
}

// The library's intervals, for nodes in one or a few data centres.
const (
	// probeInterval is how often each node asks one other whether it is there, probeTimeout how long
	// it waits before it asks others to.
	probeInterval = time.Second
	probeTimeout  = 500 * time.Millisecond
	// suspicionMult makes a node silent 4 s after it failed to answer, up to 24 s if few others say so
	// too. A node that pauses longer is called silent though it is well; nothing follows from that.
	suspicionMult    = 4
	suspicionMaxMult = 6
	// exchangeInterval is how often a node compares all it knows with another one.
	exchangeInterval = 15 * time.Second
	// reclaimAfter is how long after a server id fell silent it may appear at another address. The
	// library's default is never.
	reclaimAfter = time.Second
	// forgottenAfter is how long the library keeps silent nodes. After that only the joiner remembers
	// them.
	forgottenAfter = 30 * time.Second
	gossipInterval = 200 * time.Millisecond

	// updateTimeout bounds how long Update waits until a first node knows.
	updateTimeout = 2 * time.Second
	// leaveTimeout bounds how long Close waits until a first node knows.
	leaveTimeout = 2 * time.Second
)

// Start starts listening and looking for other nodes, until Close. ctx bounds the start only. It
// is no error to find no other node.
func Start(ctx context.Context, cfg Config) (*Gossip, error) {
	return start(ctx, cfg, net.DefaultResolver.LookupNetIP)
}

func start(ctx context.Context, cfg Config, lookup lookupFunc) (*Gossip, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Network == nil {
		cfg.Network = sockets{}
	}
	listen, advertise, err := cfg.addresses(ctx, lookup)
	if err != nil {
		return nil, err
	}
	keys, err := cfg.keyring()
	if err != nil {
		return nil, err
	}
	book, err := loadAddresses(cfg.Dir)
	if err != nil {
		cfg.Logger.Warn("starting without the addresses of other nodes; the join addresses are asked", "error", err)
	}
	socket, err := cfg.Network.Listen(ctx, listen)
	if err != nil {
		return nil, err
	}
	g := &Gossip{cfg: cfg, keys: keys, failures: &failures{}, addr: netip.AddrPortFrom(advertise, socket.Addr().Port())}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel = cancel
	if err := g.assemble(life, socket); err != nil {
		cancel()
		return nil, err
	}
	g.joiner = &joiner{
		members: g.members, self: g.addr, joinAddrs: slices.Clone(cfg.Join),
		lookup: lookup, logger: cfg.Logger, book: book,
		call: func(addr netip.AddrPort) error {
			_, err := g.list.Join([]string{addr.String()})
			return g.failures.explain(addr, err)
		},
	}
	g.joining.Go(func() { g.joiner.run(life) })
	return g, nil
}

// keyring reads the keys of a configuration.
func (c Config) keyring() (*keyring, error) {
	if c.KeyFile == "" {
		c.Logger.Info("gossip runs without a key: whoever reaches its port can read and forge what nodes say of each other")
		return newKeyring(nil)
	}
	keys, err := ReadKeyFile(c.KeyFile)
	if err != nil {
		return nil, err
	}
	return newKeyring(keys)
}

// assemble builds the table, the transport and the library. It closes the socket if that fails.
func (g *Gossip) assemble(life context.Context, socket Socket) error {
	logger := g.cfg.Logger
	encoded, err := g.cfg.Self.encode()
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	g.problems = &problems{logger: logger, seen: make(map[problemKey]*Problem)}
	t := &transport{
		socket: socket, advertise: g.addr, keys: g.keys, allowFrom: g.cfg.AllowFrom, refused: g.reportKey,
		failures: g.failures, logger: logger,
		life: func() context.Context { return life },
	}
	g.members = &members{
		logger: logger, problems: g.problems, addr: g.addr, allowed: t.allowed, self: g.cfg.Self, encoded: encoded,
		byID: make(map[string]*Member), conflicts: make(map[string]*addrConflict), changed: make(chan struct{}),
	}
	t.start()
	lines := newLibraryLog(logger)
	g.list, err = memberlist.Create(libraryConfig(g.cfg.Self.ServerID, t, g.members, lines))
	if err != nil {
		return errors.Join(fmt.Errorf("starting gossip: %w", err), t.Shutdown())
	}
	lines.enableWarnings()
	return nil
}

// libraryConfig returns the library's settings. A member's name is its server id, so that another
// incarnation is another member and never takes over what is known of the one before it.
func libraryConfig(serverID string, t *transport, m *members, lines *libraryLog) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name, c.Transport, c.Logger = serverID, t, lines.logger()
	c.BindPort, c.AdvertisePort = int(t.advertise.Port()), int(t.advertise.Port())
	c.BindAddr, c.AdvertiseAddr = t.advertise.Addr().String(), t.advertise.Addr().String()
	c.TCPTimeout = streamTimeout
	c.ProbeInterval, c.ProbeTimeout, c.GossipInterval = probeInterval, probeTimeout, gossipInterval
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = suspicionMult, suspicionMaxMult
	c.PushPullInterval = exchangeInterval
	c.GossipToTheDeadTime, c.DeadNodeReclaimTime = forgottenAfter, reclaimAfter
	// Compressed content cannot be inspected, and a small packet may expand to gigabytes.
	c.EnableCompression = false
	c.UDPBufferSize = packetBytesMax - headBytes - sealBytes - placeSize
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict = m, m, m, m, m
	return c
}

// reportKey reports a node whose messages cannot be opened, or which cannot open this node's. It
// says which node needs which change.
func (g *Gossip) reportKey(addr netip.AddrPort, cause error) {
	const reload = "; a SIGHUP has a node read its file again"
	text := "has a gossip key that this node does not have: put the same keys into the files of --gossip-keys of both" +
		reload
	switch {
	case errors.Is(cause, errRefused) && g.keys.keyless:
		text = "cannot open what this node sends, because this node has no gossip key: start this node with --gossip-keys " +
			"and the keys of the other one"
	case errors.Is(cause, errRefused):
		text = "cannot open what this node sends, because it lacks this node's gossip key or has none: " +
			"start it with --gossip-keys and this node's keys, or give this node the keys of the cluster" + reload
	case errors.Is(cause, errKeyless):
		text = "runs gossip without a key, and this node has one: start that node with --gossip-keys and the keys of this one"
	case g.keys.keyless:
		text = "runs gossip with a key, and this node has none: start this node with --gossip-keys and the keys of that one"
	}
	g.problems.report(Problem{
		Kind: WrongKey, Addr: addr,
		Text: fmt.Sprintf("the node at %s %s; until then the two will not find each other", placeOf(addr), text),
	})
}

// placeOf writes an address, without the port if that is not known.
func placeOf(addr netip.AddrPort) string {
	if addr.Port() == 0 {
		return addr.Addr().String()
	}
	return addr.String()
}

// Addr returns the address at which others reach this node's gossip, with the port that was picked.
func (g *Gossip) Addr() netip.AddrPort { return g.addr }

// Members returns the other nodes of this cluster, and those that have none yet, in the order of
// their server ids: those that are alive, and those that fell silent while this process ran. As
// long as this node has no cluster it sees nodes of any.
func (g *Gossip) Members() []Member { return g.members.list() }

// Changed returns a channel that is closed at the next change of Members. To miss none, ask for it
// before reading Members.
func (g *Gossip) Changed() <-chan struct{} { return g.members.change() }

// Problems returns the problems that an operator must fix, in the order in which they were first
// seen. Each was logged once.
func (g *Gossip) Problems() []Problem { return g.problems.list() }

// ErrClosed is returned by calls that come after Close.
var ErrClosed = errors.New("gossip has ended")

// Update replaces what the node says of itself. Name and server id must stay. It returns when a
// first node knows, or after two seconds; that node spreads it to the others.
func (g *Gossip) Update(self Info) error {
	encoded, err := self.encode()
	if err != nil {
		return err
	}
	if self.ServerID != g.cfg.Self.ServerID {
		return fmt.Errorf("this node is %s, it cannot become %s", g.cfg.Self.ServerID, self.ServerID)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.members.update(self, encoded)
	if err := g.list.UpdateNode(updateTimeout); err != nil {
		// It goes out with the next exchange.
		g.cfg.Logger.Debug("gossip: telling others of a change", "error", err)
	}
	return nil
}

// ReloadKeys reads the key file again. To rotate without losing a node: add the new key below the
// old one on every node and reload, then move it to the top everywhere and reload, then remove the
// old one. If the file is not valid, the keys stay as they are.
func (g *Gossip) ReloadKeys() error {
	if g.cfg.KeyFile == "" {
		return errors.New("gossip was started without a key file")
	}
	keys, err := ReadKeyFile(g.cfg.KeyFile)
	if err != nil {
		return err
	}
	if err := g.keys.replace(keys); err != nil {
		return err
	}
	g.cfg.Logger.Info("gossip keys reloaded", "keys", len(keys))
	return nil
}

// KeepAddresses keeps the addresses of other nodes in a data directory from now on. It is for a
// node that creates its directory only after it has found its cluster. Config.Dir does the same
// from the start.
func (g *Gossip) KeepAddresses(dir string) { g.joiner.keepAddresses(dir) }

// Forget removes a silent node from Members and stops looking for it. It is for nodes that left
// the cluster for good. It does nothing for a live node.
func (g *Gossip) Forget(serverID string) {
	if addr, ok := g.members.forget(serverID); ok {
		g.joiner.forgetAddress(addr)
	}
}

// Close tells the other nodes that this one leaves, which takes two seconds at most, and ends.
func (g *Gossip) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.cancel()
	g.joining.Wait()
	if err := g.list.Leave(leaveTimeout); err != nil {
		// They notice by themselves.
		g.cfg.Logger.Debug("gossip: taking leave", "error", err)
	}
	if err := g.list.Shutdown(); err != nil {
		return fmt.Errorf("ending gossip: %w", err)
	}
	return nil
}
