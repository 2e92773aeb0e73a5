package many

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// leases notes what is released. Of each call one job is skipped in the queue "moves", "few" has three,
// "deleted" is no queue, and one shard of "split" has no leader after seven jobs.
type leases struct{ asked []string }

func (l *leases) ReleaseLeases(_ context.Context,
	req *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	l.asked = append(l.asked, fmt.Sprint(req.Queue, " ", req.Max, " ", req.PageToken+req.Client+req.RequestId,
		req.ReservedBefore.AsTime().Minute()))
	res := &belfryv1.ReleaseLeasesResponse{Released: req.Max, NextPageToken: "after:"}
	switch req.Queue {
	case "moves":
		res.Released, res.Skipped = req.Max-1, 1
	case "few":
		res.Released, res.NextPageToken = min(req.Max, 3), ""
	case "deleted":
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such queue"))
	case "split":
		f := fault.New(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
		f.Count = new(uint64(7))
		return nil, f.Wire()
	}
	return res, nil
}

// TestRelease: the queues are asked one after the other, until so many jobs are released as may be.
func TestRelease(t *testing.T) {
	of := &belfryv1.ReleaseLeasesRequest{Client: "w", RequestId: "r", ReservedBefore: at(5)}
	for _, tt := range []struct {
		queues     []string
		most, done uint64
		asked      []string
	}{
		{[]string{"a"}, 1500, 1500, []string{"a 1000 wr5", "a 500 after:wr5"}},
		{[]string{"few", "a"}, 5, 5, []string{"few 5 wr5", "a 2 wr5"}},
		{[]string{"moves", "a"}, 3, 3, []string{"moves 3 wr5", "a 1 wr5"}},
		{[]string{"deleted", "few"}, 7, 3, []string{"deleted 7 wr5", "few 7 wr5"}},
		{[]string{"few", "split", "a"}, 100, 10, []string{"few 100 wr5", "split 97 wr5"}},
	} {
		l := &leases{}
		done, err := Release(t.Context(), l, of, tt.queues, tt.most)
		f, _ := fault.FromConnect(err)
		split := f != nil && f.Reason == belfryv1.Reason_REASON_UNKNOWN_OUTCOME
		if split != slices.Contains(tt.queues, "split") || !split && err != nil || done != tt.done ||
			!slices.Equal(l.asked, tt.asked) {
			t.Errorf("%v: %d, %v; it asked %q", tt.queues, done, err, l.asked)
		}
	}
}
