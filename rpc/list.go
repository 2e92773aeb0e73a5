package rpc

import (
	"cmp"
	"context"
	"encoding/base64"
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

// List implements QueueService. It merges the pages of the queue's shards in due order. The page
// token says how far each shard was read.
func (s *queueService) List(ctx context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	c := s.checker(ctx, tokens.Consume)
	query := fsm.ListQuery{Queue: c.Queue("queue", req.GetQueue()), State: fsm.Delayed, Max: c.Page("pageSize", req.GetPageSize())}
	if req.GetState() != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		held, ok := wire.HeldState(req.GetState())
		if !ok {
			c.Fail(fault.Invalid("state", "want one of DELAYED, READY, RESERVED, DEAD, not %s", codec.QuotedEnum(req.GetState())))
		}
		query.State = held
	}
	query.DueAfter = c.ListTime("dueAfter", req.GetDueAfter())
	query.DueBefore = c.ListTime("dueBefore", req.GetDueBefore())
	from := shardcall.Reader{Router: s.Router, Stale: req.GetStale()}
	if c.Err == nil {
		if err := from.Learn(ctx, query.Queue); err != nil {
			return nil, err
		}
	}
	shards := s.Shards(query.Queue)
	cursors := c.Cursors("pageToken", req.GetPageToken(), &query, len(shards))
	if c.Err != nil {
		return nil, c.Err
	}
	readings, witnesses, err := from.ReadAll(ctx, shards, func(i int) fsm.Query {
		page := query
		page.After = cursors[i]
		return &page
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ListResponse{Witnesses: witnesses, Stale: req.GetStale(), AsOf: shardcall.AsOf(readings...)}
	jobs, more := mergePages(readings, cursors, query.Max)
	out.Jobs = wire.AppendJobs([]*belfryv1.Job{}, jobs, readings...)
	if more {
		out.NextPageToken = check.PageToken(&query, cursors)
	}
	return out, nil
}

// mergePages returns the first most jobs of all pages in due order, and moves the cursors behind
// them. more is set if there are further jobs.
func mergePages(pages []fsm.Reading, cursors []fsm.Cursor, most int) (jobs []fsm.Job, more bool) {
	for len(jobs) < most {
		next := -1
		for i := range pages {
			if len(pages[i].Jobs) == 0 {
				continue
			}
			if next < 0 || pages[i].Jobs[0].Due < pages[next].Jobs[0].Due {
				next = i
			}
		}
		if next < 0 {
			break
		}
		job := pages[next].Jobs[0]
		jobs = append(jobs, job)
		cursors[next] = fsm.Cursor{Due: job.Due, Serial: job.Serial}
		pages[next].Jobs = pages[next].Jobs[1:]
	}
	return jobs, slices.ContainsFunc(pages, func(p fsm.Reading) bool { return p.More || len(p.Jobs) > 0 })
}

// ListQueues implements AdminService.
func (s *adminService) ListQueues(ctx context.Context, req *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	c := s.checker(ctx, tokens.View)
	most := c.Page("pageSize", req.GetPageSize())
	if len(req.GetPrefix()) > s.limits.QueueBytesMax {
		c.Fail(fault.TooLarge("prefix", len(req.GetPrefix()), s.limits.QueueBytesMax))
	}
	after := c.QueueToken("pageToken", req.GetPageToken())
	if c.Err != nil {
		return nil, c.Err
	}
	all := make([]uint32, s.Node.ShardCount())
	for i := range all {
		all[i] = uint32(i)
	}
	out := &belfryv1.ListQueuesResponse{Stale: req.GetStale()}
	var due fsm.Due
	for _, names := range c.Permissions.NamesUnder(req.GetPrefix()) {
		query := &fsm.QueuesQuery{Prefix: names.Prefix, After: after, Max: most + 1 - len(out.Queues)}
		if names.One {
			query.Max = 1 // the queue comes first, if it exists
		}
		readings, _, err := shardcall.Reader{Router: s.Router, Stale: req.GetStale()}.ReadAll(ctx, all, func(int) fsm.Query { return query })
		if err != nil {
			return nil, err
		}
		parts := queueParts(readings)
		slices.SortStableFunc(parts, func(a, b queuePart) int { return cmp.Compare(a.Name, b.Name) })
		for len(parts) > 0 && (!names.One || parts[0].Name == names.Prefix) {
			n := 1
			for n < len(parts) && parts[n].Name == parts[0].Name {
				n++
			}
			if len(out.Queues) == most {
				out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(out.Queues[most-1].GetName()))
				out.Due = wire.DueHistogram(&due)
				return out, nil
			}
			out.Queues = append(out.Queues, s.listed(parts[:n], &due))
			parts = parts[n:]
		}
	}
	out.Due = wire.DueHistogram(&due)
	return out, nil
}

// listed sums up the parts of a queue for a list. It adds the due times of the queue's jobs to all,
// which has those of all queues in the list.
func (s *adminService) listed(parts []queuePart, all *fsm.Due) *belfryv1.Queue {
	var due fsm.Due
	for i := range parts {
		wire.AddDueSums(&due, &parts[i].Due)
		wire.AddDue(all, &parts[i].Due)
	}
	out := s.wireQueue(parts)
	out.Due = wire.DueSums(&due)
	return out
}
