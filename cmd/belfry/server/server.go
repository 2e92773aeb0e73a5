// Package server builds a node and its public edge, and runs them. `belfry serve` runs it; the demo
// and the benchmark run it inside their own process.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cluster"
	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/cluster/placement"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/backend/adapter"
)

// Config is the configuration of a server. Dir, Listen, Logger and Fatal are required.
type Config struct {
	// Dir is the data directory.
	Dir string
	// Listen is the address for clients, HOST:PORT; port 0 picks a free one.
	Listen string
	// PeerListen is the address for the other nodes, HOST:PORT, and GossipListen the one for gossip.
	// Port 0 picks a free one. They default to the two ports after that of Listen. Alone means that
	// there are no other nodes, and that the server does not listen for any.
	PeerListen, GossipListen string
	Alone                    bool
	// LmstfyListen is the address for clients of lmstfy, HOST:PORT; port 0 picks a free one. Empty is
	// none.
	LmstfyListen string
	// Advertise is the host under which others reach this node; empty for those of the listen
	// addresses.
	Advertise string
	// Join are gossip addresses of nodes of the cluster that a node with a new data directory joins.
	Join []string
	// BootstrapExpect is how many nodes with new data directories found a cluster together; 0 for
	// none.
	BootstrapExpect int
	// GossipKeys is a file of gossip keys, one a line in base64; the first one encrypts. Empty is
	// gossip without a key, which is open to every program that reaches its address.
	GossipKeys string
	// TLS are the files of the node's certificates; empty for no TLS.
	TLS certs.Files
	// RootTokens is a file of the records of tokens that may do everything. With it every call needs a
	// token. Without it every caller may do everything.
	RootTokens string
	// Cluster are the settings of the cluster if this node founds it. A zero is the default.
	Cluster catalog.Settings
	// SteadyAfter is SteadyAfter of cluster.Config.
	SteadyAfter time.Duration
	// Zone names the zone of the node: nodes of one zone fail together.
	Zone string
	// Zoneinfo is a directory or a zip file of time-zone data for schedules, in place of those of this
	// program; empty for these. It is read once.
	Zoneinfo string
	// Insecure allows the server to listen beyond loopback without TLS, gossip keys and tokens.
	Insecure bool
	// NodeID is the node's name; empty for the name in the data directory. A new directory then gets
	// the name in the node's certificate, else DefaultName, else "node".
	NodeID, DefaultName string
	// Shards is the number of shards; 0 for the number in the data directory, or the default for a new
	// one. A number that differs from the directory's is refused.
	Shards int
	// MemoryBytes is how much memory the process may use, see LimitMemory; 0 for no limit.
	MemoryBytes uint64
	// AcceptClock starts the node even if the wall clock contradicts the data.
	AcceptClock bool
	// Version is the version that the node reports.
	Version string
	// Collectors are metrics to export besides those of the node and of the process.
	Collectors []prometheus.Collector
	// Mirrored returns what the process's bridges to Redis have done; nil if there are none.
	Mirrored func() []placement.MirroredQueue
	// MetricsQueuesMax is MetricsQueuesMax of rpc.Config.
	MetricsQueuesMax int
	// Beanstalkd is the front door for programs that speak beanstalkd's protocol.
	Beanstalkd Beanstalkd
	// Dashboard says what of the dashboard is served. Its secret is made from the gossip keys.
	Dashboard rpc.Dashboard
	Logger    *slog.Logger
	// Audit gets a line for each administrative call; Logger by default.
	Audit *slog.Logger
	// Fatal ends the process because going on would risk data.
	Fatal func(error)
}

const (
	// drainMax is how long calls in flight may take when the server stops.
	drainMax = 20 * time.Second
	// closeMax is how long the node may take to stop after that.
	closeMax = 10 * time.Second
	// StopMax is how long Stop takes at most. A supervisor must wait longer before it kills the
	// process.
	StopMax = drainMax + closeMax
)

// Server is a node that serves clients.
type Server struct {
	// lock locks the data directory before the node sends anything to others, also in gossip.
	lock *disk.DirLock
	cfg  Config
	// credentials are the node's certificates; nil without TLS.
	credentials   *certs.Identity
	authenticator *authenticator

	// calendars find the firings of schedules.
	calendars *calendar.Calendars
	node      *node.Node
	cluster   *cluster.Cluster
	bootstrap *bootstrap
	// unwatch stops watching certificates and tokens; unfollow stops following gossip. joined is set
	// once the cluster can answer membership queries.
	unwatch   context.CancelFunc
	unfollow  context.CancelFunc
	following sync.WaitGroup // both
	joined    atomic.Pointer[cluster.Cluster]
	rpc       *rpc.Server
	// beanstalkd listens for programs that speak beanstalkd's protocol, and door serves them; nil for none.
	beanstalkd *protocolListener
	door       rpc.FrontDoor
	listener   net.Listener
	lmstfy     *protocolListener // nil for none
	shutdown   *shutdownGuard
	notReady   *notReadyServer
	removal    *removalNotice
	// lastBackup is known once the data directory is open.
	lastBackup *lastBackup
	// served is closed when serving has ended and serveErr is set; ended is closed then, or when the
	// cluster has removed the node.
	served, ended chan struct{}
	serveErr      error
	stop          sync.Once
	stopped       error
}

// Start opens the data directory and starts to serve. When it returns, the server answers clients.
// A node with peers may still have to hear from its cluster, see Ready. ctx bounds the start only.
// The caller must Stop the server.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	credentials, err := loadCredentials(cfg)
	if err != nil {
		return nil, err
	}
	auth, err := loadAuthenticator(cfg)
	if err != nil {
		return nil, err
	}
	calendars, err := loadCalendars(cfg)
	if err != nil {
		return nil, err
	}
	if err := checkAdvertise(ctx, cfg); err != nil {
		return nil, err
	}
	// The server listens first: an address in use is the most likely mistake, and shows at once.
	// Clients that connect during the start wait in the listener's queue; they are not refused.
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening for clients at --listen: %w", err)
	}
	cfg.listenForPeers()
	cfg.warnOfExposure()
	cfg.warnOfReaders()
	s := &Server{
		cfg: cfg, credentials: credentials, authenticator: auth, calendars: calendars, shutdown: newShutdownGuard(),
		served: make(chan struct{}), ended: make(chan struct{}),
		notReady: newNotReadyServer(listener, cfg, forClients(credentials)), removal: newRemovalNotice(cfg.Dir),
	}
	s.listener = s.shutdown.wrap(listener)
	cfg.Fatal = s.shutdown.beforeFatal(cfg.Fatal)
	err = errors.Join(s.open(ctx, cfg), s.notReady.stop(context.WithoutCancel(ctx)))
	if err == nil {
		s.lmstfy, err = s.listenForProtocol(ctx, "lmstfy", cfg.LmstfyListen)
	}
	if err == nil {
		err = s.openBeanstalkd(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)), s.listener.Close())
	}
	s.watch(ctx)
	s.lmstfy.start(s.rpc.ServeLmstfy)
	if s.door != nil {
		s.beanstalkd.start(s.door.Serve)
	}
	go func() {
		defer close(s.served)
		s.serveErr = s.rpc.Serve(s.listener)
	}()
	go func() {
		defer close(s.ended)
		select {
		case <-s.served:
		case <-s.lmstfy.ended():
		case <-s.beanstalkd.ended():
		case <-s.removal.received:
		}
	}()
	return s, nil
}

// Check refuses settings with which no server starts, before anything is created or listened on.
func (cfg *Config) Check() error {
	return cmp.Or(checkListen(cfg), checkNames(cfg), cfg.Beanstalkd.check(cfg), cfg.Cluster.Check())
}

// listenForPeers sets the addresses at which other nodes reach this one.
func (cfg *Config) listenForPeers() {
	if cfg.Alone {
		return
	}
	setDefault(&cfg.PeerListen, Neighbour(cfg.Listen, 1))
	setDefault(&cfg.GossipListen, Neighbour(cfg.Listen, 2))
	if cfg.Advertise == "" && len(cfg.Join) == 0 && cfg.BootstrapExpect == 0 &&
		(everywhere(cfg.PeerListen) || everywhere(cfg.GossipListen)) {
		// The node never guesses which of a machine's addresses others can reach.
		cfg.Logger.Info("no other node can join this one: it listens on every address and was not told which to advertise")
		cfg.PeerListen = ""
	}
}

// open opens the node and joins the cluster. After an error the caller must close what is open.
func (s *Server) open(ctx context.Context, cfg Config) (err error) {
	if s.lock, err = disk.Lock(cfg.Dir); err != nil {
		return fmt.Errorf("opening the data directory %s: %w", cfg.Dir, err)
	}
	if err := checkDeparted(cfg.Dir); err != nil {
		return err
	}
	b, err := startBootstrap(ctx, cfg, s.credentials, s.notReady)
	if err != nil {
		return err
	}
	s.bootstrap = b
	s.authenticator.readOpenAccessFile()
	known := b.self.Cluster != ""
	if known {
		// Replicas elect leaders as soon as they are open. The catalog, which knows the voters'
		// addresses, opens much later.
		s.follow(ctx)
	}
	s.lastBackup = readLastBackup(cfg)
	clocks := cluster.NewClocks()
	nodeConfig, err := instrument(node.Config{
		Dir: cfg.Dir, Lock: s.lock, Name: b.name, Incarnation: b.incarnation, Shards: b.shards, AcceptClock: cfg.AcceptClock,
		Fatal: cfg.Fatal, Logger: cfg.Logger,
		Join: b.cluster, Founding: b.founding, Peers: b.secured(s.shutdown.wrap(b.listener)), Dial: b.dial(),
		Resolve: b.directory.Resolve, Clocks: clocks,
		MemoryBytes: cfg.MemoryBytes, HeapLive: heapLive,
		Calendar: s.calendars.OfSchedule,
	})
	if err != nil {
		return err
	}
	s.node, err = node.Open(ctx, nodeConfig)
	if err != nil {
		return fmt.Errorf("opening the data directory %s: %w", cfg.Dir, err)
	}
	if err := forgetIncarnation(cfg.Dir); err != nil {
		return err
	}
	s.cluster, err = cluster.Open(ctx, s.node, cluster.Config{
		PeerAddr: b.self.PeerAddr, ClientAddr: b.self.ClientAddr, Zone: cfg.Zone, RequiresTokens: cfg.RootTokens != "",
		Version: cfg.Version, ZoneData: s.calendars.Zones().Version(),
		Settings: cfg.Cluster, SteadyAfter: cfg.SteadyAfter, Directory: b.directory, Clocks: clocks,
		Seeds: b.seeds, Departed: s.removal.receive, LastBackup: s.lastBackup.Last, Mirrored: cfg.Mirrored,
		Logger: cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("taking part in the cluster: %w", err)
	}
	s.joined.Store(s.cluster)
	if !known {
		if err := b.announce(s.node); err != nil {
			return err
		}
		s.follow(ctx)
	}
	s.rpc, err = s.newEdge(cfg)
	return err
}

// follow starts following gossip.
func (s *Server) follow(ctx context.Context) {
	if s.bootstrap.gossip == nil {
		return
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.unfollow = cancel
	s.following.Go(func() { s.bootstrap.follow(following, &s.joined) })
}

// watch starts to watch when the certificates expire, and which tokens exist.
func (s *Server) watch(ctx context.Context) {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = cancel
	if s.credentials != nil {
		s.following.Go(func() { warnOfEnd(watching, s.cfg.Logger, s.credentials) })
	}
	select {
	case <-s.Ready(): // a lone node knows everything, and no call has to wait
		s.authenticator.refreshCatalog(ctx)
	default:
	}
	s.following.Go(func() { s.authenticator.followCatalog(watching, s.Ready()) })
}

// newEdge returns the server that clients connect to.
func (s *Server) newEdge(cfg Config) (*rpc.Server, error) {
	c := s.cluster
	s.authenticator.catalog = c.Catalog
	registry := prometheus.NewRegistry()
	if err := register(registry, append(certificateMetrics(s.credentials), cfg.Collectors...)); err != nil {
		return nil, err
	}
	dashboard := cfg.Dashboard
	if cfg.GossipKeys != "" {
		keys, err := gossip.ReadKeyFile(cfg.GossipKeys)
		if err != nil {
			return nil, err
		}
		dashboard.Secret = keys[0] // the secret that nodes share; a login at one is then one at all
	}
	edge, err := rpc.NewServer(rpc.Config{
		Node: c.Router(), Catalog: adapter.NewCatalog(c.Catalog), Cluster: adapter.NewCluster(c), Logger: cfg.Logger,
		Audit: cfg.Audit, Registry: registry,
		Calendars: s.calendars, Name: c.Router().Status().Name, Address: s.listener.Addr().String(), Version: cfg.Version,
		TLS: forClients(s.credentials), Authenticator: s.authenticator, Backups: s.lastBackup,
		Lmstfy:           cfg.LmstfyListen != "",
		MetricsQueuesMax: cfg.MetricsQueuesMax, ConnectionsMax: connectionsMax(openFilesMax()),
		Local: local(cfg.Listen) && s.credentials == nil, LocalName: cfg.Advertise, Dashboard: dashboard,
	})
	if err != nil {
		return nil, fmt.Errorf("making the public edge: %w", err)
	}
	return edge, nil
}

// register registers the metrics of the process and of Go's runtime, and further ones.
func register(registry *prometheus.Registry, further []prometheus.Collector) error {
	for _, c := range append([]prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	}, further...) {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Address returns the address at which clients reach the server.
func (s *Server) Address() string { return s.listener.Addr().String() }

// PeerAddress returns the address at which other nodes reach the server; empty if there can be
// none.
func (s *Server) PeerAddress() string { return s.node.Status().PeerAddr }

// GossipAddress returns the address at which other nodes gossip with the server; empty if there can
// be none.
func (s *Server) GossipAddress() string {
	if s.bootstrap == nil || s.bootstrap.gossip == nil {
		return ""
	}
	return s.bootstrap.gossip.Addr().String()
}

// URL returns the base URL of the server.
func (s *Server) URL() string {
	if s.credentials != nil {
		return "https://" + s.Address()
	}
	return "http://" + s.Address()
}

// ClientTLS returns the settings for clients of this server in the same process; nil without TLS.
func (s *Server) ClientTLS() *tls.Config {
	if s.credentials == nil {
		return nil
	}
	return s.credentials.ForItself()
}

// Status returns the status of the node.
func (s *Server) Status() node.Status { return s.node.Status() }

// Leads reports whether the node leads the home shard of a queue.
func (s *Server) Leads(queue string) bool {
	id, err := s.node.Leader(s.node.Route(queue))
	return err == nil && id == s.node.Status().ServerID
}

// Waiting returns how many calls wait for a job.
func (s *Server) Waiting() int {
	waiting := 0
	for _, shard := range s.node.Stats().Shards {
		waiting += shard.Waiters
	}
	return waiting
}

// RootTokens returns how many root tokens are known.
func (s *Server) RootTokens() int {
	return len(*s.authenticator.roots.Load())
}

// Ready returns a channel that is closed when the cluster has confirmed that the node is a member.
// For a lone node it is closed when Start returns. For a node that was forgotten while it was down
// it is never closed.
func (s *Server) Ready() <-chan struct{} { return s.cluster.Confirmed() }

// Done returns a channel that is closed when the server no longer serves, or should not. If it no
// longer serves, because of Stop or by itself, Stop returns why. If it should not, Departed returns
// why.
func (s *Server) Done() <-chan struct{} { return s.ended }

// Departed returns a *DepartedError if the cluster told the node that it was removed for good, else
// nil. Such a server is of no use, and the caller should stop it.
func (s *Server) Departed() error { return s.removal.cause() }

// Stop drains the server, waits until the calls in flight are answered, and closes the node. It
// does not wait after ctx ends. It may be called more than once.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		drainCtx, cancel := context.WithTimeout(ctx, drainMax)
		defer cancel()
		// Leaderships are transferred while the node still answers other nodes: their calls find the next
		// leaders before this one is gone. The second transfer is for leaderships that placement may
		// have returned to this node before all calls were answered.
		s.rpc.Drain()
		s.node.HandOver(drainCtx)
		problems := []error{s.closeDoor(drainCtx), s.rpc.Shutdown(drainCtx)}
		s.node.HandOver(drainCtx)
		<-s.served
		if !errors.Is(s.serveErr, http.ErrServerClosed) {
			problems = append(problems, s.serveErr)
		}
		problems = append(problems, s.lmstfy.wait())
		problems = append(problems, s.close(ctx))
		s.stopped = errors.Join(problems...)
	})
	return s.stopped
}

// close closes what was opened. The node answers other nodes, and they reach its replicas, until
// all leaderships are transferred.
func (s *Server) close(ctx context.Context) error {
	var problems []error
	ctx, cancel := context.WithTimeout(ctx, closeMax)
	defer cancel()
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.unfollow != nil {
		s.unfollow()
	}
	s.following.Wait()
	if s.cluster != nil {
		_ = s.node.AwaitDrained(ctx) // Close returns the same error
		problems = append(problems, s.cluster.Close(ctx))
	}
	if s.node != nil {
		if err := s.node.Close(ctx); err != nil {
			problems = append(problems, fmt.Errorf("closing the node: %w", err))
		}
	}
	if s.bootstrap != nil {
		problems = append(problems, s.bootstrap.close())
	}
	if s.lock != nil {
		problems = append(problems, s.lock.Close())
	}
	return errors.Join(problems...)
}
