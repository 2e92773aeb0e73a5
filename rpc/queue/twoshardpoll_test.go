package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// inFlightNode simulates reservations of shard 1 that are in flight when the wait of their calls is
// stopped. It applies them a while later. If the caller has left by then, it releases the granted
// jobs, as a node does; this takes as long again. It does not release them if the request has an
// id.
type inFlightNode struct {
	*backendtest.Node
	late time.Duration
}

func (n *inFlightNode) Reserve(ctx context.Context, shard uint32, req *fsm.Request,
	wait node.Wait) (node.Reply, error) {
	if shard != 1 || wait.For == 0 {
		return n.Node.Reserve(ctx, shard, req, wait)
	}
	select {
	case <-wait.Stop:
	case <-ctx.Done():
		return node.Reply{}, fmt.Errorf("%w: %w", node.ErrCanceled, context.Cause(ctx))
	}
	applied, gone := make(chan node.Reply), make(chan struct{})
	time.AfterFunc(n.late, func() {
		reply, err := n.Do(context.WithoutCancel(ctx), shard, req)
		if err != nil {
			panic(err) // it cannot fail
		}
		select {
		case applied <- reply:
		case <-gone:
			if req.ID == "" {
				time.AfterFunc(n.late, func() { n.release(shard, reply) })
			}
		}
	})
	select {
	case reply := <-applied:
		return n.WithJobs(shard, reply), nil
	case <-ctx.Done():
		close(gone)
		return node.Reply{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, context.Cause(ctx))
	}
}

// release gives back the jobs that a reply granted.
func (n *inFlightNode) release(shard uint32, reply node.Reply) {
	for _, g := range reply.Results[0].Grants {
		ref := fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}
		if _, err := n.Do(context.Background(), shard,
			&fsm.Request{Commands: []fsm.Command{&fsm.Release{Ref: ref}}}); err != nil {
			panic(err)
		}
	}
}

// twoShardPoll is a poll in two shards. If jobs are put into both queues, its first grants come
// from shard 0, while grants of shard 1 are in flight.
type twoShardPoll struct {
	*testing.T
	*attempt
	queues *Service
	slow   string // the queue in shard 1
	fast   string // the queue in shard 0
}

// attempt is one attempt at a poll.
type attempt struct {
	response *belfryv1.ReserveResponse
	err      error
	ended    chan struct{}
	after    time.Duration // from the beginning of wait to the answer
}

// startParkedPoll parks a poll for both queues, the slow one first, and puts two jobs into each.
func startParkedPoll(ctx context.Context, t *testing.T, late time.Duration,
	req *belfryv1.ReserveRequest) *twoShardPoll {
	t.Helper()
	c := startPoll(ctx, t, late, req)
	c.putTwo(c.slow)
	c.putTwo(c.fast)
	synctest.Wait()
	return c
}

// startPoll parks a poll for both queues, the slow one first.
func startPoll(ctx context.Context, t *testing.T, late time.Duration, req *belfryv1.ReserveRequest) *twoShardPoll {
	t.Helper()
	n := backendtest.NewNode(2)
	c := &twoShardPoll{
		T: t, queues: newService(t, &inFlightNode{Node: n, late: late}), slow: n.QueueIn(1, "slow"),
		fast: n.QueueIn(0, "fast"),
	}
	req.Queues, req.Wait = []string{c.slow, c.fast}, durationpb.New(time.Minute)
	c.attempt = c.repeat(ctx, req)
	return c
}

// repeat starts one more attempt and lets it run until it blocks.
func (c *twoShardPoll) repeat(ctx context.Context, req *belfryv1.ReserveRequest) *attempt {
	a := &attempt{ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		a.response, a.err = c.queues.Reserve(ctx, req)
	}()
	synctest.Wait()
	return a
}

// putTwo puts two jobs at once.
func (c *twoShardPoll) putTwo(queue string) {
	c.Helper()
	if _, err := c.queues.PutBatch(c.Context(), &belfryv1.PutBatchRequest{Jobs: []*belfryv1.PutRequest{
		{Queue: queue},
		{Queue: queue},
	}}); err != nil {
		c.Fatal(err)
	}
}

// wait waits for the end of the attempt.
func (a *attempt) wait() {
	start := time.Now()
	<-a.ended
	a.after = time.Since(start)
}

// names returns the queues of jobs, and fails the test if a job is not in its first attempt.
func (c *twoShardPoll) names(jobs []*belfryv1.Job) []string {
	c.Helper()
	var queues []string
	for _, job := range jobs {
		queues = append(queues, job.GetQueue())
		if job.GetAttempt() != 1 {
			c.Errorf("a job of %s is in attempt %d", job.GetQueue(), job.GetAttempt())
		}
	}
	return queues
}

// remaining reserves the jobs that are free, and returns their queues.
func (c *twoShardPoll) remaining() []string {
	c.Helper()
	var queues []string
	for _, queue := range []string{c.slow, c.fast} {
		res, err := c.queues.Reserve(c.Context(), &belfryv1.ReserveRequest{Queues: []string{queue}, MaxJobs: 10})
		if err != nil {
			c.Fatal(err)
		}
		queues = append(queues, c.names(res.GetJobs())...)
	}
	return queues
}

// TestConcurrentGrantsAreAddedUp: the first grant ends a poll. Jobs that are in flight in another
// shard then are added, up to the number of jobs asked for, and the rest is released.
func TestConcurrentGrantsAreAddedUp(t *testing.T) {
	for _, tt := range []struct {
		name      string
		most      uint32
		late      time.Duration
		got, left string // S and Q for a job of the slow and the fast shard
		after     time.Duration
	}{
		{"all", 4, 10 * time.Millisecond, "QQSS", "", 10 * time.Millisecond},
		{"in part", 3, 10 * time.Millisecond, "QQS", "S", 10 * time.Millisecond},
		{"none", 2, 0, "QQ", "SS", 0},
		{"one", 1, 0, "Q", "SSQ", 0},
		{"too late", 3, 4 * inFlightWaitMax, "QQ", "SS", inFlightWaitMax},
	} {
		for _, id := range []string{"", "r-1"} {
			t.Run(tt.name+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					req := &belfryv1.ReserveRequest{MaxJobs: tt.most, RequestId: id}
					c := startParkedPoll(t.Context(), t, tt.late, req)
					c.wait()
					if c.err != nil || c.after != tt.after {
						t.Errorf("after %v: %v", c.after, c.err)
					}
					if diff := cmp.Diff(c.spell(tt.got), c.names(c.response.GetJobs())); diff != "" {
						t.Errorf("the poll was answered (-want +got):\n%s", diff)
					}
					if id != "" {
						c.expectRepeat(req)
					}
					time.Sleep(2 * tt.late) // the node releases the jobs that came too late
					if diff := cmp.Diff(c.spell(tt.left), c.remaining()); diff != "" {
						t.Errorf("left were (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// spell returns the queues that the letters stand for.
func (c *twoShardPoll) spell(letters string) []string {
	var queues []string
	for _, letter := range letters {
		queues = append(queues, map[rune]string{'S': c.slow, 'Q': c.fast}[letter])
	}
	return queues
}

// expectRepeat fails the test unless a repeat of the poll is answered with the same leases.
func (c *twoShardPoll) expectRepeat(req *belfryv1.ReserveRequest) {
	c.Helper()
	again, err := c.queues.Reserve(c.Context(), req)
	if err != nil {
		c.Fatal(err)
	}
	if diff := cmp.Diff(leasesOf(c.response.GetJobs()), leasesOf(again.GetJobs())); diff != "" {
		c.Errorf("the repeat (-first +second):\n%s", diff)
	}
}

// leasesOf returns the lease of each job.
func leasesOf(jobs []*belfryv1.Job) map[string]bool {
	leases := map[string]bool{}
	for _, job := range jobs {
		leases[job.GetLease()] = true
	}
	return leases
}

// TestPollThatLeavesWhileGrantsCross: a caller that has left gets no jobs, not even those of the
// shard that granted first.
func TestPollThatLeavesWhileGrantsCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		c := startParkedPoll(ctx, t, inFlightWaitMax/2, &belfryv1.ReserveRequest{MaxJobs: 3})
		leave()
		c.wait()
		if c.err == nil || c.after != 0 {
			t.Errorf("after %v: %v, %v", c.after, c.response, c.err)
		}
		if diff := cmp.Diff(c.spell("SSQQ"), c.remaining()); diff != "" {
			t.Errorf("left were (-want +got):\n%s", diff)
		}
	})
}

// TestConcurrentGrantsKeepNoDeadline: a caller whose deadline is near gets the jobs granted so far.
func TestConcurrentGrantsKeepNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		c := startParkedPoll(ctx, t, time.Hour, &belfryv1.ReserveRequest{MaxJobs: 3})
		if c.wait(); c.err != nil || c.after != 90*time.Millisecond {
			t.Errorf("after %v: %v", c.after, c.err)
		}
		if diff := cmp.Diff(c.spell("QQ"), c.names(c.response.GetJobs())); diff != "" {
			t.Errorf("the poll was answered (-want +got):\n%s", diff)
		}
	})
}

// TestRecalledGrantsAreNotTooMany: an attempt ended before it released its excess jobs. Its repeat
// does so.
func TestRecalledGrantsAreNotTooMany(t *testing.T) {
	n := backendtest.NewNode(3)
	q := newService(t, n)
	queues := []string{n.QueueIn(0, "x"), n.QueueIn(1, "y")}
	for _, queue := range queues {
		q.mustPut(t, &belfryv1.PutRequest{Queue: queue})
	}
	first := &poll{service: q, queues: queues, jobsMax: 1, requestID: "r-1"}
	for _, st := range first.parkSteps() {
		if err := first.reserveStep(t.Context(), st, 0); err != nil {
			t.Fatal(err)
		}
	}
	again, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 1, RequestId: "r-1"})
	if err != nil || len(again.GetJobs()) != 1 ||
		again.GetJobs()[0].GetLease() != wire.FormatLease(wire.Ref(first.jobs[0].Job)) {
		t.Errorf("the repeat got %v, %v", again, err)
	}
	rest, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 10})
	if err != nil || len(rest.GetJobs()) != 1 || rest.GetJobs()[0].GetAttempt() != 1 {
		t.Errorf("what was given back: %v, %v", rest, err)
	}
}

// finish acks all jobs of an answer, as its caller does.
func (c *twoShardPoll) finish(a *attempt) {
	c.Helper()
	for _, job := range a.response.GetJobs() {
		if _, err := c.queues.Ack(c.Context(), &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
			c.Errorf("a job that was handed out: %v", err)
		}
	}
}

// expectForgotten fails the test if the service still keeps requests.
func (c *twoShardPoll) expectForgotten() {
	c.Helper()
	requests := c.queues.router.Node.(interface{ LockedRequests() int })
	if kept := requests.LockedRequests(); kept > 0 {
		c.Errorf("%d requests are kept", kept)
	}
}

// TestRepeatWhileGrantsCross: a repeat comes while the first attempt has some jobs and others are
// in flight. It gets the jobs that the first attempt keeps, and none that it releases.
func TestRepeatWhileGrantsCross(t *testing.T) {
	for wait, name := range map[time.Duration]string{0: "at once", time.Minute: "with a wait"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := &belfryv1.ReserveRequest{MaxJobs: 3, RequestId: "r-1"}
				c := startParkedPoll(t.Context(), t, 100*time.Millisecond, req)
				time.Sleep(50 * time.Millisecond)
				req.Wait = durationpb.New(wait)
				second := c.repeat(t.Context(), req)
				second.wait()
				c.wait()
				if second.err != nil || second.after != 50*time.Millisecond {
					t.Fatalf("after %v: %v", second.after, second.err)
				}
				if diff := cmp.Diff(leasesOf(c.response.GetJobs()), leasesOf(second.response.GetJobs())); diff != "" {
					t.Errorf("the repeat (-first +second):\n%s", diff)
				}
				c.finish(second)
				if diff := cmp.Diff(c.spell("S"), c.remaining()); diff != "" {
					t.Errorf("left were (-want +got):\n%s", diff)
				}
				c.expectForgotten()
			})
		})
	}
}

// TestRepeatEndsTheWait: the caller of the first attempt has most likely gone, although its
// connection is still open. The repeat waits in its place, and the first attempt gets no jobs.
func TestRepeatEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := &belfryv1.ReserveRequest{MaxJobs: 3, RequestId: "r-1"}
		c := startPoll(t.Context(), t, 0, req)
		second := c.repeat(t.Context(), req)
		if c.wait(); c.err != nil || c.after != 0 || len(c.response.GetJobs()) > 0 {
			t.Errorf("the first attempt, after %v: %v, %v", c.after, c.response, c.err)
		}
		c.putTwo(c.fast)
		if second.wait(); second.err != nil || second.after != 0 {
			t.Fatalf("the repeat, after %v: %v", second.after, second.err)
		}
		if diff := cmp.Diff(c.spell("QQ"), c.names(second.response.GetJobs())); diff != "" {
			t.Errorf("the repeat was answered (-want +got):\n%s", diff)
		}
		c.finish(second)
		c.expectForgotten()
	})
}

// TestRepeatCollectsWhatIsUnderWay: jobs that are in flight to the first attempt when the repeat
// comes are not released, however late they are. The repeat gets them.
func TestRepeatCollectsWhatIsUnderWay(t *testing.T) {
	const late = 4 * inFlightWaitMax
	synctest.Test(t, func(t *testing.T) {
		req := &belfryv1.ReserveRequest{MaxJobs: 1, RequestId: "r-1"}
		c := startPoll(t.Context(), t, late, req)
		c.putTwo(c.slow)
		second := c.repeat(t.Context(), req)
		if second.wait(); second.err != nil || second.after != late {
			t.Fatalf("the repeat, after %v: %v", second.after, second.err)
		}
		if diff := cmp.Diff(c.spell("S"), c.names(second.response.GetJobs())); diff != "" {
			t.Errorf("the repeat was answered (-want +got):\n%s", diff)
		}
		c.finish(second)
		if diff := cmp.Diff(c.spell("S"), c.remaining()); diff != "" {
			t.Errorf("left were (-want +got):\n%s", diff)
		}
	})
}

// TestRepeatWaitsForTheAttemptBeforeWithinBounds: the first attempt cannot end, because a shard
// does not answer. A repeat returns UNKNOWN_OUTCOME after a while, or when a newer repeat comes,
// also if the caller of the first attempt has gone.
func TestRepeatWaitsForTheAttemptBeforeWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		name        string
		wait, after time.Duration
		leave       bool // the caller leaves after a second
		newer       bool // another repeat comes after a second
	}{
		{name: "no wait", after: attemptWaitMin},
		{name: "a wait", wait: 20 * time.Second, after: 20 * time.Second},
		{name: "the caller goes", wait: time.Minute, after: time.Second, leave: true},
		{name: "a newer one", wait: time.Minute, after: time.Second, newer: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				req := &belfryv1.ReserveRequest{RequestId: "r-1"}
				first, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				c := startPoll(first, t, outcomeTimeMax, req)
				req.Wait = durationpb.New(tt.wait)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				giveUp()
				start := time.Now()
				second, last := c.repeat(ctx, req), c.attempt
				if tt.leave || tt.newer {
					time.Sleep(time.Second)
				}
				if tt.leave {
					leave()
				}
				if tt.newer {
					last = c.repeat(t.Context(), req)
				}
				second.wait()
				if f := fault.Of(second.err); f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME || time.Since(start) != tt.after {
					t.Errorf("after %v: %v", time.Since(start), second.err)
				}
				c.wait()
				synctest.Wait() // the newest attempt runs
				c.putTwo(c.fast)
				if last.wait(); tt.newer && (last.err != nil || len(last.response.GetJobs()) != 1) {
					t.Errorf("the newest got %v, %v", last.response, last.err)
				}
				if err := c.queues.Wait(t.Context()); err != nil { // for the slow shard
					t.Error(err)
				}
				c.expectForgotten()
			})
		})
	}
}

// TestRepeatWithOtherContentIsRefused: all shards refuse it, and no other call loses a job by it.
func TestRepeatWithOtherContentIsRefused(t *testing.T) {
	n := backendtest.NewNode(3)
	q := newService(t, n)
	x, y := n.QueueIn(0, "x"), n.QueueIn(1, "y")
	for name, queues := range map[string][]string{
		"one shard": {x}, "the first of two": {x, y}, "the second of two": {y, x},
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				q.mustPut(t, &belfryv1.PutRequest{Queue: x})
			}
			first, err := q.Reserve(t.Context(), &belfryv1.ReserveRequest{Queues: queues, MaxJobs: 4, RequestId: name})
			if err != nil || len(first.GetJobs()) != 4 {
				t.Fatalf("%v, %v", first, err)
			}
			for _, other := range []*belfryv1.ReserveRequest{
				{MaxJobs: 1},
				{MaxJobs: 5},
				{MaxJobs: 4, Ttr: durationpb.New(time.Minute)},
			} {
				other.Queues, other.RequestId = queues, name
				if again, err := q.Reserve(t.Context(), other); fault.Of(err).Reason != belfryv1.Reason_REASON_INVALID {
					t.Errorf("%v: %v, %v", other, again, err)
				}
			}
			for _, job := range first.GetJobs() {
				if _, err := q.Ack(t.Context(), &belfryv1.AckRequest{Lease: job.GetLease()}); err != nil {
					t.Errorf("a job of the first call: %v", err)
				}
			}
		})
	}
}
