package queue

import (
	"context"
	"slices"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// List implements belfryv1connect.QueueServiceHandler. It merges the pages of the queue's shards in
// due order. The page token says how far each shard was read.
func (s *Service) List(ctx context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	c := s.rules.Request(ctx, tokens.Consume)
	query := fsm.SearchQuery{ListQuery: fsm.ListQuery{
		Queue: c.Queue("queue", req.GetQueue()), State: fsm.Delayed, Max: c.Page("pageSize", req.GetPageSize()),
	}, Match: c.Match(req.GetIdPrefix(), req.GetText(), req.GetCause(), req.GetKey()), Scan: scanAtOnce}
	if req.GetState() != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		held, ok := wire.HeldState(req.GetState())
		if !ok {
			c.Fail(fault.Invalid("state", "want one of DELAYED, READY, RESERVED, DEAD, not %s",
				codec.QuotedEnum(req.GetState())))
		}
		query.State = held
	}
	query.DueAfter = c.ListTime("dueAfter", req.GetDueAfter())
	query.DueBefore = c.ListTime("dueBefore", req.GetDueBefore())
	from := shardcall.Reader{Router: s.router, Stale: req.GetStale()}
	if c.Err == nil {
		if err := from.Learn(ctx, query.Queue); err != nil {
			return nil, err
		}
	}
	shards := s.router.Shards(query.Queue)
	place := c.Place("pageToken", req.GetPageToken(), &query, len(shards))
	if c.Err != nil {
		return nil, c.Err
	}
	if query.Match != (fsm.Match{}) {
		return s.search(ctx, from, shards, &query, place)
	}
	readings, witnesses, err := from.ReadAll(ctx, shards, func(i int) fsm.Query {
		page := query.ListQuery
		page.After = place.Cursors[i]
		return &page
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ListResponse{Witnesses: witnesses, Stale: req.GetStale(), AsOf: shardcall.AsOf(readings...)}
	jobs, more := mergePages(readings, place.Cursors, query.Max)
	out.Jobs = wire.AppendJobs([]*belfryv1.Job{}, jobs, readings...)
	if more {
		out.NextPageToken = check.PageToken(&query, place)
	}
	return out, nil
}

// mergePages returns the first most jobs of all pages in the order of lists, and moves the cursors behind
// them. more is set if there are further jobs.
func mergePages(pages []fsm.Reading, cursors []fsm.Cursor, most int) (jobs []fsm.Job, more bool) {
	for len(jobs) < most {
		next := -1
		for i := range pages {
			if len(pages[i].Jobs) == 0 {
				continue
			}
			if next < 0 || pages[i].Jobs[0].ListPlace().Due < pages[next].Jobs[0].ListPlace().Due {
				next = i
			}
		}
		if next < 0 {
			break
		}
		job := pages[next].Jobs[0]
		jobs = append(jobs, job)
		cursors[next] = job.ListPlace()
		pages[next].Jobs = pages[next].Jobs[1:]
	}
	return jobs, slices.ContainsFunc(pages, func(p fsm.Reading) bool { return p.More || len(p.Jobs) > 0 })
}
