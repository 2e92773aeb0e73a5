// Package daemon has the verbs that open a node's data directory: serve and recover.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/rpc/metrics"
	"github.com/belfrydb/belfry/rpc/ui"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/cmd/belfry/bridge"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
)

const (
	defaultData   = "belfry-data"
	defaultListen = "127.0.0.1:7400"
)

// serveFlags are the flags of `serve`.
type serveFlags struct {
	config         server.Config
	memory         cli.SizeValue
	logFormat      string
	logLevel       string
	printAddresses bool
	printConfig    bool
	debug          string
	ui             string
	mirror         bridge.Settings
}

// verbs are the commands that open a node's data.
type verbs struct{ *cli.App }

// Commands returns `serve` and `recover`.
func Commands(a *cli.App) []*cobra.Command {
	v := verbs{a}
	return []*cobra.Command{v.serveCommand(), v.recoverCommand()}
}

func (a verbs) serveCommand() *cobra.Command {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `
Serve runs one node on a data directory, which it makes if there is none. It needs no other service.

The first SIGINT or SIGTERM drains it: waiting polls are answered, calls that are under way are
finished. A second signal ends it at once; nothing that was acknowledged is lost then either.`,
		Example: `  belfry serve
  belfry serve --data /var/lib/belfry --listen 10.0.0.5:7400 --tls-cert n1.pem \
    --tls-key n1-key.pem --tls-ca ca.pem --gossip-keys gossip.keys --root-tokens root-tokens`,
		Args: cli.Arguments(0, 0),
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(c.Flags()); err != nil {
			return err // the settings are shown with it, if that is asked for
		}
		if f.printConfig {
			return a.Flush(func(w io.Writer) { renderConfig(w, c) })
		}
		return a.lastWords(c.Context(), f.logFormat, a.serve(c, f))
	}
	flags := c.Flags()
	flags.SortFlags = false
	f.addPlaces(flags)
	f.addAccess(flags)
	f.addCluster(flags)
	f.addDiagnostics(flags)
	f.addDoors(flags)
	f.mirror.Add(flags)
	flags.BoolVar(&f.printAddresses, flag.PrintAddresses, false, "print the addresses in use as one line of JSON")
	flags.BoolVar(&f.printConfig, flag.PrintConfig, false,
		"print every setting with where it comes from, and do not serve; secrets are in files, of which it shows the names")
	cli.Configurable(flags, flag.Data, flag.Listen, flag.PeerListen, flag.GossipListen, flag.LmstfyListen,
		flag.Advertise, flag.Join,
		flag.BootstrapExpect,
		flag.GossipKeys, flag.TLSCert, flag.TLSKey, flag.TLSCA, flag.TLSClientCert, flag.TLSClientKey, flag.RootTokens,
		flag.ReplicationFactor, flag.GracePeriod, flag.Zone, flag.NodeID, flag.Shards, flag.Memory, flag.Insecure,
		flag.AcceptClock, flag.Zoneinfo, flag.LogFormat, flag.LogLevel,
		flag.DebugAddr, flag.MetricsMaxQueues, flag.UI, flag.UIPrefix,
		flag.BeanstalkdListen, flag.BeanstalkdMaxJobBytes, flag.BeanstalkdTokenFile, flag.BeanstalkdClientCA,
		flag.MirrorRedis, flag.MirrorReplicas, flag.MirrorQueue,
		flag.MirrorTokenFile, flag.PrintAddresses)
	return c
}

// addPlaces adds the flags of the data directory and the addresses.
func (f *serveFlags) addPlaces(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.Dir, flag.Data, defaultData, "the data directory")
	flags.StringVar(&f.config.Listen, flag.Listen, defaultListen,
		"where clients reach it, HOST:PORT; port 0 picks a free one")
	flags.StringVar(&f.config.PeerListen, flag.PeerListen, "",
		"where other nodes reach it, HOST:PORT; by default the port after that of --listen")
	flags.StringVar(&f.config.GossipListen, flag.GossipListen, "",
		"where other nodes gossip with it, HOST:PORT; by default the second port after that of --listen")
	flags.StringVar(&f.config.LmstfyListen, flag.LmstfyListen, "",
		"where clients of lmstfy reach it, HOST:PORT; nowhere if empty")
	flags.StringVar(&f.config.Advertise, flag.Advertise, "",
		"the host under which others reach it; that of the listen addresses if empty")
	flags.StringSliceVar(&f.config.Join, flag.Join, nil,
		"gossip addresses of nodes whose cluster a new data directory joins, HOST:PORT,…")
	flags.IntVar(&f.config.BootstrapExpect, flag.BootstrapExpect, 0,
		"found a cluster together with others, as soon as so many nodes with new data directories see each other")
}

// addAccess adds the flags of keys, certificates and tokens.
func (f *serveFlags) addAccess(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.GossipKeys, flag.GossipKeys, "",
		"a file of gossip keys, one a line in base64, the first of which seals; read again on SIGHUP; without it gossip is "+
			"open")
	flags.StringVar(&f.config.TLS.Cert, flag.TLSCert, "",
		"a file with the node's certificate, which names it and its cluster; 'belfry cert' makes it. Read again on SIGHUP, "+
			"as are the other files")
	flags.StringVar(&f.config.TLS.Key, flag.TLSKey, "", "the key of that certificate")
	flags.StringVar(&f.config.TLS.CA, flag.TLSCA, "",
		"the authorities whose certificates nodes have; with it clients and nodes are answered with TLS only")
	flags.StringVar(&f.config.TLS.ClientCert, flag.TLSClientCert, "",
		"what clients are shown instead, such as a certificate of a public authority")
	flags.StringVar(&f.config.TLS.ClientKey, flag.TLSClientKey, "", "the key of that certificate")
	flags.StringVar(&f.config.RootTokens, flag.RootTokens, "",
		"a file of what is kept of tokens that may do everything, which 'belfry token root' makes; with it every call "+
			"needs a token. Read again on SIGHUP")
}

// addCluster adds the flags of the node and the cluster that it founds.
func (f *serveFlags) addCluster(flags *pflag.FlagSet) {
	flags.IntVar(&f.config.Cluster.Factor, flag.ReplicationFactor, 0,
		"if this node founds a cluster: how many voters each shard gets, 1, 3, 5 or 7; 3 by default, and changed by "+
			"'belfry cluster settings'")
	flags.Var(cli.NewDuration(&f.config.Cluster.Grace, ""), flag.GracePeriod,
		"if this node founds a cluster: how long a node may be silent before its replicas are replaced; 10m by default, "+
			"and changed likewise")
	flags.StringVar(&f.config.Zone, flag.Zone, "",
		"what the node fails together with, such as a rack; replicas are spread over zones")
	flags.StringVar(&f.config.NodeID, flag.NodeID, "",
		"the node's name, of its own in the cluster; by default the one that the data directory has, or the host's name if "+
			"that is new")
	flags.IntVar(&f.config.Shards, flag.Shards, node.DefaultShards,
		"how many shards a new data directory gets, 1 to 1024; never changes, and another number is refused")
	flags.Var(&f.memory, flag.Memory,
		"how much memory the process may take, such as 2GiB; by default what its control group allows, or the machine has. "+
			"Puts are refused before it is full")
	flags.BoolVar(&f.config.Insecure, flag.Insecure, false, "listen beyond loopback without TLS, gossip keys and tokens")
	flags.BoolVar(&f.config.AcceptClock, flag.AcceptClock, false,
		"start although the clock contradicts the data; see its message")
	flags.StringVar(&f.config.Zoneinfo, flag.Zoneinfo, "",
		"a directory or zip file of time-zone data for schedules, such as /usr/share/zoneinfo, in place of those of this "+
			"program; read once, at the start")
}

// addDiagnostics adds the flags of logs, profiles and metrics.
func (f *serveFlags) addDiagnostics(flags *pflag.FlagSet) {
	flags.Var(cli.Choice(&f.logFormat, logAuto, logText, logJSON), flag.LogFormat,
		"text or json; auto is text on a terminal and json elsewhere")
	flags.Var(cli.Choice(&f.logLevel, logLevels...), flag.LogLevel,
		"debug, info, warn or error; --debug-addr has a page that changes it while the server runs")
	flags.StringVar(&f.debug, flag.DebugAddr, "",
		"where profiles (pprof), variables (expvar), settings and the log level of the process are to be had, HOST:PORT on "+
			"loopback; nowhere if empty")
	flags.IntVar(&f.config.MetricsQueuesMax, flag.MetricsMaxQueues, metrics.DefaultQueues,
		fmt.Sprintf("how many queues have metrics of their own, counted once for each shard, 1 to %d; the others are shown "+
			"together as _other", metrics.QueuesMax))
	flags.Var(cli.Choice(&f.ui, uiOn, uiRead, uiOff), flag.UI,
		"the dashboard on the port of clients: on, read without actions, or off")
	flags.StringVar(&f.config.Dashboard.Path, flag.UIPrefix, ui.DefaultPath,
		"the path of the dashboard, from a slash to a slash, for a proxy that has others beside it")
}

// beanstalkdJobBytes is beanstalkd's own default of --beanstalkd-max-job-bytes.
const beanstalkdJobBytes = 1<<16 - 1

// addDoors adds the flags of the front doors for other protocols.
func (f *serveFlags) addDoors(flags *pflag.FlagSet) {
	flags.StringVar(&f.config.Beanstalkd.Listen, flag.BeanstalkdListen, "",
		"where programs reach it that speak beanstalkd's protocol, HOST:PORT, such as 127.0.0.1:11300; nowhere if empty")
	flags.IntVar(&f.config.Beanstalkd.JobBytesMax, flag.BeanstalkdMaxJobBytes, beanstalkdJobBytes,
		"the largest body of a job that such a program may put, in bytes, at most 1048576")
	flags.StringVar(&f.config.Beanstalkd.TokenFile, flag.BeanstalkdTokenFile, "",
		"a file with the token under which the connections of such programs act; read at each connection")
	flags.StringVar(&f.config.Beanstalkd.ClientCA, flag.BeanstalkdClientCA, "",
		"the authorities of the certificates that such programs show; the common name of a certificate is the id of the "+
			"token under which its connection acts")
}

// check refuses settings with which no server starts.
func (f *serveFlags) check(flags *pflag.FlagSet) error {
	switch {
	case f.config.Shards < 1 || f.config.Shards > node.ShardsMax:
		return cli.Usagef("--shards must be 1 to %d, is %d", node.ShardsMax, f.config.Shards)
	case strings.ContainsAny(f.config.Advertise, ":/[] ") && !isAddress(f.config.Advertise):
		return cli.Usagef("--advertise: have %q, want a host, a name or an address without port: the ports are those of "+
			"the listen addresses", f.config.Advertise)
	case f.memory.Bytes != 0 && f.memory.Bytes < node.MemoryBytesMin:
		return cli.Usagef("--memory: have %q, want at least %dMiB", f.memory.Text, node.MemoryBytesMin>>20)
	case f.config.MetricsQueuesMax < 1 || f.config.MetricsQueuesMax > metrics.QueuesMax:
		return cli.Usagef("--metrics-max-queues: have %d, want 1 to %d", f.config.MetricsQueuesMax, metrics.QueuesMax)
	}
	if err := checkTLSFlags(flags); err != nil {
		return err
	}
	if err := ui.CheckPath(f.config.Dashboard.Path); err != nil {
		return cli.Usagef("--%s: %s", flag.UIPrefix, err)
	}
	if _, err := f.mirror.Bridges(); err != nil {
		return err
	}
	err := f.config.Check()
	if bad, ok := errors.AsType[*catalog.SettingError](err); ok {
		return cli.Usagef("--%s: %s", strings.ReplaceAll(string(bad.Setting), " ", "-"), bad.Text)
	}
	if err != nil {
		return cli.Usagef("%s", err)
	}
	return nil
}

// isAddress reports whether a host is an address, with a zone or without.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// serve runs a server until the command's context ends.
func (a verbs) serve(c *cobra.Command, f *serveFlags) error {
	ctx := c.Context()
	cfg := f.config
	if !c.Flags().Changed(flag.Shards) {
		cfg.Shards = 0 // whatever the directory has
	}
	level := levelOf(f.logLevel)
	cfg.Logger = a.logger(f.logFormat, level)
	cfg.Audit = a.logger(f.logFormat, slog.LevelInfo) // whatever else is not to be said
	cfg.Version, cfg.Dashboard.Mode = cli.ThisBuild().Version, dashboardMode(f.ui)
	cfg.Fatal = func(err error) { a.storageLost(cfg.Logger, cfg.Dir, err) }
	if host, err := os.Hostname(); err == nil { // else the server has a name for it
		cfg.DefaultName = nameOfHost(host)
	}
	bridged, err := f.mirror.Bridges()
	if err != nil {
		return err
	}
	if len(bridged) > 0 && cfg.RootTokens != "" && f.mirror.TokenFile == "" {
		return cli.Usagef("--mirror-token-file is missing: with --root-tokens the bridges of --mirror-queue need a " +
			"token, too")
	}
	meters := bridge.NewMeters()
	if len(bridged) > 0 {
		cfg.Collectors, cfg.Mirrored = append(cfg.Collectors, meters), meters.Mirrored
	}
	cfg.MemoryBytes = server.LimitMemory(f.memory.Bytes, server.FindMemoryLimit(), cfg.Logger)
	defer server.StartTuning(ctx, a.Variable("GOGC"))()
	debugAt, stopDebug, err := startDebug(ctx, f.debug, cfg.Logger, debugHandler(cfg.Audit, level, func(w io.Writer) {
		renderConfig(w, c)
	}))
	if err != nil {
		return err
	}
	defer stopDebug()
	var s *server.Server
	started := make(chan struct{})
	if cfg.GossipKeys != "" || cfg.RootTokens != "" || cfg.TLS != (certs.Files{}) {
		defer onHangup(started, func() error { return reload(s, cfg) }, cfg.Logger)()
	}
	s, err = server.Start(ctx, cfg)
	if err != nil {
		if bad, ok := errors.AsType[*server.ConfigError](err); ok {
			return cli.Usagef("%s", bad)
		}
		if _, damaged := errors.AsType[*disk.CorruptError](err); damaged {
			return cli.ExitWith(cli.CodeStorage, err.Error())
		}
		if why := disk.ExplainFull(cfg.Dir, err); why != "" {
			return cli.ExitWith(cli.CodeStorage, err.Error()+": "+why)
		}
		return err
	}
	close(started)
	if err := a.printAddresses(s, f, debugAt); err != nil {
		return errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	stopBridges, err := bridge.Start(ctx, &f.mirror, s, bridged, meters, cfg.Logger)
	if err != nil {
		return errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	why := a.untilStop(ctx, s, f, cfg.Logger)
	stopBridges()
	cfg.Logger.Info("stopping", slog.String("why", why))
	began := a.Now()
	// The context has ended, and the end is the work that is left; a second signal ends the process.
	if err := s.Stop(context.WithoutCancel(ctx)); err != nil {
		return cli.ExitWith(cli.CodeError, fmt.Sprintf("stopping: %s", err))
	}
	cfg.Logger.Info("stopped", slog.Duration("after", a.Now().Sub(began)))
	return s.Departed()
}

// reload makes a server read its files again, and logs how many root tokens it knows now. This
// changes which callers are let in, so the audit log has it.
func reload(s *server.Server, cfg server.Config) error {
	err := s.Reload()
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	cfg.Audit.Info("audit", slog.String("changed", "what SIGHUP reads again"), slog.String("outcome", outcome))
	if cfg.RootTokens != "" {
		cfg.Logger.Info("root tokens in use", slog.Int("tokens", s.RootTokens()))
	}
	return err
}

// untilStop says that the server is ready, once it is, and returns why it is to stop.
func (a verbs) untilStop(ctx context.Context, s *server.Server, f *serveFlags, log *slog.Logger) string {
	status := s.Status()
	ready := s.Ready()
	select {
	case <-ready:
	default:
		log.Info("waiting for the leader of the cluster", slog.String("address", s.URL()), slog.String("node", status.Name),
			slog.String("cluster", status.ClusterID))
	}
	waits := s.Waits()
	tell := time.NewTicker(waitsEvery)
	defer tell.Stop()
	for {
		select {
		case <-tell.C:
			if ready == nil {
				tell.Stop()
				continue
			}
			log.Warn("still waiting for the leader of the cluster", slog.String("why", waits(ctx)))
		case <-ready:
			ready = nil
			log.Info("ready", slog.String("address", s.URL()), slog.String("data", f.config.Dir),
				slog.String("node", status.Name),
				slog.String("cluster", status.ClusterID), slog.Int("shards", len(status.Shards)),
				slog.String("version", cli.ThisBuild().Version))
			if a.OutTerminal && !f.printAddresses {
				renderWelcome(a.Out, s.URL(), f.config.TLS.CA, s.Status(), f.config.Dir)
			}
		case <-s.Done():
			if s.Departed() != nil {
				return "the node left its cluster"
			}
			return "the server stopped by itself"
		case <-ctx.Done():
			return context.Cause(ctx).Error()
		}
	}
}

// waitsEvery is the time between two messages about a leader that is waited for.
const waitsEvery = 15 * time.Second

// lastWordsMax is how long the last words of a process may take to be written.
const lastWordsMax = 250 * time.Millisecond

// storageLost ends the process and says why. The log may be on the disk that hangs, and so may
// standard error, or it is a pipe without a reader. The end does not wait for it.
func (a verbs) storageLost(log *slog.Logger, dir string, err error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		attrs := []any{slog.Any("error", err)}
		if why := disk.ExplainFull(dir, err); why != "" {
			attrs = append(attrs, slog.String("remedy", why))
		}
		log.Error("storage failed, and this node stops rather than risk data", attrs...)
	}()
	timeout := time.NewTimer(lastWordsMax)
	defer timeout.Stop()
	select {
	case <-said:
	case <-timeout.C:
	}
	a.Exit(cli.CodeStorage)
}

// printAddresses prints where the server is as a line for programs, if that is wanted.
func (a verbs) printAddresses(s *server.Server, f *serveFlags, debugAt string) error {
	if !f.printAddresses {
		return nil
	}
	line, err := json.Marshal(struct {
		Listen     string `json:"listen"`
		PeerListen string `json:"peerListen,omitempty"`
		Gossip     string `json:"gossipListen,omitempty"`
		Lmstfy     string `json:"lmstfyListen,omitempty"`
		Beanstalkd string `json:"beanstalkdListen,omitempty"`
		Debug      string `json:"debugListen,omitempty"`
	}{s.Address(), s.PeerAddress(), s.GossipAddress(), s.LmstfyAddress(), s.BeanstalkdAddress(), debugAt})
	if err != nil {
		return fmt.Errorf("writing the addresses: %w", err)
	}
	if _, err := fmt.Fprintf(a.Out, "%s\n", line); err != nil {
		return fmt.Errorf("printing the addresses: %w", err)
	}
	return nil
}

// renderWelcome shows what to try first.
func renderWelcome(w io.Writer, url, authority string, status node.Status, dir string) {
	curl := "curl " + strings.TrimPrefix(url, "http://")
	if authority != "" {
		curl = "curl --cacert " + authority + " " + url
	}
	fmt.Fprintf(w, `
  Belfry is ready at %[1]s  (node %[2]s, %[3]s, data in %[4]s)

  Put a job that is due in 5 seconds, wait for it, and say that it is done:

    %[5]s/v1/put -d '{"queue":"hello","text":"world","delay":"5s"}'
    %[5]s/v1/reserve -d '{"queues":["hello"],"wait":"20s"}'
    %[5]s/v1/ack -d '{"lease":"the lease of the job"}'

  Ctrl-C stops it; what was put stays in %[4]s.

`, url, status.Name, render.Count(len(status.Shards), "shard"), dir, curl)
}
