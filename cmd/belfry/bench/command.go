package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/local"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// benchFlags are the flags of `bench`.
type benchFlags struct {
	config   Config
	duration time.Duration
	delay    time.Duration
	self     bool
	data     string
}

// verbs is `bench`.
type verbs struct{ *cli.App }

// Commands returns `bench`.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{verbs{a}.benchCommand()} }

func (a verbs) benchCommand() *cobra.Command {
	f := &benchFlags{}
	var words []string
	var about strings.Builder
	for _, w := range Workloads() {
		words = append(words, w[0])
		fmt.Fprintf(&about, "  %-9s %s\n", w[0], w[1])
	}
	c := &cobra.Command{
		Use:   "bench " + strings.Join(words, "|"),
		Short: "Measure a server",
		Long: "Bench measures the server that --server names, or with --self one inside this process. The jobs go to " +
			"queues of its\n" +
			"own under bench/, which it deletes at the end, also after Ctrl-C or an error; a run that is killed leaves them. " +
			"Where calls\n" +
			"need a token, it has to allow put, consume and admin on bench/*, with --keep put and consume.\n\nWorkloads:\n" +
			about.String(),
		Example: `  belfry bench put
  belfry bench pending --self --jobs 10000000
  belfry bench lateness --rate 1000 --duration 30s`,
		Args:      cli.Arguments(1, 1, "WORKLOAD"),
		ValidArgs: words,
	}
	flags := c.Flags()
	flags.SortFlags = false
	a.ServerFlags(flags, "the server to measure")
	flags.Uint64Var(&f.config.Jobs, flag.Jobs, 0, "end after so many jobs instead of --duration")
	f.duration, f.delay = 10*time.Second, 2*time.Second
	flags.Var(cli.NewDuration(&f.duration, "10s"), flag.Duration, "how long a phase takes")
	flags.IntVar(&f.config.Connections, flag.Connections, 64, "put, batch, pending: callers, each with a connection")
	flags.IntVar(&f.config.Callers, flag.Callers, 512, "sdk: callers that share one client; e2e, lateness: consumers")
	flags.IntVar(&f.config.Batch, flag.Batch, 100, "batch, pending: jobs a call, up to 1000")
	flags.Float64Var(&f.config.RatePerSecond, flag.Rate, 1000,
		"e2e, lateness: jobs a second, put on schedule whatever the server does")
	flags.Var(cli.NewDuration(&f.delay, "2s"), flag.Delay, "lateness: the delay of the jobs")
	flags.IntVar(&f.config.BodyBytes, flag.Body, 100, "bytes of a body")
	flags.IntVar(&f.config.Queues, flag.Queues, 1, "spread the jobs over so many queues")
	flags.IntVar(&f.config.Keys, flag.Keys, 0,
		"sdk, e2e, lateness: spread the jobs over so many keys, each reserved once at a time; 0 for jobs without a key")
	flags.BoolVar(&f.config.Keep, flag.Keep, false,
		"leave the queues and the jobs that are left in them; with --self they go, or stay, with the data directory")
	flags.BoolVar(&f.self, flag.Self, false, "measure a server in this process")
	flags.StringVar(&f.data, flag.Data, "", "with --self: a new data directory, kept afterwards; a temporary one if empty")
	json := flags.Bool(flag.JSON, false, "the same as --output json")
	a.OutputFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		f.config.Workload, f.config.Duration, f.config.Delay = args[0], f.duration, f.delay
		if *json {
			a.Output = "json"
		}
		if !f.self && f.data != "" {
			return cli.Usagef("--data goes with --self")
		}
		return a.bench(c.Context(), f)
	}
	return c
}

// bench measures, and shows what was measured also if the end was an error.
func (a verbs) bench(ctx context.Context, f *benchFlags) error {
	cfg := f.config
	if !f.self {
		if err := a.OneServer(); err != nil {
			return err
		}
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		if cfg.TLS, err = a.ClientTLS(); err != nil {
			return err
		}
		if cfg.Token, err = a.Token(); err != nil {
			return err
		}
		cfg.URL = conn.URL
		defer context.AfterFunc(ctx, func() { a.sayRemoving(cfg) })()
		if cfg.Workload == "pending" {
			cfg.Memory = ServerMemory(conn.HTTP, conn.URL)
		}
		return a.measure(ctx, cfg)
	}
	defer server.StartTuning(ctx, a.Variable("GOGC"))()
	return local.Host{
		Version: cli.ThisBuild().Version, Fatal: a.StorageFailed,
	}.WithOwnServer(ctx, f.data, func(s *server.Server) error {
		cfg.URL, cfg.Memory, cfg.Collect, cfg.Keep = s.URL(), OwnMemory, CollectOwn, true
		return a.measure(ctx, cfg)
	})
}

// sayRemoving says what an interrupted run still does.
func (a verbs) sayRemoving(cfg Config) {
	if !cfg.Keep {
		fmt.Fprintln(a.Err, "belfry: interrupted; removing the queues of this run")
	}
}

func (a verbs) measure(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return cli.Usagef("%s%s", err, cli.DidYouMean(cfg.Workload, workloadNames()))
	}
	results, err := Run(ctx, cfg)
	if len(results) > 0 {
		showErr := a.ShowValue(results, func(w io.Writer) { Write(w, results) }) //nolint:errcheck // w is memory
		if err == nil {
			err = showErr
		}
	}
	return err
}

func workloadNames() []string {
	var names []string
	for _, w := range Workloads() {
		names = append(names, w[0])
	}
	return names
}
