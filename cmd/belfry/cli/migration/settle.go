package migration

import (
	"errors"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/redisson"
)

func (a verbs) mirrorSettleCommand() *cobra.Command {
	f := &mirrorFlags{}
	c := &cobra.Command{
		Use:   "settle REDIS --queue NAME",
		Short: "Finish what stopped runs left half done, and bring over nothing new",
		Long: `
Settle puts entries into Belfry that a run of import, cutover or run had claimed when it was stopped
or killed. What Belfry cannot take goes back to Redisson. Jobs that a killed export or run had
written to Redis are removed from Belfry. It asks a running 'import --follow', 'run' or 'serve' for
the queue, which go on afterwards, and waits for any other process. It may be interrupted anywhere
and run again; where nothing is half done it changes nothing. Give --codec as for the run that
claimed.`,
		Example: `  belfry mirror settle redis://127.0.0.1:6379 --queue orders --dry-run
  belfry mirror settle redis://127.0.0.1:6379 --queue orders`,
		Args: cli.Arguments(1, 1, "REDIS"),
	}
	f.names(c)
	codecFlag(c, &f.codec)
	c.Flags().BoolVar(&f.dryRun, flag.DryRun, false, "count what is half done; changes nothing")
	c.RunE = func(c *cobra.Command, args []string) error {
		codec, err := redisson.ParseCodec(f.codec)
		if err != nil {
			return cli.Usagef("--codec: %s", err)
		}
		return a.mirrored(c.Context(), f, args[0], func(r redis.UniversalClient, cl *client.Client) error {
			bar := newEntries(a.System)
			o := mirror.SettleOptions{
				RedisQueue: f.redisQueue, Queue: f.queue, Codec: codec, Share: f.share, Hold: f.hold,
				Notice: bar.until(c.Context()),
			}
			if f.dryRun {
				f.closing = "nothing was changed"
				found, err := mirror.LookUnsettled(c.Context(), r, cl, o)
				bar.End()
				if err != nil {
					return err
				}
				return a.ShowValue(found, func(w io.Writer) { renderUnsettled(w, found) })
			}
			done, err := mirror.Settle(c.Context(), r, cl, o)
			bar.End()
			if err != nil && done == (mirror.Settled{}) {
				return err
			}
			return errors.Join(err, a.ShowValue(done, func(w io.Writer) { renderSettled(w, done) }))
		})
	}
	return a.ClientFlags(c)
}

// renderUnsettled says what is half done.
func renderUnsettled(w io.Writer, found mirror.Unsettled) {
	held := "no process"
	if found.Held {
		held = "a process, which brings over what it claims"
	}
	render.Fields(w,
		"claimed, not in Belfry", number(found.Claimed),
		"in Redis, not gone from Belfry", number(found.InBoth),
		"mirrored by", held,
	)
}

// renderSettled says what was finished.
func renderSettled(w io.Writer, done mirror.Settled) {
	if done.Before.Claimed+done.Before.InBoth == 0 {
		fmt.Fprintln(w, "nothing was half done")
		return
	}
	render.Fields(w,
		"were claimed", number(done.Before.Claimed),
		"brought over", number(done.BroughtOver),
		"given back", unlessZero(done.GivenBack),
		"in Redis, gone from Belfry now", unlessZero(done.Before.InBoth),
	)
}

// renderStranded says what a run leaves claimed, and what to type.
func renderStranded(w io.Writer, n mirror.ImportCounts, f *mirrorFlags) {
	settle := "belfry mirror settle REDIS --queue " + f.redisQueue
	if f.queue != "" {
		settle += " --belfry-queue " + f.queue
	}
	if f.codec != redisson.Opaque.String() {
		settle += " --codec " + f.codec
	}
	switch {
	case n.StrandedUnknown:
		fmt.Fprintf(w, "how many entries are claimed and not in Belfry is not known, because Redis does not answer; once "+
			"it does: %s --dry-run\n", settle)
	case n.Stranded == 1:
		fmt.Fprintf(w, "1 entry is claimed and not in Belfry; this, or the next run, brings it over: %s\n", settle)
	case n.Stranded > 1:
		fmt.Fprintf(w, "%s entries are claimed and not in Belfry; this, or the next run, brings them over: %s\n",
			number(n.Stranded), settle)
	}
}
