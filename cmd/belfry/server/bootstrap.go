package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/peer"
)

const (
	// helloWait bounds a request that asks a node for its cluster.
	helloWait = 5 * time.Second
	// noticeFirst is how long a node looks for its cluster before it logs why it waits. It is also
	// the shortest time between two such lines. After noticeAgain the node repeats an unchanged line.
	noticeFirst = 2 * time.Second
	noticeAgain = 30 * time.Second
	// foundPause is how long gossip must be unchanged before a node founds a cluster, and the time
	// between two attempts.
	foundPause = 250 * time.Millisecond
	// followPause is the time between two requests to the node that is to found the cluster.
	followPause = 50 * time.Millisecond
	// hearPause is the time between two updates of the directory while gossip does not change.
	hearPause = 5 * time.Second
)

// bootstrap finds the cluster of a process before it opens its node, and connects the node with
// gossip afterwards.
type bootstrap struct {
	cfg    Config
	logger *slog.Logger
	// listener takes connections of other nodes; nil if there can be none.
	listener net.Listener
	gossip   *gossip.Gossip
	self     gossip.Info
	// name is the name of the node; empty for the name in the data directory.
	name        string
	incarnation string
	directory   *cluster.Directory
	// cluster is the id of the cluster to join. It is empty if the node founds a cluster, or stays in
	// the cluster of its data directory.
	cluster string
	// founding is the plan by which this node founds that cluster, or a new one, together with others.
	// It is nil if this node founds none with others.
	founding *node.Founding
	shards   int
	seeds    []string
	notReady *notReadyServer
	// credentials are the node's certificates for TLS between nodes; nil without TLS.
	credentials *certs.Identity
}

// startBootstrap listens for other nodes. With a new data directory it also finds the cluster to
// join, or founds one. It searches until ctx ends; notReady answers clients meanwhile.
func startBootstrap(ctx context.Context, cfg Config, credentials *certs.Identity,
	notReady *notReadyServer) (_ *bootstrap, err error) {
	b := &bootstrap{
		cfg: cfg, logger: cfg.Logger, shards: cfg.Shards, directory: cluster.NewDirectory(), notReady: notReady,
		credentials: credentials,
	}
	known, exists, err := identity.Identify(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the data directory %s: %w", cfg.Dir, err)
	}
	if b.name = cfg.NodeID; !exists {
		if credentials != nil {
			setDefault(&b.name, credentials.Name().Node)
		}
		setDefault(&b.name, cfg.DefaultName)
		setDefault(&b.name, node.DefaultName)
	}
	if err := b.checkCredentials(known); err != nil {
		return nil, err
	}
	if cfg.PeerListen == "" {
		if len(cfg.Join) > 0 || cfg.BootstrapExpect > 0 {
			return nil, &ConfigError{"a node that listens for no peers cannot join others: say where it listens for them"}
		}
		return b, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	var listen net.ListenConfig
	if b.listener, err = listen.Listen(ctx, "tcp", cfg.PeerListen); err != nil {
		return nil, fmt.Errorf("listening for other nodes at --peer-listen, by default the port after that of --listen: %w",
			err)
	}
	if err := b.introduce(known, exists, notReady.listener.Addr()); err != nil {
		return nil, err
	}
	talk := gossip.Config{
		Self: b.self, Listen: cfg.GossipListen, Advertise: cfg.Advertise, Join: cfg.Join,
		KeyFile: cfg.GossipKeys, Insecure: cfg.GossipKeys == "", Logger: cfg.Logger,
	}
	if exists {
		talk.Dir = cfg.Dir
	}
	b.gossip, err = gossip.Start(ctx, talk)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf(
			"listening for gossip at --gossip-listen, by default the second port after that of --listen: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("starting gossip: %w", err)
	}
	cfg.Logger.Info("listening for other nodes", "peers", b.self.PeerAddr, "gossip", b.gossip.Addr().String(), "clients",
		notReady.listener.Addr().String())
	if exists || len(cfg.Join) == 0 && cfg.BootstrapExpect == 0 {
		return b, nil
	}
	return b, b.findCluster(ctx)
}

// introduce sets what this node tells others about itself.
func (b *bootstrap) introduce(known identity.Identity, exists bool, client net.Addr) (err error) {
	b.self = gossip.Info{
		Cluster: known.ClusterID, Name: known.Name, ServerID: known.ServerID, Shards: uint32(known.Shards),
		//nolint:gosec // at most 1,024
		PeerAddr: advertised(b.listener.Addr(), b.cfg.Advertise), ClientAddr: advertised(client, b.cfg.Advertise),
		Zone: b.cfg.Zone, Format: uint32(fsm.LatestFormat),
	}
	if exists {
		return nil
	}
	b.incarnation = identity.NewIncarnation()
	if b.cfg.BootstrapExpect > 1 {
		if b.incarnation, err = keepIncarnation(b.cfg.Dir, b.name); err != nil {
			return err
		}
	}
	b.self.Name, b.self.ServerID = b.name, b.name+"."+b.incarnation
	if b.self.Shards = uint32(b.cfg.Shards); b.cfg.Shards == 0 { //nolint:gosec // checked by the node
		b.self.Shards = node.DefaultShards
	}
	return nil
}

// findCluster waits until gossip shows a node that has a cluster, or until this node founds one
// with BootstrapExpect. It answers other nodes meanwhile.
func (b *bootstrap) findCluster(ctx context.Context) error {
	listener, ok := b.listener.(peer.StrangerListener)
	if !ok {
		return fmt.Errorf("%s cannot be shared between the search for a cluster and the node", b.listener.Addr())
	}
	listener = b.securedStrangers(listener)
	f := &founding{
		self: b.self, expect: b.cfg.BootstrapExpect, ask: b.askToFound,
		consent: &consent{self: b.self.ServerID, shards: int(b.self.Shards)},
	}
	answering, cancel := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() { answered <- peer.AnswerStrangers(answering, listener, f.consent.answer) }()
	err := b.search(ctx, f)
	cancel()
	return errors.Join(err, <-answered)
}

// search is findCluster without the answers to other nodes.
func (b *bootstrap) search(ctx context.Context, f *founding) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	unchanged := false // gossip has not changed for foundPause
	said := &notice{joins: newJoinReporter(b.cfg), began: time.Now()}
	for {
		changed := b.gossip.Changed()
		members := b.gossip.Members()
		found, why, err := b.join(ctx, members, f.consent.leftTo())
		if found || err != nil {
			b.addFounders(members)
			return err
		}
		if why == "" {
			if why = b.unfounded(ctx, f, members, said.joins, unchanged); why == "" {
				b.logger.Info("founding a cluster", "nodes", f.expect, "server", f.self.ServerID)
				said.joins.leaveOut(ctx, b.logger, b.gossip.JoinAttempts())
				return b.found(f, members)
			}
		}
		b.report(ctx, said, why)
		unchanged = false
		if pause.Reset(foundPause); f.consent.leftTo() != "" {
			pause.Reset(followPause)
		}
		select {
		case <-changed:
		case <-pause.C:
			unchanged = true
		case <-ctx.Done():
			return fmt.Errorf("waiting for a cluster: %s: %w", said.text, context.Cause(ctx))
		}
	}
}

// unfounded returns why this node founds no cluster now, empty if it does. unchanged: gossip has
// not changed for foundPause.
func (b *bootstrap) unfounded(ctx context.Context, f *founding, members []gossip.Member, joins *joinReporter,
	unchanged bool) (why string) {
	unheard := joins.unheard(ctx, b.gossip.JoinAttempts())
	if f.expect == 0 {
		return unexpected(members, unheard)
	}
	if why = f.ready(members); why == "" {
		why = unheard
	}
	switch {
	case why != "":
		return why
	case !unchanged:
		return "all nodes are there, and one of them is about to found it"
	default:
		return f.try(ctx, members)
	}
}

// unexpected returns why a node without BootstrapExpect founds no cluster. If unheard is empty, it
// also says how to found one.
func unexpected(members []gossip.Member, unheard string) (why string) {
	why = "none of the nodes that were seen has one"
	if len(members) == 0 {
		why = "no other node has been seen"
	}
	if unheard == "" {
		why += "; if this is to be a new cluster, start it with --bootstrap-expect N, for N nodes that found it"
	}
	return why
}

// notice is the state of the log lines about a search.
type notice struct {
	joins     *joinReporter
	began, at time.Time
	text      string // the current reason
	said      string // the reason that was logged last
}

// report sets the reason that clients get for the wait. It also logs the reason if it is new or was
// logged long ago, but at most once within noticeFirst.
func (b *bootstrap) report(ctx context.Context, n *notice, why string) {
	level := slog.LevelInfo
	for _, report := range n.joins.reports(ctx, b.gossip.JoinAttempts()) {
		why += "; " + report.text
		if report.mistake || b.cfg.BootstrapExpect == 0 { // founders wait for nodes that do not run yet
			level = slog.LevelWarn
		}
	}
	if b.cfg.BootstrapExpect > 1 && len(b.cfg.Join) == 0 && len(b.gossip.Members()) == 0 {
		why += "; nobody can be found by this node: --join is empty; name the gossip addresses of the others in it"
		level = slog.LevelWarn
	}
	n.text = why
	b.notReady.setReason(why)
	if time.Since(n.began) >= notReadyAfter {
		b.notReady.start(b.self.Name)
	}
	if now := time.Now(); why != n.said && now.Sub(n.began) >= noticeFirst && now.Sub(n.at) >= noticeFirst ||
		now.Sub(n.at) >= noticeAgain && !n.at.IsZero() {
		b.logger.Log(ctx, level, "waiting for a cluster", "join", b.cfg.Join, "bootstrap_expect", b.cfg.BootstrapExpect,
			"address", b.notReady.listener.Addr().String(), "why", why)
		n.said, n.at = why, now
	}
}

// found plans the cluster that this node founds, unless it founds one alone.
func (b *bootstrap) found(f *founding, members []gossip.Member) (err error) {
	founders := f.founders(members)
	if len(founders) == 1 {
		return nil
	}
	b.founding, err = catalog.NewFounding(catalog.FoundingConfig{
		Founders: founders, Shards: int(b.self.Shards), Settings: b.cfg.Cluster, RequiresTokens: b.cfg.RootTokens != "",
	})
	b.addFounders(members)
	return err
}

// addFounders adds the addresses of the other founders to the directory: gossip does not know yet
// that they belong to the cluster.
func (b *bootstrap) addFounders(members []gossip.Member) {
	for _, other := range members {
		if b.founding != nil && other.Alive && other.ServerID != b.self.ServerID &&
			slices.Contains(b.founding.Servers, other.ServerID) {
			b.directory.Hear(other.ServerID, other.PeerAddr)
		}
	}
}

// join joins the cluster of the other members if one of them confirms it. founder is the server
// that may have founded it before gossip shows that, empty for none. why is text for people that
// says what prevents the join; it is empty if no member has a cluster.
func (b *bootstrap) join(ctx context.Context, members []gossip.Member,
	founder string) (found bool, why string, err error) {
	for _, other := range members {
		if !other.Alive || other.Cluster == "" && other.ServerID != founder {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, helloWait)
		intro, err := peer.Hello(asking, b.dial(), other.PeerAddr)
		cancel()
		if other.Cluster == "" && (err != nil || intro.ClusterID == "") {
			continue // it has not founded yet
		}
		if err != nil || intro.ClusterID == "" {
			if err == nil {
				err = fmt.Errorf("%s is there, and has none", intro.ServerID)
			}
			if unproven(err) {
				why = fmt.Sprintf("node %s is heard of, and one of the two does not take the other's certificate: %s: look "+
					"whether both have theirs from an authority in the other's --tls-ca", other.ServerID, err)
				continue
			}
			why = fmt.Sprintf("node %s is heard of and has cluster %s, but does not answer at %s, where its peers are to "+
				"reach it: %s: look whether it runs and whether it advertises an address that leads there",
				other.ServerID, other.Cluster, other.PeerAddr, err)
			continue
		}
		if err := b.accept(intro, other.PeerAddr); err != nil {
			return false, "", err
		}
	}
	return b.cluster != "", why, nil
}

// accept joins the cluster of a node that introduced itself.
func (b *bootstrap) accept(intro peer.Introduction, addr string) error {
	if err := intro.Format.Readable(); err != nil {
		return fmt.Errorf("the log of cluster %s is %w: run a later version of belfry", intro.ClusterID, err)
	}
	if b.cluster != "" && b.cluster != intro.ClusterID {
		return fmt.Errorf("the nodes at %s belong to two clusters: %s at %s is of %s, not of %s",
			strings.Join(b.cfg.Join, ", "), intro.ServerID, addr, intro.ClusterID, b.cluster)
	}
	if b.cfg.Shards != 0 && b.cfg.Shards != intro.Shards {
		return fmt.Errorf("cluster %s has %d shards, not %d: leave out the number of shards", intro.ClusterID, intro.Shards,
			b.cfg.Shards)
	}
	if nameOf(intro.ServerID) == b.self.Name {
		return fmt.Errorf("the name %s is taken: %s of cluster %s answers at %s; start this node with another --node-id, "+
			"or stop that one first",
			b.self.Name, intro.ServerID, intro.ClusterID, addr)
	}
	b.cluster, b.shards, b.seeds = intro.ClusterID, intro.Shards, append(b.seeds, intro.ServerID)
	if intro.Founding != nil && slices.Contains(intro.Founding.Servers, b.self.ServerID) {
		b.founding = intro.Founding
	}
	b.directory.Hear(intro.ServerID, addr)
	return nil
}

// follow updates the directory from gossip until ctx ends. Once this node has joined, it also makes
// gossip forget members that the cluster removed.
func (b *bootstrap) follow(ctx context.Context, joined *atomic.Pointer[cluster.Cluster]) {
	again := time.NewTicker(hearPause)
	defer again.Stop()
	for {
		changed := b.gossip.Changed()
		members := b.gossip.Members()
		b.updateDirectory(members)
		for _, other := range members {
			if c := joined.Load(); c != nil && !other.Alive && c.Departed(other.ServerID) != nil {
				b.gossip.Forget(other.ServerID)
			}
		}
		select {
		case <-changed:
		case <-again.C: // the catalog may have set older addresses
		case <-ctx.Done():
			return
		}
	}
}

// updateDirectory sets the addresses of the living members, in the order of their arrival. A node
// that started without its old data listens where its earlier incarnation did, and gossip takes
// some seconds to notice that the earlier one is gone.
func (b *bootstrap) updateDirectory(members []gossip.Member) {
	slices.SortStableFunc(members, func(a, b gossip.Member) int { return a.Since.Compare(b.Since) })
	for _, other := range members {
		if other.Alive && other.PeerAddr != "" && other.Cluster == b.self.Cluster {
			b.directory.Hear(other.ServerID, other.PeerAddr)
		}
	}
}

// announce tells other nodes which cluster this node belongs to now, and stores their addresses.
func (b *bootstrap) announce(n *node.Node) error {
	if b.gossip == nil {
		return nil
	}
	b.self.Cluster, b.self.Shards = n.Status().ClusterID, uint32(n.ShardCount()) //nolint:gosec // at most 1,024
	// A new directory did not exist when gossip started.
	b.gossip.KeepAddresses(b.cfg.Dir)
	if err := b.gossip.Update(b.self); err != nil {
		return fmt.Errorf("telling other nodes of the cluster: %w", err)
	}
	return nil
}

// close stops gossip and closes the listener, unless a node has closed it.
func (b *bootstrap) close() error {
	var problems []error
	if b.gossip != nil {
		problems = append(problems, b.gossip.Close())
	}
	if b.listener != nil {
		if err := b.listener.Close(); !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// advertised returns the address at which others reach a listener.
func advertised(address net.Addr, host string) string {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil || host == "" {
		return address.String()
	}
	return net.JoinHostPort(host, port)
}

// advertiseLookupMax bounds the lookup of the advertised host.
const advertiseLookupMax = 5 * time.Second

// checkAdvertise checks that the advertised host has an address, before anything is written. Its
// error is no ConfigError: the name of a new container may resolve a moment later, so a supervisor
// should start the node again.
func checkAdvertise(ctx context.Context, cfg Config) error {
	if cfg.Advertise == "" || cfg.Alone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, advertiseLookupMax)
	defer cancel()
	if _, err := net.DefaultResolver.LookupNetIP(ctx, "ip", cfg.Advertise); err != nil {
		return fmt.Errorf("--advertise: have %.100q, want a host that has an address: %w", cfg.Advertise, err)
	}
	return nil
}

// Neighbour returns an address with after added to its port; port 0 stays 0.
func Neighbour(address string, after int) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // listening will fail and say why
	}
	n, err := strconv.Atoi(port)
	if err != nil || n == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(n+after))
}

// everywhere reports whether an address stands for every address of the machine.
func everywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// setDefault sets text to value if it is empty.
func setDefault(text *string, value string) {
	if *text == "" {
		*text = value
	}
}
