package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
	"github.com/belfrydb/belfry/mirror/redistest/redissontest"
)

// offerMany offers so many entries that are due in an hour.
func offerMany(t *testing.T, r *redis.Client, n int) {
	t.Helper()
	app := redissontest.New(r, "orders", redissontest.NewGeneration, time.Now)
	for at := range n {
		if err := app.Offer(t.Context(), fmt.Appendf(nil, "order %d", at), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

// claimOnly has a run claim entries and die before it puts them.
func claimOnly(t *testing.T, r redis.UniversalClient, c *client.Client, most int) {
	t.Helper()
	withLink(t, r, c, func(ctx context.Context, l *link) error {
		i := newImporter(*l, ImportOptions{Share: 1})
		if err := i.prepare(ctx); err != nil {
			return err
		}
		i.batch = most
		_, err := i.claim(ctx)
		return err
	})
}

// delayedJobs is how many jobs of the queue orders wait.
func delayedJobs(t *testing.T, c *client.Client) int64 {
	t.Helper()
	queue, err := c.Admin().Queue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return int64(queue.Delayed)
}

// afterClaim calls a function after each claim that Redis has answered.
type afterClaim struct{ call func() }

// DialHook implements redis.Hook.
func (h afterClaim) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (h afterClaim) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h afterClaim) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == claimScript.Hash() {
			h.call()
		}
		return err
	}
}

// TestStoppedFollowerLeavesNothingClaimed stops a follower at the worst moment, when it has just
// claimed a batch: each entry is Redisson's or Belfry's then, and none is between.
func TestStoppedFollowerLeavesNothingClaimed(t *testing.T) {
	const entries = 3000
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	offerMany(t, server.Client(), entries)
	for round := 1; ; round++ {
		r := redis.NewClient(&redis.Options{Addr: server.Address()})
		ctx, stop := context.WithCancel(t.Context())
		r.AddHook(afterClaim{stop})
		counts, err := Import(ctx, r, c, ImportOptions{RedisQueue: "orders", Follow: true, Share: 1})
		stop()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("it ended with %v", err)
		}
		k := keysOf("orders")
		waiting, claimed, delayed := r.ZCard(t.Context(), k.Timer).Val(), r.ZCard(t.Context(), k.handover).Val(),
			delayedJobs(t, c)
		if claimed != 0 || counts.Claimed == 0 && waiting > 0 || counts.Stranded != 0 || counts.StrandedUnknown ||
			waiting+delayed != entries {
			t.Errorf("round %d: %d wait, %d are claimed, %d are in Belfry; counted %+v", round, waiting, claimed, delayed,
				counts)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if waiting == 0 || t.Failed() {
			return
		}
	}
}

// TestStrandedIsCounted: what a run could not bring over is in its counts, and that it is not known
// if Redis does not answer.
func TestStrandedIsCounted(t *testing.T) {
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	r := server.Client()
	offerMany(t, r, 40)
	claimOnly(t, r, c, 30)
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), ImportOptions{})
	i.worked = true
	if i.countStranded(t.Context(), nil); i.counts != (ImportCounts{}) {
		t.Errorf("a run that came to its end counted %+v", i.counts)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if i.countStranded(ended, context.Canceled); i.counts != (ImportCounts{Stranded: 30}) {
		t.Errorf("counted %+v, want 30 stranded", i.counts)
	}
	server.Kill()
	if i.countStranded(ended, context.Canceled); i.counts != (ImportCounts{StrandedUnknown: true}) {
		t.Errorf("without Redis: counted %+v", i.counts)
	}
}

// TestSettle finishes what a killed run left, claims nothing new, and changes nothing the second
// time.
func TestSettle(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	o := SettleOptions{RedisQueue: "orders", Codec: redisson.Bytes, Share: 1}
	if _, err := Settle(t.Context(), r, c, o); !errors.Is(err, pair.ErrNoQueue) {
		t.Errorf("of a queue that was never mirrored: %v", err)
	}
	if _, err := LookUnsettled(t.Context(), r, c, o); !errors.Is(err, pair.ErrNoQueue) {
		t.Errorf("a look at a queue that was never mirrored: %v", err)
	}
	k := keysOf("orders")
	offerMany(t, r, 50)
	claimOnly(t, r, c, 30)
	if err := r.ZAdd(t.Context(), k.handover, redis.Z{Score: 1, Member: "of no format"}).Err(); err != nil {
		t.Fatal(err)
	}
	if found, err := LookUnsettled(t.Context(), r, c, o); err != nil || found != (Unsettled{Claimed: 31}) {
		t.Errorf("a look found %+v, %v", found, err)
	}
	want := Settled{Before: Unsettled{Claimed: 31}, BroughtOver: 30, GivenBack: 1}
	for round := range 2 {
		done, err := Settle(t.Context(), r, c, o)
		if diff := cmp.Diff(want, done); diff != "" || err != nil {
			t.Errorf("round %d: %v (-want +got):\n%s", round, err, diff)
		}
		if waiting, delayed := r.ZCard(t.Context(), k.Timer).Val(), delayedJobs(t, c); waiting != 21 || delayed != 30 ||
			r.Exists(t.Context(), k.handover).Val() != 0 {
			t.Errorf("round %d: %d wait in Redis, %d in Belfry", round, waiting, delayed)
		}
		want = Settled{}
	}
}

// TestSettleBesideAFollower settles while a follower runs: the follower lets go, and goes on
// afterwards.
func TestSettleBesideAFollower(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	offerMany(t, r, 10)
	claimOnly(t, r, c, 5)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var left = make(chan int64, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := Import(ctx, r, c, ImportOptions{RedisQueue: "orders", Follow: true, Share: 1,
			Progress: func(n ImportCounts) {
				select {
				case left <- n.Left:
				default:
				}
			}})
		ended <- err
	}()
	<-left // it has the hold
	o := SettleOptions{RedisQueue: "orders", Share: 1}
	if found, err := LookUnsettled(t.Context(), r, c, o); err != nil || !found.Held {
		t.Errorf("a look found %+v, %v; want that the follower has the queue", found, err)
	}
	if done, err := Settle(t.Context(), r, c, o); err != nil || done.Before.Claimed != 0 {
		t.Errorf("settled %+v, %v; the follower brings over what it finds claimed", done, err)
	}
	offerMany(t, r, 3)
	for delayedJobs(t, c) != 13 {
		select {
		case err := <-ended:
			t.Fatalf("the follower ended with %v", err)
		case <-left:
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the follower ended with %v", err)
	}
}
