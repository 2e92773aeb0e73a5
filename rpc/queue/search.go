package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

const (
	// scanAtOnce is how many jobs a shard looks at in one query: about a millisecond, in which it
	// applies nothing.
	scanAtOnce = 1024
	// scanMax and scanTime bound what one call looks at in each shard.
	scanMax  = 100_000
	scanTime = 50 * time.Millisecond
	// searchesMax bounds the searches that this node makes in one shard at one time. The others wait.
	searchesMax = 2
)

// partsOfPage divides a page among the shards that a search is not through with. A shard without a
// part has its turn on a later page.
func partsOfPage(most int, cursors []fsm.Cursor) (asked []int, jobs func(k int) int) {
	for i := range cursors {
		if cursors[i] != check.Through() && len(asked) < most {
			asked = append(asked, i)
		}
	}
	return asked, func(k int) int {
		if k < most%len(asked) {
			return most/len(asked) + 1
		}
		return most / len(asked)
	}
}

// search is List for jobs that match. It moves the cursors of place to where the shards have come.
func (s *Service) search(ctx context.Context, from shardcall.Reader, shards []uint32, query *fsm.SearchQuery,
	place check.Place) (*belfryv1.ListResponse, error) {
	asked, most := partsOfPage(query.Max, place.Cursors)
	var here []uint32
	for _, i := range asked {
		here = append(here, shards[i])
	}
	readings, witnesses, err := from.AskAll(ctx, here, func(ctx context.Context, k int) (fsm.Reading, node.Witness,
		error) {
		part := *query
		part.After, part.Max = place.Cursors[asked[k]], most(k)
		return s.searchShard(ctx, from, here[k], &part)
	})
	if err != nil {
		return nil, err
	}
	var jobs []fsm.Job
	for k, i := range asked {
		r := &readings[k]
		jobs = append(jobs, r.Jobs...)
		place.Searched += r.Scanned
		if r.Last != (fsm.Cursor{}) {
			place.Cursors[i] = r.Last
		}
		if !r.More {
			place.Cursors[i] = check.Through()
		}
	}
	slices.SortStableFunc(jobs, func(a, b fsm.Job) int { return cmp.Compare(a.ListPlace().Due, b.ListPlace().Due) })
	out := &belfryv1.ListResponse{
		Jobs: wire.AppendJobs([]*belfryv1.Job{}, jobs, readings...), Witnesses: witnesses, Searched: place.Searched,
		Stale: from.Stale, AsOf: shardcall.AsOf(readings...),
	}
	if !place.Done() {
		out.NextPageToken = check.PageToken(query, place)
	}
	return out, nil
}

// searchShard looks at jobs of a shard until enough are found, none are left, or a bound is reached.
func (s *Service) searchShard(ctx context.Context, from shardcall.Reader, shard uint32,
	query *fsm.SearchQuery) (sum fsm.Reading, w node.Witness, err error) {
	select {
	case s.searches[shard] <- struct{}{}:
		defer func() { <-s.searches[shard] }()
	case <-ctx.Done():
		return fsm.Reading{}, node.Witness{}, fault.Of(ctx.Err())
	}
	began, most := s.rules.Now(), query.Max
	for {
		query.Max = most - len(sum.Jobs)
		var r fsm.Reading
		if r, w, err = from.Read(ctx, shard, query); err != nil {
			return fsm.Reading{}, w, err
		}
		jobs, scanned := append(sum.Jobs, r.Jobs...), sum.Scanned+r.Scanned
		if r.Last == (fsm.Cursor{}) {
			r.Last = sum.Last
		}
		sum, sum.Jobs, sum.Scanned = r, jobs, scanned
		query.After = sum.Last
		if !r.More || len(jobs) >= most || scanned >= scanMax || s.rules.Now().Sub(began) >= scanTime {
			return sum, w, nil
		}
	}
}
