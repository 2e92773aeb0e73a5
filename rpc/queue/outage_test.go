package queue

import (
	"context"
	"fmt"
	"sync/atomic"
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
)

// failingNode answers Reserve as its rule says, or like the embedded node if the rule has no
// answer.
type failingNode struct {
	*backendtest.Node
	rule func(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (*node.Reply, error)
}

func (n *failingNode) Reserve(ctx context.Context, shard uint32, req *fsm.Request, wait node.Wait) (node.Reply, error) {
	switch reply, err := n.rule(ctx, shard, req, wait); {
	case err != nil:
		return node.Reply{}, err
	case reply != nil:
		return *reply, nil
	}
	return n.Node.Reserve(ctx, shard, req, wait)
}

// newOutage returns a service over a failing node with two shards.
func newOutage(t *testing.T, n *failingNode) *twoShardPoll {
	t.Helper()
	return &twoShardPoll{T: t, queues: newService(t, n), slow: n.QueueIn(1, "slow"), fast: n.QueueIn(0, "quick")}
}

// TestUnknownOutcomeOfOneShardIsThePolls: if one shard refuses and the outcome of another is
// unknown, the outcome of the poll is unknown.
func TestUnknownOutcomeOfOneShardIsThePolls(t *testing.T) {
	for unknown := range uint32(2) {
		t.Run(fmt.Sprintf("shard %d", unknown), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newOutage(t, &failingNode{backendtest.NewNode(2),
					func(_ context.Context, shard uint32, _ *fsm.Request, wait node.Wait) (*node.Reply, error) {
						if wait.For == 0 {
							return nil, nil
						}
						<-time.After(time.Duration(shard) * time.Millisecond)
						if shard == unknown {
							return nil, node.ErrUnknownOutcome
						}
						return nil, node.ErrTooLarge
					}})
				_, err := c.queues.Reserve(t.Context(), &belfryv1.ReserveRequest{
					Queues: []string{c.slow, c.fast}, Wait: durationpb.New(time.Minute),
				})
				if f := fault.Of(err); f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME || *f.Shard != unknown {
					t.Errorf("the poll ended with %v", err)
				}
			})
		})
	}
}

// TestDrainTellsWhatIsUnderWay: if the reservation of a poll is being logged when the server begins
// to stop, the answer is the outcome of that reservation, never an empty answer.
func TestDrainTellsWhatIsUnderWay(t *testing.T) {
	for _, shards := range []int{1, 2} {
		for _, wait := range []time.Duration{0, time.Minute} {
			for _, outcome := range []error{nil, node.ErrUnknownOutcome, node.ErrTooLarge} {
				t.Run(fmt.Sprintf("%d shards, %v, %v", shards, wait, outcome), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { drainUnderWay(t, shards, wait, outcome) })
				})
			}
		}
	}
}

// drainUnderWay drains while a reservation in shard 0 is in flight. The reservation has an outcome
// a second later.
func drainUnderWay(t *testing.T, shards int, wait time.Duration, outcome error) {
	m := backendtest.NewNode(2)
	c := newOutage(t, &failingNode{m,
		func(ctx context.Context, shard uint32, req *fsm.Request, w node.Wait) (*node.Reply, error) {
			if shard != 0 || w.For != wait {
				return nil, nil
			}
			select {
			case <-ctx.Done():
				return nil, node.ErrUnknownOutcome
			case <-time.After(time.Second):
			}
			if outcome != nil {
				return nil, outcome
			}
			reply, err := m.Reserve(ctx, shard, req, node.Wait{})
			return &reply, err
		}})
	a := c.repeat(t.Context(), &belfryv1.ReserveRequest{
		Queues: []string{c.fast, c.slow}[:shards], Wait: durationpb.New(wait),
	})
	c.putTwo(c.fast)
	c.queues.drain.Start()
	a.wait()
	if outcome == nil && (a.err != nil || len(a.response.GetJobs()) != 1) {
		t.Errorf("the poll got %v, %v", a.response, a.err)
	}
	if want := fault.Of(outcome); outcome != nil && (a.err == nil || fault.Of(a.err).Reason != want.Reason) {
		t.Errorf("the poll got %v, %v, want %v", a.response, a.err, outcome)
	}
}

// TestRecallThatFailsHandsOutNothing: the answer to a repeat is never a part of the jobs that the
// earlier attempt was granted, nor more jobs than it asked for.
func TestRecallThatFailsHandsOutNothing(t *testing.T) {
	for _, draining := range []bool{false, true} {
		t.Run(fmt.Sprintf("draining %v", draining), func(t *testing.T) {
			n := &failingNode{backendtest.NewNode(2),
				func(context.Context, uint32, *fsm.Request, node.Wait) (*node.Reply, error) {
					return nil, nil
				}}
			c := newOutage(t, n)
			c.putTwo(c.fast)
			req := &belfryv1.ReserveRequest{Queues: []string{c.fast, c.slow}, MaxJobs: 2, RequestId: "r-1"}
			first, err := c.queues.Reserve(t.Context(), req)
			if err != nil || len(first.GetJobs()) != 2 {
				t.Fatalf("%v, %v", first, err)
			}
			n.Fail = func(shard uint32) error {
				if shard == 0 {
					return nil
				}
				if draining {
					c.queues.drain.Start()
				}
				return node.ErrUnknownOutcome
			}
			if again, err := c.queues.Reserve(t.Context(), req); err == nil {
				t.Errorf("the repeat got %v", again)
			}
		})
	}
}

// TestShardWithoutLeaderStopsNoOther: consumers of several shards go on with the other shards, and
// return to this one when it serves.
func TestShardWithoutLeaderStopsNoOther(t *testing.T) {
	for _, tt := range []struct {
		name        string
		wait        time.Duration
		dead        func(shard uint32, after time.Duration) bool
		now, later  string // the queues that get a job before the poll, and a minute after its beginning
		want        string // the queue whose job the poll gets
		reason      belfryv1.Reason
		least, most time.Duration // the duration of the poll
	}{
		{name: "a job is there", dead: only(0), now: "S", want: "S"},
		{name: "a job comes", wait: time.Hour, dead: only(0), later: "S", want: "S", least: time.Minute, most: time.Minute},
		{
			name: "it serves again", wait: time.Hour, now: "Q", want: "Q", least: time.Minute, most: time.Minute + againMax,
			dead: func(shard uint32, after time.Duration) bool { return shard == 0 && after < time.Minute },
		},
		{name: "nothing is there", dead: only(0), reason: belfryv1.Reason_REASON_NO_LEADER},
		{
			name: "nothing comes", wait: time.Hour, dead: only(0), reason: belfryv1.Reason_REASON_NO_LEADER, least: time.Hour,
			most: time.Hour,
		},
		{name: "all are dead", wait: time.Hour, dead: every, reason: belfryv1.Reason_REASON_NO_LEADER},
	} {
		for _, id := range []string{"", "r-1"} {
			t.Run(tt.name+id, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := &failingNode{Node: backendtest.NewNode(2)}
					c := newOutage(t, n)
					c.queues.rules.Limits.WaitMax = time.Hour
					for _, queue := range c.spell(tt.now) {
						c.putTwo(queue)
					}
					start := time.Now()
					var asked atomic.Int64
					n.rule = func(_ context.Context, shard uint32, _ *fsm.Request, _ node.Wait) (*node.Reply, error) {
						if !tt.dead(shard, time.Since(start)) {
							return nil, nil
						}
						asked.Add(1)
						return nil, node.ErrNoLeader
					}
					n.Fail = func(shard uint32) error { // the rule for queries
						if tt.dead(shard, time.Since(start)) {
							return node.ErrNoLeader
						}
						return nil
					}
					a := c.repeat(t.Context(), &belfryv1.ReserveRequest{
						Queues: []string{c.fast, c.slow}, RequestId: id, Wait: durationpb.New(tt.wait),
					})
					for _, queue := range c.spell(tt.later) {
						time.Sleep(time.Minute)
						c.putTwo(queue)
					}
					<-a.ended
					if took := time.Since(start); took < tt.least || took > tt.most {
						t.Errorf("after %v", took)
					}
					if reason := fault.Of(a.err).Reason; (a.err != nil || tt.want == "") && reason != tt.reason {
						t.Errorf("it ended with %v", a.err)
					}
					if diff := cmp.Diff(c.spell(tt.want), c.names(a.response.GetJobs())); diff != "" {
						t.Errorf("it was answered (-want +got):\n%s", diff)
					}
					if most := 10 + int64(tt.most/againMax); asked.Load() > most {
						t.Errorf("the dead shard was asked %d times, want %d at the most", asked.Load(), most)
					}
				})
			})
		}
	}
}

// every is the rule under which no shard serves.
func every(uint32, time.Duration) bool { return true }

// only returns a rule under which one shard never serves.
func only(dead uint32) func(uint32, time.Duration) bool {
	return func(shard uint32, _ time.Duration) bool { return shard == dead }
}
