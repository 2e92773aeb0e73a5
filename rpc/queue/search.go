package queue

import (
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
	// searchesMax bounds the searches that this node makes at one time. The others wait.
	searchesMax = 2
)

// search is List for jobs that match. It moves the cursors of place behind the last jobs that were
// looked at.
func (s *Service) search(ctx context.Context, from shardcall.Reader, shards []uint32, query *fsm.SearchQuery,
	place check.Place) (*belfryv1.ListResponse, error) {
	select {
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	case <-ctx.Done():
		return nil, fault.Of(ctx.Err())
	}
	readings, witnesses, err := from.AskAll(ctx, shards, func(ctx context.Context, i int) (fsm.Reading, node.Witness,
		error) {
		part := *query
		part.After = place.Cursors[i]
		return s.searchShard(ctx, from, shards[i], &part)
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ListResponse{
		Witnesses: witnesses, Stale: from.Stale, AsOf: shardcall.AsOf(readings...), Searched: place.Searched,
	}
	for i := range readings {
		out.Searched += readings[i].Scanned
	}
	pages := slices.Clone(readings) // mergePages consumes them
	jobs, more := mergePages(pages, place.Cursors, query.Max)
	for i := range pages {
		if len(pages[i].Jobs) == 0 && readings[i].Last != (fsm.Cursor{}) { // all that was found is on this page
			place.Cursors[i] = readings[i].Last
		}
	}
	out.Jobs = wire.AppendJobs([]*belfryv1.Job{}, jobs, readings...)
	if more {
		place.Searched = out.Searched
		out.NextPageToken = check.PageToken(query, place)
	}
	return out, nil
}

// searchShard looks at jobs of a shard until enough are found, none are left, or a bound is reached.
func (s *Service) searchShard(ctx context.Context, from shardcall.Reader, shard uint32,
	query *fsm.SearchQuery) (sum fsm.Reading, w node.Witness, err error) {
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
