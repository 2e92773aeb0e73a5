package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/belfrydb/belfry/mirror/fromlmstfy"
	"github.com/belfrydb/belfry/mirror/fromyouzan"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/bridge"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/mirror"
	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/youzan"
)

// What --from may say.
const (
	fromRedisson = "redisson"
	fromLmstfy   = "lmstfy"
	fromYouzan   = "youzan"
)

// bucketsDefault is the bucket_size that a server of ouqiang/delay-queue has unless it is told
// otherwise.
const bucketsDefault = 3

// sourceFlags say what made the queues that are looked at or brought over.
type sourceFlags struct {
	from                       string
	stopped, unnamed           bool
	dead                       string
	buckets                    int
	bucketPattern, queueFormat string
}

// settings adds the flags that say how a server of ouqiang/delay-queue is set up.
func (f *sourceFlags) settings(c *cobra.Command) {
	names := youzan.DefaultNames()
	c.Flags().IntVar(&f.buckets, flag.Buckets, bucketsDefault, "with --from youzan: the server's bucket_size")
	c.Flags().StringVar(&f.bucketPattern, flag.BucketPattern, names.Bucket, "with --from youzan: the server's bucket_name")
	c.Flags().StringVar(&f.queueFormat, flag.QueuePattern, names.Queue, "with --from youzan: the server's queue_name")
}

// chosen adds the flags that say what made a queue.
func (f *sourceFlags) chosen(c *cobra.Command) {
	c.Flags().StringVar(&f.from, flag.From, fromRedisson, "what made the queue: redisson, lmstfy or youzan")
	c.Flags().StringVar(&f.dead, flag.Dead, string(fromlmstfy.DeadLeave),
		"with --from lmstfy: leave dead letters, put them into a queue of their own (queue), or bring them to life (respawn)")
	f.settings(c)
}

// incoming adds the flags of an import.
func (f *sourceFlags) incoming(c *cobra.Command) {
	f.chosen(c)
	c.Flags().BoolVar(&f.stopped, flag.Stopped, false,
		"with --from lmstfy or youzan: no server runs any more, take what consumers hold as well")
	c.Flags().BoolVar(&f.unnamed, flag.Unnamed, false, "with --stopped: take jobs that nothing names any more as well")
}

// checked refuses what makes no sense.
func (f *sourceFlags) checked(all *mirrorFlags) error {
	if _, err := fromlmstfy.ParseDeadLetters(f.dead); err != nil {
		return cli.Usagef("--dead: %s", err)
	}
	if err := f.unused(); err != nil {
		return err
	}
	if f.from != fromRedisson {
		for _, one := range []struct {
			given     bool
			flag, why string
		}{
			{all.codec != "" && all.codec != redisson.Opaque.String(), "--codec",
				"bodies of lmstfy and youzan come over byte for byte"},
			{all.ready, "--ready", "ready jobs of lmstfy and youzan come over always"},
			{all.again, "--again", "no rollback brings jobs back to lmstfy or youzan"},
		} {
			if one.given {
				return cli.Usagef("%s is for --from redisson: %s", one.flag, one.why)
			}
		}
	}
	switch f.from {
	case fromRedisson:
		if f.stopped || f.unnamed {
			return cli.Usagef("--stopped and --unnamed are for --from lmstfy and --from youzan: of Redisson's entries none is " +
				"held by a consumer")
		}
		return nil
	case fromLmstfy:
		if _, err := lmstfyQueue(all.redisQueue); err != nil {
			return err
		}
	case fromYouzan:
		if err := f.server().Names.Check(); err != nil {
			return cli.Usagef("%s", err)
		}
	default:
		return cli.Usagef("--from: can be redisson, lmstfy or youzan, not %q", f.from)
	}
	if f.unnamed && !f.stopped {
		return cli.Usagef("--unnamed needs --stopped: a server that runs may be about to name what nothing names")
	}
	if f.stopped && all.follow {
		return cli.Usagef("--stopped and --follow exclude each other: where no server runs, nothing is published")
	}
	return nil
}

// unused refuses flags that say something about another service than the one that is meant.
func (f *sourceFlags) unused() error {
	if f.from != fromLmstfy && f.dead != "" && f.dead != string(fromlmstfy.DeadLeave) {
		return cli.Usagef("--dead is for --from lmstfy: nothing else has dead letters")
	}
	standard := f.buckets == bucketsDefault && f.bucketPattern == youzan.DefaultNames().Bucket &&
		f.queueFormat == youzan.DefaultNames().Queue
	if (f.from == fromRedisson || f.from == fromLmstfy) && !standard {
		return cli.Usagef("--buckets, --bucket-pattern and --queue-pattern are for --from youzan: they say how its server " +
			"is set up")
	}
	return nil
}

// server is how the server of ouqiang/delay-queue is set up.
func (f *sourceFlags) server() fromyouzan.Server {
	return fromyouzan.Server{Names: youzan.Names{Bucket: f.bucketPattern, Queue: f.queueFormat}, Buckets: f.buckets}
}

// lmstfyQueue reads NAMESPACE/QUEUE.
func lmstfyQueue(name string) (lmstfy.Queue, error) {
	namespace, queue, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || queue == "" || strings.Contains(queue, "/") {
		return lmstfy.Queue{}, cli.Usagef("--queue: a queue of lmstfy is named NAMESPACE/QUEUE, not %q", name)
	}
	return lmstfy.Queue{Namespace: namespace, Name: queue}, nil
}

// foundQueues are the queues that a Redis has, by what made them.
type foundQueues struct {
	Redisson []*mirror.Finding     `json:"redisson,omitempty"`
	Lmstfy   []*fromlmstfy.Finding `json:"lmstfy,omitempty"`
	Youzan   []*fromyouzan.Finding `json:"youzan,omitempty"`
}

// inspect looks at the named queues, or at all.
func (f *sourceFlags) inspect(ctx context.Context, r redis.UniversalClient, queues []string) (*foundQueues, error) {
	found := &foundQueues{}
	if f.from == "" && len(queues) > 0 {
		f.from = fromRedisson
	}
	if err := f.unused(); err != nil {
		return nil, err
	}
	var err error
	switch f.from {
	case fromRedisson:
		err = found.redisson(ctx, r, queues)
	case fromLmstfy:
		err = found.lmstfy(ctx, r, queues)
	case fromYouzan:
		found.Youzan, err = fromyouzan.Inspect(ctx, r, f.server(), queues...)
	case "":
		err = found.redisson(ctx, r, nil)
		if _, cluster := r.(*redis.ClusterClient); !cluster && err == nil { // the others cannot use one
			if err = found.lmstfy(ctx, r, nil); err == nil {
				found.Youzan, err = fromyouzan.Inspect(ctx, r, f.server())
			}
		}
	default:
		err = cli.Usagef("--from: can be redisson, lmstfy or youzan, not %q", f.from)
	}
	return found, err
}

func (found *foundQueues) redisson(ctx context.Context, r redis.UniversalClient, queues []string) (err error) {
	if len(queues) == 0 {
		if queues, err = mirror.FindQueues(ctx, r); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		one, err := mirror.Inspect(ctx, r, queue)
		if err != nil {
			return fmt.Errorf("queue %s: %w", queue, err)
		}
		found.Redisson = append(found.Redisson, one)
	}
	return nil
}

func (found *foundQueues) lmstfy(ctx context.Context, r redis.UniversalClient, names []string) error {
	var queues []lmstfy.Queue
	for _, name := range names {
		queue, err := lmstfyQueue(name)
		if err != nil {
			return err
		}
		queues = append(queues, queue)
	}
	if len(queues) == 0 {
		var err error
		if queues, err = fromlmstfy.Find(ctx, r); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		one, err := fromlmstfy.Inspect(ctx, r, queue)
		if err != nil {
			return fmt.Errorf("queue %s/%s of lmstfy: %w", queue.Namespace, queue.Name, err)
		}
		found.Lmstfy = append(found.Lmstfy, one)
	}
	return nil
}

// byService does work with the options of an import from the service that --from names.
func (f *mirrorFlags) byService(o oneway.Options, lmstfy func(fromlmstfy.Options) error,
	youzan func(fromyouzan.Options) error) error {
	o.Queue, o.Share, o.Hold = f.queue, f.share, f.hold
	if f.source.from == fromYouzan {
		return youzan(fromyouzan.Options{Options: o, Server: f.source.server(), Topic: f.redisQueue})
	}
	queue, err := lmstfyQueue(f.redisQueue)
	if err != nil {
		return err
	}
	return lmstfy(fromlmstfy.Options{Options: o, Source: queue, Dead: fromlmstfy.DeadLetters(f.source.dead)})
}

// finalize ends a migration, and returns what it checked.
func (f *mirrorFlags) finalize(ctx context.Context, r redis.UniversalClient, c *client.Client,
	notice func(error)) (checks []pair.Check, err error) {
	if f.source.from == fromRedisson {
		return mirror.Finalize(ctx, r, c, mirror.FinalizeOptions{
			RedisQueue: f.redisQueue, Queue: f.queue, Share: f.share, Hold: f.hold, Notice: notice,
		})
	}
	err = f.byService(oneway.Options{Notice: notice}, func(o fromlmstfy.Options) (err error) {
		checks, err = fromlmstfy.Finalize(ctx, r, c, o)
		return err
	}, func(o fromyouzan.Options) (err error) {
		checks, err = fromyouzan.Finalize(ctx, r, c, o)
		return err
	})
	return checks, err
}

// importSource carries out `mirror import` from what is not Redisson.
func (a verbs) importSource(ctx context.Context, f *mirrorFlags, r redis.UniversalClient, c *client.Client,
	meters *bridge.Meters) error {
	if f.dryRun {
		f.closing = "nothing was changed"
		found, err := f.source.inspect(ctx, r, []string{f.redisQueue})
		if err != nil {
			return err
		}
		return a.ShowValue(found, func(w io.Writer) { renderFound(w, found, a.Now()) })
	}
	bar := newEntries(a.System)
	general := oneway.Options{
		Stopped: f.source.stopped, Unnamed: f.source.unnamed, SetAside: f.setAside, Follow: f.follow, Notice: bar.until(ctx),
		Progress: func(n oneway.Counts) {
			meters.Imported(f.redisQueue, mirror.ImportCounts{
				Claimed: n.Claimed, Committed: n.Committed, Acked: n.Acked, Repeated: n.Repeated, SetAside: n.SetAside,
				Looked: a.Now(), // it comes after an answer of Redis only
			})
			bar.entries(n.Acked+n.Gone+n.SetAside, n.Total)
		},
	}
	var counts oneway.Counts
	err := f.byService(general, func(o fromlmstfy.Options) (err error) {
		counts, err = fromlmstfy.Import(ctx, r, c, o)
		return err
	}, func(o fromyouzan.Options) (err error) {
		counts, err = fromyouzan.Import(ctx, r, c, o)
		return err
	})
	bar.End()
	return errors.Join(err, a.ShowValue(counts, func(w io.Writer) { renderSource(w, counts) }))
}
