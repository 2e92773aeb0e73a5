package many

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"connectrpc.com/connect"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// leases notes what is released. Of each call one job is skipped in the queue "moves"; "deleted" is no
// queue, and one shard of "split" has no leader after seven jobs.
type leases struct {
	mu    sync.Mutex
	asked []string
}

func (l *leases) ReleaseLeases(_ context.Context,
	req *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, fmt.Sprint(req.Queue, " ", req.Max, " ", req.PageToken+req.Client+req.RequestId,
		req.ReservedBefore.AsTime().Minute()))
	res := &belfryv1.ReleaseLeasesResponse{Released: req.Max, NextPageToken: "after:"}
	switch req.Queue {
	case "moves":
		res.Released, res.Skipped = req.Max-1, 1
	case "deleted":
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such queue"))
	case "split":
		f := fault.New(belfryv1.Reason_REASON_UNKNOWN_OUTCOME)
		f.Count = new(uint64(7))
		return nil, f.Wire()
	}
	return res, nil
}

// TestRelease: of each queue what the consumer has there is released, and no more of all together than
// may be.
func TestRelease(t *testing.T) {
	of := &belfryv1.ReleaseLeasesRequest{Client: "w", RequestId: "r", ReservedBefore: at(5)}
	for _, tt := range []struct {
		queues map[string]uint64
		most   uint64
		done   uint64
		asked  map[string]bool
	}{
		{map[string]uint64{"a": 1500, "moves": 3}, 9999, 1502, map[string]bool{
			"a 1000 wr5": true, "a 500 after:wr5": true, "moves 3 wr5": true,
		}},
		{map[string]uint64{"a": 3, "b": 4, "c": 5}, 5, 5, map[string]bool{"a 3 wr5": true, "b 2 wr5": true}},
		{map[string]uint64{"a": 3, "deleted": 4}, 7, 3, map[string]bool{"a 3 wr5": true, "deleted 4 wr5": true}},
	} {
		l := &leases{}
		done, err := Release(t.Context(), l, of, tt.queues, tt.most)
		if err != nil || done != tt.done || len(l.asked) != len(tt.asked) {
			t.Errorf("%v: %d, %v; it asked %q", tt.queues, done, err, l.asked)
		}
		for _, asked := range l.asked {
			if !tt.asked[asked] {
				t.Errorf("%v: it asked %q", tt.queues, asked)
			}
		}
	}
	done, err := Release(t.Context(), &leases{}, of, map[string]uint64{"a": 3, "split": 9}, 100)
	if f, ok := fault.FromConnect(err); !ok || f.Reason != belfryv1.Reason_REASON_UNKNOWN_OUTCOME || done != 10 {
		t.Errorf("with a shard without a leader: %d, %v", done, err)
	}
}
