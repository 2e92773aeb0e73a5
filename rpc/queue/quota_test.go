package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// usedUp is the answer of a leader if the namespace has used up a limit.
func usedUp(l node.Limit) error {
	return fmt.Errorf("shard: %w", &node.QuotaError{
		Namespace: "a", Limit: l, Max: 4, Used: 4, ShardMax: 4, Wait: time.Second,
	})
}

// TestQuotaEndsNoPollThatWaits: a namespace whose quota of jobs in flight is used up counts as
// empty for now. Only a poll that does not wait, and that all shards refuse for the quota, gets the
// error.
func TestQuotaEndsNoPollThatWaits(t *testing.T) {
	const quota, noLeader = belfryv1.Reason_REASON_QUOTA, belfryv1.Reason_REASON_NO_LEADER
	for _, tt := range []struct {
		name string
		wait time.Duration
		// full are the shards whose quota is used up for the first minute, dead those that never answer.
		full, dead  []uint32
		queues, now string // the queues of the poll, and those with jobs
		want        string // the queue whose job the poll gets
		reason      belfryv1.Reason
		least, most time.Duration // the duration of the poll
	}{
		{name: "one of two, the other has a job", full: []uint32{0}, queues: "QS", now: "QS", want: "S"},
		{name: "one of two, the other has none", full: []uint32{0}, queues: "QS", now: "Q"},
		{name: "both", full: []uint32{0, 1}, queues: "QS", now: "QS", reason: quota},
		{name: "one, the other is dead", full: []uint32{0}, dead: []uint32{1}, queues: "QS", now: "QS", reason: noLeader},
		{name: "the only one", full: []uint32{0}, queues: "Q", now: "Q", reason: quota},
		{
			name: "both for a minute", wait: time.Hour, full: []uint32{0, 1}, queues: "QS", now: "Q", want: "Q",
			least: time.Minute, most: time.Minute + againMax,
		},
		{
			name: "one for a minute, and the other is dead", wait: time.Hour, full: []uint32{0}, dead: []uint32{1},
			queues: "QS", now: "Q", want: "Q", least: time.Minute, most: time.Minute + againMax,
		},
		{
			name: "both for longer than the wait", wait: time.Minute / 2, full: []uint32{0, 1}, queues: "QS", now: "QS",
			least: time.Minute / 2, most: time.Minute / 2,
		},
		{
			name: "the only one for longer than the wait", wait: time.Minute / 2, full: []uint32{0}, queues: "Q", now: "Q",
			most: time.Minute / 2,
		},
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
					n.rule = func(_ context.Context, shard uint32, _ *fsm.Request, _ node.Wait) (*node.Reply, error) {
						switch {
						case slices.Contains(tt.dead, shard):
							return nil, node.ErrNoLeader
						case slices.Contains(tt.full, shard) && time.Since(start) < time.Minute:
							return nil, usedUp(node.LeasesLimit)
						}
						return nil, nil
					}
					a := c.repeat(t.Context(), &belfryv1.ReserveRequest{
						Queues: c.spell(tt.queues), RequestId: id, Wait: durationpb.New(tt.wait),
					})
					<-a.ended
					if took := time.Since(start); took < tt.least || took > tt.most {
						t.Errorf("after %v", took)
					}
					if a.err != nil && fault.Of(a.err).Reason != tt.reason || a.err == nil && tt.reason != 0 {
						t.Errorf("it ended with %v, want %v", a.err, tt.reason)
					}
					if diff := cmp.Diff(c.spell(tt.want), c.names(a.response.GetJobs())); diff != "" {
						t.Errorf("it was answered (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// doingNode answers Do as its rule says, or like the embedded node if the rule has no answer.
type doingNode struct {
	*backendtest.Node
	rule func(shard uint32, req *fsm.Request) error
}

func (n *doingNode) Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	if err := n.rule(shard, req); err != nil {
		return node.Reply{}, err
	}
	return n.Node.Do(ctx, shard, req)
}

// TestPutBeyondAQuotaIsTriedOnce: a put that may go to any partition is not offered to another one
// if its namespace has used up its quota.
func TestPutBeyondAQuotaIsTriedOnce(t *testing.T) {
	for _, l := range []node.Limit{node.JobsLimit, node.BytesLimit, node.PutRate} {
		t.Run(l.String(), func(t *testing.T) {
			n := &doingNode{Node: backendtest.NewNode(3)}
			q := newService(t, n)
			if _, err := q.router.Catalog.CreateQueue(t.Context(), "a/wide", 3, fsm.Settings{}); err != nil {
				t.Fatal(err)
			}
			asked := 0
			n.rule = func(uint32, *fsm.Request) error {
				asked++
				return usedUp(l)
			}
			_, err := q.Put(t.Context(), &belfryv1.PutRequest{Queue: "a/wide"})
			want := fault.Of(usedUp(l)).Reason
			if f := fault.Of(err); err == nil || f.Reason != want || f.RetryAfter != time.Second || asked != 1 {
				t.Errorf("after %d tries %v, want %v after one", asked, err, want)
			}
		})
	}
}

// TestPartsOfABatchAreBounded: a batch over many namespaces has only a few requests in flight at a
// time. Each answer is at the position of its put.
func TestPartsOfABatchAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 1000
		var now, most, all atomic.Int64
		n := &doingNode{Node: backendtest.NewNode(3), rule: func(uint32, *fsm.Request) error {
			all.Add(1)
			for under := now.Add(1); ; {
				if was := most.Load(); under <= was || most.CompareAndSwap(was, under) {
					break
				}
			}
			<-time.After(time.Millisecond) // as many requests as may be in flight have begun
			now.Add(-1)
			return nil
		}}
		q := newService(t, n)
		req := &belfryv1.PutBatchRequest{RequestId: "r"}
		for i := range jobs {
			req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: "n" + strconv.Itoa(i) + "/q", Id: "job" + strconv.Itoa(i)})
		}
		res, err := q.PutBatch(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res.GetResults() {
			if r.GetPut().GetId() != "job"+strconv.Itoa(i) || !r.GetPut().GetCreated() {
				t.Errorf("entry %d: %v", i, r)
			}
		}
		if all.Load() != jobs || most.Load() != shardcall.PartsAtOnce {
			t.Errorf("%d requests, of which %d at a time; want %d and %d", all.Load(), most.Load(), jobs, shardcall.PartsAtOnce)
		}
	})
}

// TestRepeatFindsWhatWasPutBeforeTheQuotaWasSpent: a shard repeats its answer to earlier puts even
// if the quota is used up. So every part of a repeat must be sent to its shard.
func TestRepeatFindsWhatWasPutBeforeTheQuotaWasSpent(t *testing.T) {
	n := &doingNode{Node: backendtest.NewNode(1)}
	q := newService(t, n)
	q.router.PartsAtOnce = 1 // parts are sent in the order of the call
	put := map[string]bool{}
	n.rule = func(_ uint32, req *fsm.Request) error {
		queue := req.Commands[0].(*fsm.Put).Queue
		if !put[req.ID] && (queue == "a/0" || len(put) == 3) {
			return usedUp(node.JobsLimit)
		}
		put[req.ID] = true
		return nil
	}
	req := &belfryv1.PutBatchRequest{RequestId: "r"}
	for i := range 5 {
		req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: "a/" + strconv.Itoa(i)})
	}
	var ids [2][]string
	for attempt := range ids {
		res, err := q.PutBatch(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res.GetResults() {
			id := r.GetPut().GetId()
			if room := i >= 1 && i <= 3; room != (id != "") || !room &&
				r.GetError().GetReason() != belfryv1.Reason_REASON_QUOTA {
				t.Errorf("attempt %d, entry %d: %v", attempt, i, r)
			}
			ids[attempt] = append(ids[attempt], id)
		}
	}
	if diff := cmp.Diff(ids[0], ids[1]); diff != "" {
		t.Errorf("the repeat put other jobs (-first +repeat):\n%s", diff)
	}
}

// TestAPanicInAPartIsTheCalls: a panic in a part of a batch is a panic of the call, in whichever
// goroutine it happens.
func TestAPanicInAPartIsTheCalls(t *testing.T) {
	var all atomic.Int64
	n := &doingNode{Node: backendtest.NewNode(1), rule: func(_ uint32, req *fsm.Request) error {
		if all.Add(1); req.Commands[0].(*fsm.Put).Queue == "n7/q" {
			panic("broken")
		}
		return nil
	}}
	q := newService(t, n)
	req := &belfryv1.PutBatchRequest{}
	for i := range 100 {
		req.Jobs = append(req.Jobs, &belfryv1.PutRequest{Queue: "n" + strconv.Itoa(i) + "/q"})
	}
	defer func() {
		if p := recover(); p != "broken" {
			t.Errorf("the call ended with %v", p)
		}
	}()
	res, err := q.PutBatch(t.Context(), req)
	t.Errorf("the call ended with %v, %v", res, err)
}
