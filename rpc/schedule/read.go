package schedule

import (
	"cmp"
	"context"
	"encoding/base64"
	"slices"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// GetSchedule implements belfryv1connect.ScheduleServiceHandler. It shows the body of the jobs, so it
// takes what Get takes.
func (s *Service) GetSchedule(ctx context.Context,
	req *belfryv1.GetScheduleRequest) (*belfryv1.GetScheduleResponse, error) {
	c := s.onQueue(ctx, tokens.Consume, req.GetQueue())
	queue, name := c.Queue("queue", req.GetQueue()), checkName(c, "name", req.GetName())
	if c.Err != nil {
		return nil, c.Err
	}
	held, witness, err := s.read(ctx, shardcall.Reader{Router: s.router, Stale: req.GetStale()}, queue, name)
	if err != nil {
		return nil, err
	}
	return &belfryv1.GetScheduleResponse{Schedule: s.wireSchedule(&held), Witness: wire.Witness(witness),
		Stale: req.GetStale()}, nil
}

// ListSchedules implements belfryv1connect.ScheduleServiceHandler. It merges the pages of the queue's
// shards by name.
func (s *Service) ListSchedules(ctx context.Context,
	req *belfryv1.ListSchedulesRequest) (*belfryv1.ListSchedulesResponse, error) {
	c := s.onQueue(ctx, tokens.View, req.GetQueue())
	query := fsm.SchedulesQuery{
		Queue: c.Queue("queue", req.GetQueue()), Prefix: req.GetPrefix(), Max: c.Page("pageSize", req.GetPageSize()),
	}
	if len(query.Prefix) > nameBytesMax {
		c.Fail(fault.TooLarge("prefix", len(query.Prefix), nameBytesMax))
	}
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	query.After = string(after)
	if err != nil || len(after) > nameBytesMax || len(after) > 0 && nameFlaw(query.After) != "" {
		c.Fail(fault.Invalid("pageToken",
			"not a token of this list: pass on nextPageToken and keep the other fields as they were"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	from := shardcall.Reader{Router: s.router, Stale: req.GetStale()}
	if err := from.Learn(ctx, query.Queue); err != nil {
		return nil, err
	}
	readings, witnesses, err := from.ReadAll(ctx, s.router.Shards(query.Queue), func(int) fsm.Query { return &query })
	if err != nil {
		return nil, err
	}
	var all []fsm.Schedule
	more := false
	for i := range readings {
		all, more = append(all, readings[i].Schedules...), more || readings[i].More
	}
	slices.SortFunc(all, func(a, b fsm.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	out := &belfryv1.ListSchedulesResponse{Witnesses: witnesses, Stale: req.GetStale()}
	for i := range all[:min(len(all), query.Max)] {
		v := s.wireSchedule(&all[i])
		v.Job.Headers, v.Job.Body, v.Job.Key = nil, nil, "" // what jobs say takes another scope
		out.Schedules = append(out.Schedules, v)
	}
	if n := len(out.GetSchedules()); n > 0 && (more || len(all) > n) {
		out.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(out.GetSchedules()[n-1].GetName()))
	}
	return out, nil
}
