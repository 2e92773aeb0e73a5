package migration

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/bridge"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

func (a verbs) mirrorRunCommand() *cobra.Command {
	f := &mirrorFlags{}
	var noIn, noOut bool
	c := &cobra.Command{
		Use:   "run REDIS --queue NAME",
		Short: "Keep Redisson's producers and consumers running on top of Belfry",
		Long: `
Run brings over what Redisson's producers offer, and puts jobs that fall due in Belfry on Redisson's
ready list, where RBlockingQueue.take() finds them: once each, unless Redis forgets what it was
told. It goes on until it is interrupted. One process at a time does it for a queue, others wait and
take over within --hold; 'belfry serve --mirror-redis' is the same inside a server. A rollback has
all of them wait until 'belfry mirror import', 'cutover' or 'run --again'.`,
		Example: `  belfry mirror run redis://127.0.0.1:6379 --queue orders --codec kryo5-string
  belfry mirror run redis://127.0.0.1:6379 --queue orders --no-in  # only what falls due in Belfry`,
		Args: cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.incoming(c)
	f.returning(c, "once")
	replicasFlag(c, &f.replicas)
	c.Flags().BoolVar(&noIn, flag.NoIn, false, "leave what Redisson's producers offer to Redisson")
	c.Flags().BoolVar(&noOut, flag.NoOut, false, "leave jobs that fall due to the consumers of Belfry")
	f.metered(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		codec, err := redisson.ParseCodec(f.codec)
		if err != nil {
			return cli.Usagef("--codec: %s", err)
		}
		if noIn && noOut {
			return cli.Usagef("--no-in and --no-out leave nothing to do")
		}
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar, meters := newEntries(a.System), bridge.NewMeters(f.redisQueue)
			meters.Blind = noIn
			stop, err := a.serveMetrics(c.Context(), f.metrics, meters)
			if err != nil {
				return err
			}
			defer stop()
			var in mirror.ImportCounts // as last told
			err = mirror.Bridge(c.Context(), r, cl, mirror.BridgeOptions{
				RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, SetAside: f.setAside, NoIn: noIn, NoOut: noOut,
				Again: f.again,
				Share: f.share, Hold: f.hold, Replicas: f.replicas, Notice: bar.until(c.Context()),
				Progress: func(n mirror.BridgeCounts) {
					in = n.In
					meters.Update(f.redisQueue, n)
					bar.entries(n.In.Acked+n.Out, 0)
				},
			})
			bar.End()
			renderStranded(a.Err, in, f)
			return err
		})
	}
	return a.ClientFlags(c)
}

func (a verbs) mirrorCutoverCommand() *cobra.Command {
	f := &mirrorFlags{}
	quiet := 10 * time.Minute
	c := &cobra.Command{
		Use:   "cutover REDIS --queue NAME",
		Short: "Follow Redisson's producers until they are gone",
		Long: `
Cutover imports what Redisson's producers offer while they are switched to Belfry one after the
other, and says what is still there. It ends when nothing of the queue was left in Redis and no
process of Redisson listened for --quiet. It may be interrupted and run again; 'belfry mirror
rollback' goes back at any time, 'belfry mirror finalize' ends the migration.`,
		Example: "  belfry mirror cutover redis://127.0.0.1:6379 --queue orders --quiet 30m",
		Args:    cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.incoming(c)
	f.metered(c)
	c.Flags().Var(cli.NewDuration(&quiet, "10m"), flag.Quiet,
		"for how long there must have been nothing to do; longer than a producer's deployment takes")
	c.RunE = func(c *cobra.Command, args []string) error {
		codec, err := redisson.ParseCodec(f.codec)
		if err != nil {
			return cli.Usagef("--codec: %s", err)
		}
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar, out, meters := newEntries(a.System), cutOver{}, bridge.NewMeters(f.redisQueue)
			defer bar.End()
			stop, err := a.serveMetrics(c.Context(), f.metrics, meters)
			if err != nil {
				return err
			}
			defer stop()
			out.ImportCounts, err = mirror.Cutover(c.Context(), r, cl, mirror.CutoverOptions{
				ImportOptions: mirror.ImportOptions{
					RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, SetAside: f.setAside, Share: f.share, Hold: f.hold,
					Notice:   bar.until(c.Context()),
					Progress: func(n mirror.ImportCounts) { meters.Imported(f.redisQueue, n) },
				},
				Quiet: quiet,
				Looked: func(checks []pair.Check, since time.Duration) {
					out.Checks = checks
					bar.notice(errors.New(standing(checks, since, quiet)))
				},
			})
			if err != nil && out.ImportCounts == (mirror.ImportCounts{}) {
				return err
			}
			return errors.Join(err, a.ShowValue(out, func(w io.Writer) {
				renderImport(w, out.ImportCounts, f)
				renderChecks(w, out.Checks)
				if err == nil {
					fmt.Fprintln(w, "nothing is left in Redis; 'belfry mirror finalize' ends the migration")
				}
			}))
		})
	}
	return a.ClientFlags(c)
}

// cutOver is what a cut-over shows: what it brought over, and what it saw at its last look.
type cutOver struct {
	mirror.ImportCounts
	Checks []pair.Check `json:"checks"`
}

// standing says how far a cut-over is. It changes only when something does.
func standing(checks []pair.Check, since, quiet time.Duration) string {
	var left []string
	for _, c := range checks {
		if !c.OK {
			left = append(left, c.Found)
		}
	}
	if len(left) > 0 {
		return "not drained: " + strings.Join(left, ", ")
	}
	return fmt.Sprintf("drained; quiet for %v of %v", since.Truncate(max(time.Second, quiet/10)), quiet)
}

func (a verbs) mirrorRollbackCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "rollback REDIS --queue NAME",
		Short: "Go back: give all jobs of the queue to Redisson again",
		Long: `
Rollback is 'belfry mirror export', and gives back what an import had set aside as well. 'mirror
run', 'serve' and 'import --follow' let go of the queue for it and wait afterwards; any other
process that mirrors it is waited for. Then the queue is paused, and Redisson's processes deliver. A
later import starts anew: what went back is not taken for what was there before.`,
		Example: "  belfry mirror rollback redis://127.0.0.1:6379 --queue orders",
		Args:    cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.outgoing(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.mirrorExport(c.Context(), f, args[0], mirror.Rollback)
	}
	return a.ClientFlags(c)
}

func (a verbs) mirrorFinalizeCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "finalize REDIS --queue NAME",
		Short: "End a migration: remove the mirror's keys from Redis",
		Long: `
Finalize checks that nothing of the queue is left in Redis and that no process of Redisson listens,
removes the mirror's own keys, and has the queue remember the ids of ended jobs for its dedup window
only, if it did before the first import: an entry that Redis lost and finds again after that is a
new job. It waits for a process that mirrors the queue.

With --from lmstfy and --from youzan it checks that no job waits there and that none is claimed or
set aside; give --dead as for the import. Dead letters that were left stay.`,
		Example: "  belfry mirror finalize redis://127.0.0.1:6379 --queue orders",
		Args:    cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.source.chosen(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.source.checked(f); err != nil {
			return err
		}
		f.closing = "run it again to end the migration"
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar := newEntries(a.System)
			checks, err := f.finalize(c.Context(), r, cl, bar.until(c.Context()))
			bar.End()
			if checks == nil {
				return err
			}
			return errors.Join(err, a.ShowValue(checks, func(w io.Writer) {
				renderChecks(w, checks)
				if err == nil {
					fmt.Fprintln(w, "the migration has ended; the mirror has no more to do with this queue of Redis")
				}
			}))
		})
	}
	return a.ClientFlags(c)
}
