package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
)

func (a *app) mirrorRunCommand() *cobra.Command {
	f := &mirrorFlags{}
	var noIn, noOut bool
	var metrics string
	c := &cobra.Command{
		Use:   "run REDIS --queue NAME",
		Short: "Keep Redisson's producers and consumers running on top of Belfry",
		Long: "Run brings over what Redisson's producers offer, and puts jobs that fall due in Belfry on Redisson's ready list, where\n" +
			"RBlockingQueue.take() finds them: once each, unless Redis forgets what it was told. It goes on until it is interrupted.\n" +
			"One process at a time does it for a queue, others wait and take over within --hold; 'belfry serve --mirror-redis' is the\n" +
			"same inside a server.",
		Args: arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.incoming(c)
	c.Flags().BoolVar(&noIn, "no-in", false, "leave what Redisson's producers offer to Redisson")
	c.Flags().BoolVar(&noOut, "no-out", false, "leave jobs that fall due to the consumers of Belfry")
	c.Flags().StringVar(&metrics, "metrics-listen", "", "serve metrics at http://HOST:PORT/metrics, HOST:PORT; port 0 picks a free one")
	c.RunE = func(c *cobra.Command, args []string) error {
		codec, err := redisson.ParseCodec(f.codec)
		if err != nil {
			return usagef("--codec: %s", err)
		}
		if noIn && noOut {
			return usagef("--no-in and --no-out leave nothing to do")
		}
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar, meters := newEntries(a.system), newMirrorMeters()
			defer bar.end()
			stop, err := a.serveMetrics(c.Context(), metrics, meters)
			if err != nil {
				return err
			}
			defer stop()
			return mirror.Bridge(c.Context(), r, cl, mirror.BridgeOptions{
				RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, SetAside: f.setAside, NoIn: noIn, NoOut: noOut, Share: f.share, Hold: f.hold, Notice: bar.notice,
				Progress: func(n mirror.BridgeCounts) {
					meters.update(f.redisQueue, n)
					bar.entries(n.In.Acked+n.Out, 0)
				},
			})
		})
	}
	return c
}

func (a *app) mirrorCutoverCommand() *cobra.Command {
	f := &mirrorFlags{}
	quiet := 10 * time.Minute
	c := &cobra.Command{
		Use:   "cutover REDIS --queue NAME",
		Short: "Follow Redisson's producers until they are gone",
		Long: "Cutover imports what Redisson's producers offer while they are switched to Belfry one after the other, and says what is still\n" +
			"there. It ends when nothing of the queue was left in Redis and no process of Redisson listened for --quiet. It may be\n" +
			"interrupted and run again; 'belfry mirror rollback' goes back at any time, 'belfry mirror finalize' ends the migration.",
		Args: arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.incoming(c)
	c.Flags().Var(&durationFlag{&quiet, "10m"}, "quiet", "for how long there must have been nothing to do; longer than a producer's deployment takes")
	c.RunE = func(c *cobra.Command, args []string) error {
		codec, err := redisson.ParseCodec(f.codec)
		if err != nil {
			return usagef("--codec: %s", err)
		}
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar := newEntries(a.system)
			defer bar.end()
			counts, err := mirror.Cutover(c.Context(), r, cl, mirror.CutoverOptions{
				ImportOptions: mirror.ImportOptions{RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, SetAside: f.setAside, Share: f.share, Hold: f.hold, Notice: bar.notice},
				Quiet:         quiet,
				Looked: func(checks []mirror.Check, since time.Duration) {
					bar.notice(errors.New(standing(checks, since, quiet)))
				},
			})
			if err != nil && counts == (mirror.ImportCounts{}) {
				return err
			}
			return errors.Join(err, a.showValue(counts, func(w io.Writer) {
				renderImport(w, counts)
				if err == nil {
					fmt.Fprintln(w, "nothing is left in Redis; 'belfry mirror finalize' ends the migration")
				}
			}))
		})
	}
	return c
}

// standing says how far a cut-over is. It changes only when something does.
func standing(checks []mirror.Check, since, quiet time.Duration) string {
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

func (a *app) mirrorRollbackCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "rollback REDIS --queue NAME",
		Short: "Go back: give all jobs of the queue to Redisson again",
		Long: "Rollback is 'belfry mirror export', and gives back what an import had set aside as well. Stop what brings entries to Belfry\n" +
			"first; rollback waits for it. Then the queue is paused, and Redisson's processes deliver. A later import starts anew: what\n" +
			"went back is not taken for what was there before.",
		Args: arguments(1, 1, "REDIS"),
	}
	f.names(c)
	f.outgoing(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.mirrorExport(c.Context(), f, args[0], mirror.Rollback)
	}
	return c
}

func (a *app) mirrorFinalizeCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "finalize REDIS --queue NAME",
		Short: "End a migration: remove the mirror's keys from Redis",
		Long: "Finalize checks that nothing of the queue is left in Redis and that no process of Redisson listens, removes the mirror's own\n" +
			"keys, and has the queue remember the ids of ended jobs for its dedup window only: an entry that Redis lost and finds again\n" +
			"after that is a new job.",
		Args: arguments(1, 1, "REDIS"),
	}
	f.names(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			var checks []mirror.Check
			err := a.within(c.Context(), func(ctx context.Context) (err error) {
				checks, err = mirror.Finalize(ctx, r, cl, f.redisQueue, f.queue)
				return err
			})
			if checks == nil {
				return err
			}
			return errors.Join(err, a.showValue(checks, func(w io.Writer) { renderChecks(w, checks) }))
		})
	}
	return c
}
