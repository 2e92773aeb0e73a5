// Package top is the command that watches a cluster and its busiest queues.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	topInterval    = 2 * time.Second
	topIntervalMin = 200 * time.Millisecond
	topIntervalMax = time.Hour
	// topPages bounds the pages of a thousand queues that are read for one picture.
	topPages = 10
)

// topFlags are the flags of `top`.
type topFlags struct {
	prefix   string
	sort     string
	interval time.Duration
	once     bool
}

// verbs is `top`.
type verbs struct{ *cli.App }

// Commands returns `top`.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{verbs{a}.topCommand()} }

func (a verbs) topCommand() *cobra.Command {
	f := &topFlags{interval: topInterval}
	c := &cobra.Command{
		Use:   "top [PREFIX]",
		Short: "Watch the cluster and its busiest queues",
		Long: `
Top shows what is wrong with the cluster, who leads how many shards, when jobs fall due, and the
queues whose names begin with PREFIX, again and again until Ctrl-C. Rates are of the whole cluster
since the last picture; lateness is as the node that answers saw it in the last minute. While a
shard has no leader the queues are shown as the replicas that answer have them, without rates.
Without a terminal, and as JSON, it shows the state once.`,
		Example:           "  belfry top shop/",
		Args:              cli.Arguments(0, 1),
		ValidArgsFunction: a.CompleteQueue,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Var(cli.Choice(&f.sort, "ready", "delayed", "reserved", "dead", "put", "acked", "hour", "name"), flag.Sort,
		"which queues come first: those with the most ready, delayed, reserved or dead jobs, the most put or acked a "+
			"second, the most due within the hour; or by name")
	flags.Var(cli.NewDuration(&f.interval, topInterval.String()), flag.Interval,
		"how long a picture stays, 200ms to an hour")
	flags.BoolVar(&f.once, flag.Once, false, "show the state once")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.interval < topIntervalMin || f.interval > topIntervalMax {
			return cli.Usagef("--interval: have %v, want %v to %v", f.interval, topIntervalMin, topIntervalMax)
		}
		if len(args) == 1 {
			f.prefix = args[0]
		}
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		if a.Output == "json" || f.once || !a.OutTerminal {
			return a.Within(c.Context(), func(ctx context.Context) error {
				s, err := a.lookAround(ctx, conn, f.prefix)
				if err != nil {
					return err
				}
				return errors.Join(a.showTop(s, f), s.unread)
			})
		}
		return a.watch(c.Context(), conn, f)
	}
	return a.ClientFlags(c)
}

// sight is what there is to see of a cluster at one moment.
type sight struct {
	Cluster *belfryv1.GetClusterResponse
	Queues  *belfryv1.ListQueuesResponse
	// stale tells that the queues are as some replica has them, because a shard has no leader.
	stale bool
	// unread is why there are no queues to see; nil if they could be read.
	unread error
	// at is when the queues were read.
	at time.Time
}

// hasTotals reports whether the queues' totals may be compared with another sight's: those of a
// replica that lags would make rates of what was long ago.
func (s *sight) hasTotals() bool { return s != nil && !s.stale && s.unread == nil }

// lookAround reads the state of the cluster, and of the queues whose names begin with a prefix: the
// first of them by name, if there are very many. That they cannot be read is no error: what is
// wrong with the cluster is worth seeing then most of all.
func (a verbs) lookAround(ctx context.Context, conn *cli.Connection, prefix string) (*sight, error) {
	cluster, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
	if err != nil {
		return nil, err
	}
	s := &sight{Cluster: cluster, Queues: &belfryv1.ListQueuesResponse{}}
	leaderless := func(shard *belfryv1.Shard) bool { return shard.Leader == "" }
	s.stale = slices.ContainsFunc(cluster.Shards, leaderless) // to ask for more would take a while, and end in NO_LEADER
	queues, err := cli.ReadQueues(ctx, conn, &belfryv1.ListQueuesRequest{Prefix: prefix, Stale: s.stale}, topPages)
	if s.unread = a.Describe(ctx, err); err == nil {
		s.Queues = queues
	}
	s.at = a.Now()
	return s, nil
}

// showTop shows the state once.
func (a verbs) showTop(s *sight, f *topFlags) error {
	if a.Output == "json" {
		cluster, err := cli.EncodeJSON(s.Cluster)
		if err != nil {
			return err
		}
		queues, err := cli.EncodeJSON(s.Queues)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "{\"cluster\":%s,\"queues\":%s}\n", cluster, queues)
		return err
	}
	return a.Flush(func(w io.Writer) {
		const wide, high = 120, 1 << 20
		for _, line := range drawTop(s, nil, f, picture{columns: wide, rows: high, server: a.Server}) {
			fmt.Fprintln(w, strings.TrimRight(line, " "))
		}
	})
}

const (
	screenOpen  = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineEnd     = "\x1b[K"
	screenEnd   = "\x1b[J"
)

// watch draws pictures on a terminal until ctx ends. A call that fails leaves the last picture, and
// says why above it.
func (a verbs) watch(ctx context.Context, conn *cli.Connection, f *topFlags) (err error) {
	var last, before *sight
	last, err = a.lookOnce(ctx, conn, f)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(a.Out, screenOpen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(a.Out, screenClose) }()
	again := time.NewTicker(f.interval)
	defer again.Stop()
	trouble := ""
	for {
		if err := a.drawScreen(last, before, f, trouble); err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		next, err := a.lookOnce(ctx, conn, f)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			trouble = cli.Explain(err)
		default:
			before, last, trouble = last, next, ""
		}
	}
}

// lookOnce is lookAround within the command's timeout.
func (a verbs) lookOnce(ctx context.Context, conn *cli.Connection, f *topFlags) (s *sight, err error) {
	err = a.Within(ctx, func(ctx context.Context) (err error) {
		s, err = a.lookAround(ctx, conn, f.prefix)
		return err
	})
	return s, err
}

// drawScreen replaces what the terminal shows.
func (a verbs) drawScreen(s, before *sight, f *topFlags, trouble string) error {
	columns, rows := a.Size()
	p := picture{columns: columns, rows: rows, server: a.Server, trouble: trouble, blocks: true}
	var b strings.Builder
	b.WriteString(screenHome)
	for i, line := range drawTop(s, before, f, p) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + lineEnd)
	}
	b.WriteString(screenEnd)
	_, err := io.WriteString(a.Out, b.String())
	return err
}
