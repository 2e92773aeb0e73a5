// Package migration has the verbs of mirror, which move jobs between Redis and Belfry.
package migration

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/bridge"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// mirrorFlags are what the commands of `mirror` share.
type mirrorFlags struct {
	redisQueue, queue string
	codec, format     string
	share             float64
	hold              time.Duration
	setAside, follow  bool
	again             bool
	metrics           string
	ready, dryRun     bool
	source            sourceFlags
	access            bridge.RedisFlags
	replicas          int
	closing           string // what to know when it was interrupted; that of imports if empty
}

// verbs are the commands of the mirror.
type verbs struct{ *cli.App }

// Commands returns `mirror`.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{verbs{a}.mirrorCommand()} }

func (a verbs) mirrorCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "mirror",
		Short: "Bring delayed jobs from Redis to Belfry and back, while both run",
		Long: `
Mirror moves the entries of Redisson's delayed queues (RDelayedQueue) to Belfry and back. Redisson's
processes may go on meanwhile: an entry is delivered by one side only, and an interrupted command is
simply run again.

REDIS is redis://user:password@host:6379/0, rediss:// for TLS, redis+cluster://host:6379 or
redis+sentinel://host:26379?master_name=NAME.`,
	}, a.mirrorInspectCommand(), a.mirrorImportCommand(), a.mirrorExportCommand(), a.mirrorRunCommand(),
		a.mirrorCutoverCommand(), a.mirrorSettleCommand(), a.mirrorRollbackCommand(), a.mirrorFinalizeCommand())
}

// names adds the flags that say which queue is meant.
func (f *mirrorFlags) names(c *cobra.Command) {
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.redisQueue, flag.Queue, "q", "", "the name that Redisson's processes give the queue")
	flags.StringVar(&f.queue, flag.BelfryQueue, "", "the queue of Belfry; the same name if empty")
	flags.Float64Var(&f.share, flag.Share, 0.25, "the part of Redis' time that scripts may take, above 0 up to 1")
	f.hold = pair.HoldDefault
	flags.Var(cli.NewDuration(&f.hold, "15s"), flag.Hold,
		"for how long no other process may take over after this one was killed, 1s to 5m")
	f.access.Add(flags)
}

// checked refuses what makes no sense.
func (f *mirrorFlags) checked() error {
	if f.redisQueue == "" {
		return cli.Usagef("--queue is missing: the name that Redisson's processes give the queue; belfry mirror inspect " +
			"shows them")
	}
	if f.share <= 0 || f.share > 1 {
		return cli.Usagef("--share: must be above 0 and at most 1, is %v", f.share)
	}
	if f.replicas < 0 {
		return cli.Usagef("--replicas: must be 0 or more, is %d", f.replicas)
	}
	if f.hold < pair.HoldMin || f.hold > pair.HoldMax {
		return cli.Usagef("--hold: must be %v to %v, is %v", pair.HoldMin, pair.HoldMax, f.hold)
	}
	return nil
}

func (a verbs) mirrorInspectCommand() *cobra.Command {
	var queues []string
	f := &sourceFlags{}
	c := &cobra.Command{
		Use:   "inspect REDIS",
		Short: "Show the delayed queues that a Redis has, and what an import would meet; changes nothing",
		Long: `
Inspect looks for delayed queues of Redisson, queues of lmstfy and topics of ouqiang/delay-queue
(youzan) in a Redis database. It reads the names of all keys, and all jobs.`,
		Example: `  belfry mirror inspect redis://127.0.0.1:6379
  belfry mirror inspect redis://127.0.0.1:6379 --queue orders -o json
  belfry mirror inspect redis://127.0.0.1:6379/1 --from youzan`,
		Args: cli.Arguments(1, 1, "REDIS"),
	}
	c.Flags().SortFlags = false
	c.Flags().StringVar(&f.from, flag.From, "", "only what this made: redisson, lmstfy or youzan")
	c.Flags().StringArrayVarP(&queues, flag.Queue, "q", nil,
		"only this queue; may be repeated. Of Redisson, unless --from says otherwise")
	f.settings(c)
	access := &bridge.RedisFlags{}
	access.Add(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := access.Connect(args[0])
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // nothing is under way
		if err := a.reach(c.Context(), r); err != nil {
			return err
		}
		found, err := f.inspect(c.Context(), r, queues)
		if err != nil {
			return coded(err)
		}
		return a.ShowValue(found, func(w io.Writer) { renderFound(w, found, a.Now()) })
	}
	return a.OutputFlag(c)
}

func (a verbs) mirrorImportCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "import REDIS --queue NAME",
		Short: "Move the entries of a delayed queue of Redisson, lmstfy or ouqiang/delay-queue to Belfry",
		Long: `
Import claims entries in Redis, puts them into Belfry and then removes the claim. Live processes of
Redisson may offer and deliver meanwhile; each entry is delivered by them or comes here. It may be
interrupted anywhere and run again. With --follow it lets go of the queue when a rollback asks for
it, and waits then; without, it brings over again what went back.

Bodies are the payloads byte for byte, unless --codec names how they are encoded; one that the codec
cannot read exactly stays as it is. The queue remembers the ids of its jobs without end from then
on.

With --from lmstfy (--queue NAMESPACE/QUEUE) and --from youzan (--queue TOPIC; database 1 unless set
otherwise) jobs keep their ids. What consumers hold is left to them until they let it go; --stopped
takes it too, once no server runs any more.`,
		Example: `  belfry mirror import redis://127.0.0.1:6379 --queue orders --dry-run
  belfry mirror import redis://127.0.0.1:6379 --queue orders --codec kryo5-string --follow
  belfry mirror import redis://127.0.0.1:6379 --from lmstfy --queue shop/orders --dead queue
  belfry mirror import redis://127.0.0.1:6379/1 --from youzan --queue orders --stopped`,
		Args: cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.incoming(c)
	c.Flags().BoolVar(&f.ready, flag.Ready, false,
		"take the ready list along: what is due and was not consumed; stop Redisson's consumers first")
	f.source.incoming(c)
	c.Flags().BoolVar(&f.follow, flag.Follow, false, "go on with what Redisson's processes offer, until interrupted")
	f.returning(c, "with --follow")
	f.metered(c)
	c.Flags().BoolVar(&f.dryRun, flag.DryRun, false, "say what would be done; changes nothing")
	c.RunE = func(c *cobra.Command, args []string) error { return a.mirrorImport(c.Context(), f, args[0]) }
	return a.ClientFlags(c)
}

// incoming adds the flags of what brings entries to Belfry.
func (f *mirrorFlags) incoming(c *cobra.Command) {
	codecFlag(c, &f.codec)
	c.Flags().BoolVar(&f.setAside, flag.SetAside, false,
		"move entries that Belfry cannot take to a key of their own, instead of refusing")
}

// codecFlag adds the flag that says how payloads are encoded.
func codecFlag(c *cobra.Command, codec *string) {
	c.Flags().StringVar(codec, flag.Codec, redisson.Opaque.String(),
		"how payloads become bodies: opaque, string, json, kryo5-string, river-string, fst-string or bytes")
}

// returning adds the flag of what does not undo a rollback by itself.
func (f *mirrorFlags) returning(c *cobra.Command, when string) {
	c.Flags().BoolVar(&f.again, flag.Again, false,
		when+": bring the jobs over again if a rollback took them back, instead of waiting until somebody decides that")
}

// metered adds the flag of what shows its progress as metrics.
func (f *mirrorFlags) metered(c *cobra.Command) {
	c.Flags().StringVar(&f.metrics, flag.MetricsListen, "",
		"serve metrics at http://HOST:PORT/metrics, HOST:PORT; port 0 picks a free one")
}

// outgoing adds the flags of what brings jobs to Redisson.
func (f *mirrorFlags) outgoing(c *cobra.Command) {
	c.Flags().StringVar(&f.format, flag.RedissonFormat, "",
		"what the processes of Redisson read: old up to 3.21.0, new since 3.21.1; found out if empty")
	c.Flags().StringVar(&f.codec, flag.Codec, redisson.Opaque.String(),
		"how the bodies of jobs that did not come from Redisson become payloads; without one such a job ends the command")
	replicasFlag(c, &f.replicas)
}

// mirrorImport carries out `mirror import`.
func (a verbs) mirrorImport(ctx context.Context, f *mirrorFlags, url string) error {
	codec, err := redisson.ParseCodec(f.codec)
	if err != nil {
		return cli.Usagef("--codec: %s", err)
	}
	if err := f.source.checked(f); err != nil {
		return err
	}
	return a.mirrored(ctx, f, url, func(r redis.UniversalClient, c *client.Client) error {
		meters := bridge.NewMeters(f.redisQueue)
		stop, err := a.serveMetrics(ctx, f.metrics, meters)
		if err != nil {
			return err
		}
		defer stop()
		if f.source.from != fromRedisson {
			return a.importSource(ctx, f, r, c, meters)
		}
		options := mirror.ImportOptions{
			RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, SetAside: f.setAside, Ready: f.ready, Follow: f.follow,
			Again: f.again, Share: f.share, Hold: f.hold,
		}
		if f.dryRun {
			f.closing = "nothing was changed"
			found, err := mirror.Rehearse(ctx, r, c, options)
			if err != nil {
				return err
			}
			return a.ShowValue(found, func(w io.Writer) { renderFindings(w, []*mirror.Finding{found}, a.Now()) })
		}
		bar := newEntries(a.System)
		options.Notice = bar.until(ctx)
		options.Progress = func(n mirror.ImportCounts) {
			meters.Imported(f.redisQueue, n)
			bar.entries(n.Acked+n.SetAside, n.Total)
		}
		counts, err := mirror.Import(ctx, r, c, options)
		bar.End()
		if err != nil && counts == (mirror.ImportCounts{}) {
			return err
		}
		return errors.Join(err, a.ShowValue(counts, func(w io.Writer) { renderImport(w, counts, f) }))
	})
}

func (a verbs) mirrorExportCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "export REDIS --queue NAME",
		Short: "Move the jobs of a queue back to Redisson's delayed queue",
		Long: `
Export pauses the queue, writes its delayed and ready jobs as entries of Redisson and removes them
from Belfry. Jobs that came from Redisson go back as the very entries that came. It waits for jobs
that consumers hold, leaves dead jobs where they are and the queue paused, and may be interrupted
anywhere and run again. Redisson has no place for attempts, priorities, TTLs and headers: jobs that
lose them are counted.

--redisson-format is what the processes of Redisson read: old up to 3.21.0, new since 3.21.1. It is
found out if Redis or the jobs show it; one that disagrees with what Redis has is refused, because
it would stop those processes.`,
		Example: "  belfry mirror export redis://127.0.0.1:6379 --queue orders",
		Args:    cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.outgoing(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.mirrorExport(c.Context(), f, args[0], mirror.Export)
	}
	return a.ClientFlags(c)
}

// mirrorExport carries out `mirror export` and `mirror rollback`.
func (a verbs) mirrorExport(
	ctx context.Context, f *mirrorFlags, url string,
	export func(context.Context, redis.UniversalClient, *client.Client, mirror.ExportOptions) (mirror.ExportCounts, error),
) error {
	f.closing = "run it again before the queue is resumed"
	codec, err := redisson.ParseCodec(f.codec)
	if err != nil {
		return cli.Usagef("--codec: %s", err)
	}
	format := redisson.Unknown
	if f.format != "" {
		if format, err = redisson.ParseGeneration(f.format); err != nil {
			return cli.Usagef("--redisson-format: %s", err)
		}
	}
	return a.mirrored(ctx, f, url, func(r redis.UniversalClient, c *client.Client) error {
		bar, out := newEntries(a.System), exported{}
		var err error
		out.ExportCounts, err = export(ctx, r, c, mirror.ExportOptions{
			RedisQueue: f.redisQueue, Queue: f.queue, Format: format, Codec: codec, Share: f.share, Hold: f.hold,
			Replicas: f.replicas, Notice: bar.until(ctx),
			Progress: func(n mirror.ExportCounts) { bar.entries(n.Returned, n.Total) },
			Checked:  func(checks []pair.Check) { out.Checks = checks },
		})
		bar.End()
		if err != nil && out.ExportCounts == (mirror.ExportCounts{}) {
			return err
		}
		return errors.Join(err, a.ShowValue(out, func(w io.Writer) {
			renderExport(w, out)
			if err != nil {
				fmt.Fprintln(w, "it did not come to its end: run it again before the queue is resumed; Redis may have jobs that "+
					"Belfry has as well")
				return
			}
			fmt.Fprintf(w, "the queue stays paused; 'belfry queue resume %s' ends that\n", cmp.Or(f.queue, f.redisQueue))
		}))
	})
}

// exported is what an export or a rollback shows.
type exported struct {
	mirror.ExportCounts
	Checks []pair.Check `json:"checks"`
}

// mirrored does work between a Redis and a server. If a signal ends it, it says in one line what
// that means.
func (a verbs) mirrored(ctx context.Context, f *mirrorFlags, url string,
	work func(redis.UniversalClient, *client.Client) error) error {
	err := a.between(ctx, f, url, work)
	var stopped cli.Interruption
	if err == nil || !errors.As(context.Cause(ctx), &stopped) {
		return err
	}
	fmt.Fprintln(a.Err, "belfry: interrupted;",
		cmp.Or(f.closing, "what was claimed is brought over by the next run of any mirror command"))
	return stopped
}

// between is mirrored without its last word.
func (a verbs) between(ctx context.Context, f *mirrorFlags, url string,
	work func(redis.UniversalClient, *client.Client) error) error {
	if err := f.checked(); err != nil {
		return err
	}
	r, err := f.access.Connect(url)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is under way
	if err := a.reach(ctx, r); err != nil {
		return err
	}
	servers, err := a.servers(ctx)
	if err != nil {
		return err
	}
	c, err := a.SDK(servers) //nolint:contextcheck // its life is its own, until Close
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	return coded(work(r, c))
}

// reach returns an error, with its exit code, unless the Redis that a URL names answers.
func (a verbs) reach(ctx context.Context, r redis.UniversalClient) error {
	reaching, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	err := redisconn.Reach(reaching, r)
	if err == nil || ctx.Err() != nil {
		return err
	}
	var late net.Error
	var record tls.RecordHeaderError
	switch {
	case redisconn.OtherKind(err):
		return cli.Usagef("%s", err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.As(err, &late) && late.Timeout(),
		errors.As(err, &record), errors.Is(err, redisconn.ErrNoRedis):
		return cli.ExitWith(cli.CodeUnavailable, err.Error())
	default:
		return coded(err)
	}
}

// servers returns the servers that --server names, one or several with commas between, once one of
// them has answered. The work itself waits for servers that are away for a while; where none was
// ever there it is a mistake.
func (a verbs) servers(ctx context.Context) (string, error) {
	var urls []string
	var answered bool
	var last error
	for _, text := range strings.Split(a.Server, ",") {
		one := *a.App
		one.Server = strings.TrimSpace(text)
		conn, err := one.Connect()
		if err != nil {
			return "", err
		}
		urls = append(urls, conn.URL)
		if answered {
			continue
		}
		last = one.Within(ctx, func(ctx context.Context) error {
			_, err := conn.Admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
			return err
		})
		answered = last == nil
	}
	if !answered {
		return "", last
	}
	return strings.Join(urls, ","), nil
}

// coded gives what Redis says its exit code.
func coded(err error) error {
	var dial *net.OpError
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "The user executing the script"),
		redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"):
		return cli.ExitWith(cli.CodeForbidden, err.Error())
	case errors.Is(err, pair.ErrNoQueue):
		return cli.ExitWith(cli.CodeNotFound, err.Error())
	case errors.As(err, &dial) && dial.Op == "dial":
		return cli.ExitWith(cli.CodeUnavailable, err.Error())
	default:
		return err
	}
}

// entryBar shows how many entries are done, and what is waited for.
type entryBar struct {
	*cli.Progress
	mu   sync.Mutex
	last string
}

func newEntries(sys *cli.System) *entryBar { return &entryBar{Progress: cli.NewProgress(sys, 0)} }

// entries shows that so many of total entries are done.
func (b *entryBar) entries(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Total, b.last = total, ""
	b.Update(uint64(max(0, done)), done)
}

// until is notice until ctx ends: what fails then does so for that.
func (b *entryBar) until(ctx context.Context) func(error) {
	return func(err error) {
		if ctx.Err() == nil {
			b.notice(err)
		}
	}
}

// notice says once what is waited for.
func (b *entryBar) notice(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if text := err.Error(); text != b.last {
		b.last = text
		b.Say("belfry: " + text)
	}
}
