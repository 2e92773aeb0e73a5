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
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

const (
	// helloWait bounds the question which cluster a node belongs to.
	helloWait = 5 * time.Second
	// noticeFirst is how long a node looks for its cluster before it says what keeps it, and what is new about that; noticeAgain how often it says the same.
	noticeFirst = 2 * time.Second
	noticeAgain = 30 * time.Second
	// foundPause is how long nothing must have changed before a cluster is founded, and the time between two attempts.
	foundPause = 250 * time.Millisecond
	// followPause is the time between two questions to the node that was left the founding whether it has founded.
	followPause = 50 * time.Millisecond
	// hearPause is the time after which the directory hears again what gossip knows.
	hearPause = 5 * time.Second
)

// meeting is what a node knows of its cluster, and of the nodes around it, before it opens.
type meeting struct {
	cfg    Config
	logger *slog.Logger
	// listener is where others reach it, nil if there can be none.
	listener net.Listener
	gossip   *gossip.Gossip
	self     gossip.Info
	// name is for the node that is opened: empty for that of its data directory.
	name        string
	incarnation string
	directory   *cluster.Directory
	// cluster is the cluster to join; empty to found one, or to stay in that of the data directory.
	cluster string
	// founding is how this node founds that cluster, or a new one, together with others; nil if it does not.
	founding *node.Founding
	shards   int
	seeds    []string
	lobby    *lobby
	// credentials are the node's towards others; nil without TLS.
	credentials *certs.Identity
}

// meet listens for other nodes and finds out, if the data directory is new, which cluster to join; a node that was told of none
// founds one. It looks until ctx ends, and clients are answered in the lobby meanwhile.
func meet(ctx context.Context, cfg Config, credentials *certs.Identity, lobby *lobby) (_ *meeting, err error) {
	m := &meeting{cfg: cfg, logger: cfg.Logger, shards: cfg.Shards, directory: cluster.NewDirectory(), lobby: lobby, credentials: credentials}
	known, exists, err := node.Identify(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the data directory %s: %w", cfg.Dir, err)
	}
	if m.name = cfg.NodeID; !exists {
		if credentials != nil {
			setDefault(&m.name, credentials.Name().Node)
		}
		setDefault(&m.name, cfg.DefaultName)
		setDefault(&m.name, node.DefaultName)
	}
	if err := m.checkCredentials(known); err != nil {
		return nil, err
	}
	if cfg.PeerListen == "" {
		if len(cfg.Join) > 0 || cfg.BootstrapExpect > 0 {
			return nil, &ConfigError{"a node that listens for no peers cannot join others: say where it listens for them"}
		}
		return m, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	var listen net.ListenConfig
	if m.listener, err = listen.Listen(ctx, "tcp", cfg.PeerListen); err != nil {
		return nil, fmt.Errorf("listening for other nodes at --peer-listen, by default the port after that of --listen: %w", err)
	}
	if err := m.introduce(known, exists, lobby.listener.Addr()); err != nil {
		return nil, err
	}
	talk := gossip.Config{
		Self: m.self, Listen: cfg.GossipListen, Advertise: cfg.Advertise, Join: cfg.Join,
		KeyFile: cfg.GossipKeys, Insecure: cfg.GossipKeys == "", Logger: cfg.Logger,
	}
	if exists {
		talk.Dir = cfg.Dir
	}
	m.gossip, err = gossip.Start(ctx, talk)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listening for gossip at --gossip-listen, by default the second port after that of --listen: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("starting gossip: %w", err)
	}
	cfg.Logger.Info("listening for other nodes", "peers", m.self.PeerAddr, "gossip", m.gossip.Addr().String(), "clients", lobby.listener.Addr().String())
	if exists || len(cfg.Join) == 0 && cfg.BootstrapExpect == 0 {
		return m, nil
	}
	return m, m.look(ctx)
}

// introduce says who this node is.
func (m *meeting) introduce(known node.Identity, exists bool, client net.Addr) (err error) {
	m.self = gossip.Info{
		Cluster: known.ClusterID, Name: known.Name, ServerID: known.ServerID, Shards: uint32(known.Shards), //nolint:gosec // at most 1,024
		PeerAddr: advertised(m.listener.Addr(), m.cfg.Advertise), ClientAddr: advertised(client, m.cfg.Advertise),
		Zone: m.cfg.Zone, Format: uint32(fsm.LatestFormat),
	}
	if exists {
		return nil
	}
	m.incarnation = node.NewIncarnation()
	if m.cfg.BootstrapExpect > 1 {
		if m.incarnation, err = keepIncarnation(m.cfg.Dir, m.name); err != nil {
			return err
		}
	}
	m.self.Name, m.self.ServerID = m.name, m.name+"."+m.incarnation
	if m.self.Shards = uint32(m.cfg.Shards); m.cfg.Shards == 0 { //nolint:gosec // checked by the node
		m.self.Shards = node.DefaultShards
	}
	return nil
}

// look waits until gossip shows a node that has a cluster, or, with BootstrapExpect, until this node is the one that founds it. Others that ask
// are answered meanwhile.
func (m *meeting) look(ctx context.Context) error {
	listener, ok := m.listener.(node.StrangerListener)
	if !ok {
		return fmt.Errorf("%s cannot be shared between what looks for a cluster and the node", m.listener.Addr())
	}
	listener = m.securedStrangers(listener)
	f := &founding{
		self: m.self, expect: m.cfg.BootstrapExpect, ask: m.askToFound,
		consent: &consent{self: m.self.ServerID, shards: int(m.self.Shards)},
	}
	answering, cancel := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() { answered <- node.AnswerStrangers(answering, listener, f.consent.answer) }()
	err := m.search(ctx, f)
	cancel()
	return errors.Join(err, <-answered)
}

// search is look without the answers.
func (m *meeting) search(ctx context.Context, f *founding) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	rested := false // nothing has changed for a moment
	said := &notice{joins: newJoinReporter(m.cfg), began: time.Now()}
	for {
		changed := m.gossip.Changed()
		members := m.gossip.Members()
		found, why, err := m.join(ctx, members, f.consent.leftTo())
		if found || err != nil {
			m.hearFounders(members)
			return err
		}
		if why == "" {
			if why = m.unfounded(ctx, f, members, said.joins, rested); why == "" {
				m.logger.Info("founding a cluster", "nodes", f.expect, "server", f.self.ServerID)
				said.joins.leaveOut(ctx, m.logger, m.gossip.JoinAttempts())
				return m.found(f, members)
			}
		}
		m.say(ctx, said, why)
		rested = false
		if pause.Reset(foundPause); f.consent.leftTo() != "" {
			pause.Reset(followPause)
		}
		select {
		case <-changed:
		case <-pause.C:
			rested = true
		case <-ctx.Done():
			return fmt.Errorf("waiting for a cluster: %s: %w", said.text, context.Cause(ctx))
		}
	}
}

// unfounded says why this node founds no cluster now; empty if it does. rested says that nothing has changed for a moment.
func (m *meeting) unfounded(ctx context.Context, f *founding, members []gossip.Member, joins *joinReporter, rested bool) (why string) {
	unheard := joins.unheard(ctx, m.gossip.JoinAttempts())
	if f.expect == 0 {
		return unexpected(members, unheard)
	}
	if why = f.ready(members); why == "" {
		why = unheard
	}
	switch {
	case why != "":
		return why
	case !rested:
		return "all nodes are there, and one of them is about to found it"
	default:
		return f.try(ctx, members)
	}
}

// unexpected says why a node founds nothing that was not told to, and how it would be told where that cannot be wrong: unheard is empty.
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

// notice is what was said of a search.
type notice struct {
	joins     *joinReporter
	began, at time.Time
	text      string // as it is
	said      string // as it was said last
}

// say tells clients what is waited for, and the log if it is new, or long ago. The first moment needs no words.
func (m *meeting) say(ctx context.Context, n *notice, why string) {
	level := slog.LevelInfo
	for _, report := range n.joins.reports(ctx, m.gossip.JoinAttempts()) {
		why += "; " + report.text
		if report.mistake || m.cfg.BootstrapExpect == 0 { // who founds waits for nodes that do not run yet
			level = slog.LevelWarn
		}
	}
	if m.cfg.BootstrapExpect > 1 && len(m.cfg.Join) == 0 && len(m.gossip.Members()) == 0 {
		why += "; nobody can be found by this node: --join is empty; name the gossip addresses of the others in it"
		level = slog.LevelWarn
	}
	n.text = why
	m.lobby.tell(why)
	if time.Since(n.began) >= lobbyAfter {
		m.lobby.enter(m.self.Name)
	}
	if now := time.Now(); why != n.said && now.Sub(n.began) >= noticeFirst && now.Sub(n.at) >= noticeFirst || now.Sub(n.at) >= noticeAgain && !n.at.IsZero() {
		m.logger.Log(ctx, level, "waiting for a cluster", "join", m.cfg.Join, "bootstrap_expect", m.cfg.BootstrapExpect, "address", m.lobby.listener.Addr().String(), "why", why)
		n.said, n.at = why, now
	}
}

// found plans the cluster that this node founds, together with others unless it is to be alone.
func (m *meeting) found(f *founding, members []gossip.Member) (err error) {
	founders := f.founders(members)
	if len(founders) == 1 {
		return nil
	}
	m.founding, err = cluster.NewFounding(cluster.FoundingConfig{
		Founders: founders, Shards: int(m.self.Shards), Settings: m.cfg.Cluster, Guarded: m.cfg.RootTokens != "",
	})
	m.hearFounders(members)
	return err
}

// hearFounders tells the directory where the nodes are with which this one founds a cluster: gossip has not heard yet that they belong to it.
func (m *meeting) hearFounders(members []gossip.Member) {
	for _, other := range members {
		if m.founding != nil && other.Alive && other.ServerID != m.self.ServerID && slices.Contains(m.founding.Servers, other.ServerID) {
			m.directory.Hear(other.ServerID, other.PeerAddr)
		}
	}
}

// join takes the cluster that the others are in, if one of them confirms it. founder is the server that may have founded it without gossip knowing, empty for
// nobody. why is what keeps it from that, for people; empty if nobody has a cluster.
func (m *meeting) join(ctx context.Context, members []gossip.Member, founder string) (found bool, why string, err error) {
	for _, other := range members {
		if !other.Alive || other.Cluster == "" && other.ServerID != founder {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, helloWait)
		intro, err := node.Hello(asking, m.dial(), other.PeerAddr)
		cancel()
		if other.Cluster == "" && (err != nil || intro.ClusterID == "") {
			continue // it has not founded yet
		}
		if err != nil || intro.ClusterID == "" {
			if err == nil {
				err = fmt.Errorf("%s is there, and has none", intro.ServerID)
			}
			if unproven(err) {
				why = fmt.Sprintf("node %s is heard of, and one of the two does not take the other's certificate: %s: look whether both have theirs from an authority in the other's --tls-ca", other.ServerID, err)
				continue
			}
			why = fmt.Sprintf("node %s is heard of and has cluster %s, but does not answer at %s, where its peers are to reach it: %s: look whether it runs and whether it advertises an address that leads there",
				other.ServerID, other.Cluster, other.PeerAddr, err)
			continue
		}
		if err := m.accept(intro, other.PeerAddr); err != nil {
			return false, "", err
		}
	}
	return m.cluster != "", why, nil
}

// accept takes the cluster of a node that introduced itself.
func (m *meeting) accept(intro node.Introduction, addr string) error {
	if err := intro.Format.Readable(); err != nil {
		return fmt.Errorf("the log of cluster %s is %w: run a later version of belfry", intro.ClusterID, err)
	}
	if m.cluster != "" && m.cluster != intro.ClusterID {
		return fmt.Errorf("the nodes at %s belong to two clusters: %s at %s is of %s, not of %s",
			strings.Join(m.cfg.Join, ", "), intro.ServerID, addr, intro.ClusterID, m.cluster)
	}
	if m.cfg.Shards != 0 && m.cfg.Shards != intro.Shards {
		return fmt.Errorf("cluster %s has %d shards, not %d: leave out the number of shards", intro.ClusterID, intro.Shards, m.cfg.Shards)
	}
	if nameOf(intro.ServerID) == m.self.Name {
		return fmt.Errorf("the name %s is taken: %s of cluster %s answers at %s; start this node with another --node-id, or stop that one first",
			m.self.Name, intro.ServerID, intro.ClusterID, addr)
	}
	m.cluster, m.shards, m.seeds = intro.ClusterID, intro.Shards, append(m.seeds, intro.ServerID)
	if intro.Founding != nil && slices.Contains(intro.Founding.Servers, m.self.ServerID) {
		m.founding = intro.Founding
	}
	m.directory.Hear(intro.ServerID, addr)
	return nil
}

// follow lets the directory hear what gossip hears, until ctx ends. Who left the cluster for good, which is known once this node has joined it, is not called
// any more.
func (m *meeting) follow(ctx context.Context, joined *atomic.Pointer[cluster.Cluster]) {
	again := time.NewTicker(hearPause)
	defer again.Stop()
	for {
		changed := m.gossip.Changed()
		members := m.gossip.Members()
		m.hear(members)
		for _, other := range members {
			if c := joined.Load(); c != nil && !other.Alive && c.Departed(other.ServerID) != nil {
				m.gossip.Forget(other.ServerID)
			}
		}
		select {
		case <-changed:
		case <-again.C: // what the catalog said meanwhile may be from before
		case <-ctx.Done():
			return
		}
	}
}

// hear tells the directory where the living are, those last that came last: a node that started anew without its data listens where its earlier life
// did, and gossip takes some seconds to notice that that one is gone.
func (m *meeting) hear(members []gossip.Member) {
	slices.SortStableFunc(members, func(a, b gossip.Member) int { return a.Since.Compare(b.Since) })
	for _, other := range members {
		if other.Alive && other.PeerAddr != "" && other.Cluster == m.self.Cluster {
			m.directory.Hear(other.ServerID, other.PeerAddr)
		}
	}
}

// belong tells the others which cluster this node belongs to now, and keeps where they are.
func (m *meeting) belong(n *node.Node) error {
	if m.gossip == nil {
		return nil
	}
	m.self.Cluster, m.self.Shards = n.Status().ClusterID, uint32(n.ShardCount()) //nolint:gosec // at most 1,024
	// A new directory was not there when gossip began.
	m.gossip.KeepAddresses(m.cfg.Dir)
	if err := m.gossip.Update(m.self); err != nil {
		return fmt.Errorf("telling other nodes of the cluster: %w", err)
	}
	return nil
}

// close ends what was begun, apart from the listener once a node has it.
func (m *meeting) close() error {
	var problems []error
	if m.gossip != nil {
		problems = append(problems, m.gossip.Close())
	}
	if m.listener != nil {
		if err := m.listener.Close(); !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// advertised returns a listener's address as others should use it.
func advertised(address net.Addr, host string) string {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil || host == "" {
		return address.String()
	}
	return net.JoinHostPort(host, port)
}

// advertiseLookupMax is how long it may take to hear which address the advertised host has.
const advertiseLookupMax = 5 * time.Second

// checkAdvertise finds out before anything is made that no other node will find this one. That is no ConfigError: a name may be known a moment
// later, as that of a new container is, and whoever starts nodes must go on trying.
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

// Neighbour returns the address some ports after another one; port 0 stays 0.
func Neighbour(address string, after int) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // the listener will say what is wrong with it
	}
	n, err := strconv.Atoi(port)
	if err != nil || n == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(n+after))
}

// everywhere reports whether an address is every address of the machine.
func everywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// setDefault sets an empty text.
func setDefault(text *string, value string) {
	if *text == "" {
		*text = value
	}
}
