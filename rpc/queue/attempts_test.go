package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// TestAttemptLastsUntilLateGrantsAreReleased: the answer does not wait for the release of late
// grants. A repeat and the end of the server do.
func TestAttemptLastsUntilLateGrantsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		var requests node.RequestMutex
		begin := func() (func(), error) {
			_, end, err := requests.Lock(t.Context(), "r-1", time.Second)
			return end, err
		}
		end, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		a.finish(func() { <-done }, end)
		start := time.Now()
		if _, err := begin(); err == nil || time.Since(start) != time.Second {
			t.Errorf("after %v a repeat began: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the server ended: %v", err)
		}
		close(done)
		if err := a.wait(t.Context()); err != nil {
			t.Error(err)
		}
		end, err = begin()
		if err != nil {
			t.Fatal(err)
		}
		a.finish(nil, end)
		if kept := requests.Len(); kept > 0 {
			t.Errorf("%d requests are kept", kept)
		}
	})
}

// TestOnlyTheSamePollIsItsRepeat: a poll with the request id of another poll, but other content,
// does not end the wait of that poll.
func TestOnlyTheSamePollIsItsRepeat(t *testing.T) {
	for name, change := range map[string]func(c *twoShardPoll, req *belfryv1.ReserveRequest){
		"queues":  func(c *twoShardPoll, req *belfryv1.ReserveRequest) { req.Queues = []string{c.fast, c.slow} },
		"maxJobs": func(_ *twoShardPoll, req *belfryv1.ReserveRequest) { req.MaxJobs = 2 },
		"ttr":     func(_ *twoShardPoll, req *belfryv1.ReserveRequest) { req.Ttr = durationpb.New(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startPoll(t.Context(), t, 0, &belfryv1.ReserveRequest{MaxJobs: 1, RequestId: "r-1"})
				other := &belfryv1.ReserveRequest{MaxJobs: 1, RequestId: "r-1", Queues: []string{c.slow, c.fast}}
				change(c, other)
				if res, err := c.queues.Reserve(t.Context(), other); err != nil || len(res.GetJobs()) != 0 {
					t.Errorf("the other got %v, %v", res, err)
				}
				synctest.Wait()
				select {
				case <-c.ended:
					t.Errorf("it ended with %v, %v", c.response, c.err)
				default:
				}
				c.putTwo(c.fast)
				if c.wait(); c.err != nil || len(c.response.GetJobs()) != 1 {
					t.Errorf("it got %v, %v", c.response, c.err)
				}
			})
		})
	}
}
