package rpc

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// List implements QueueService. It merges the pages of the queue's shards in due order. The page
// token says how far each shard was read.
func (s *queueService) List(ctx context.Context, req *belfryv1.ListRequest) (*belfryv1.ListResponse, error) {
	c := s.checker(ctx, tokens.Consume)
	query := fsm.ListQuery{Queue: c.queue("queue", req.GetQueue()), State: fsm.Delayed, Max: c.page("pageSize", req.GetPageSize())}
	if req.GetState() != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		held, ok := wire.HeldState(req.GetState())
		if !ok {
			c.fail(fault.Invalid("state", "want one of DELAYED, READY, RESERVED, DEAD, not %s", trimState(req.GetState())))
		}
		query.State = held
	}
	query.DueAfter = c.listTime("dueAfter", req.GetDueAfter())
	query.DueBefore = c.listTime("dueBefore", req.GetDueBefore())
	from := reader{s.router, req.GetStale()}
	if c.err == nil {
		if err := from.learn(ctx, query.Queue); err != nil {
			return nil, err
		}
	}
	shards := s.shards(query.Queue)
	cursors := c.cursors("pageToken", req.GetPageToken(), &query, len(shards))
	if c.err != nil {
		return nil, c.err
	}
	readings, witnesses, err := from.readAll(ctx, shards, func(i int) fsm.Query {
		page := query
		page.After = cursors[i]
		return &page
	})
	if err != nil {
		return nil, err
	}
	out := &belfryv1.ListResponse{Witnesses: witnesses, Stale: req.GetStale(), AsOf: asOf(readings...)}
	jobs, more := mergePages(readings, cursors, query.Max)
	out.Jobs = wire.AppendJobs([]*belfryv1.Job{}, jobs, readings...)
	if more {
		out.NextPageToken = formatCursors(&query, cursors)
	}
	return out, nil
}

// trimState returns a state's name without prefix.
func trimState(s belfryv1.JobState) string {
	return string(appendEnum(nil, s.Descriptor(), s.Number()))
}

// listTime converts a time bound of a list. An unset bound is 0, which is no bound. A time beyond
// the range of fsm.Time is fsm.TimeMax.
func (c *checker) listTime(field string, t *timestamppb.Timestamp) fsm.Time {
	switch {
	case t == nil:
		return 0
	case t.CheckValid() != nil:
		c.fail(fault.Invalid(field, "not a valid time"))
		return 0
	case t.GetSeconds() > math.MaxInt64/1_000_000_000-1:
		return fsm.TimeMax
	default:
		return pastTime(t)
	}
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

// cursorVersion is the first byte of a page token.
const cursorVersion = 1

// cursors reads from a page token how far each shard was read. Without a token the list starts at
// the first job.
func (c *checker) cursors(field, token string, query *fsm.ListQuery, shards int) []fsm.Cursor {
	cursors := make([]fsm.Cursor, shards)
	if token == "" {
		return cursors
	}
	flawed := func() []fsm.Cursor {
		c.fail(fault.Invalid(field, "not a token of this list: pass on nextPageToken and keep the other fields as they were"))
		return cursors
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != 1+crc32.Size+16*shards || b[0] != cursorVersion {
		return flawed()
	}
	if binary.LittleEndian.Uint32(b[1:]) != listSum(query, b[1+crc32.Size:]) {
		return flawed()
	}
	rest := b[1+crc32.Size:]
	for i := range cursors {
		cursors[i] = fsm.Cursor{Due: fsm.Time(binary.LittleEndian.Uint64(rest)), Serial: binary.LittleEndian.Uint64(rest[8:])}
		rest = rest[16:]
	}
	return cursors
}

// formatCursors returns a page token: version, checksum, and due time and serial for each shard.
func formatCursors(query *fsm.ListQuery, cursors []fsm.Cursor) string {
	var places []byte
	for _, cursor := range cursors {
		places = binary.LittleEndian.AppendUint64(places, uint64(cursor.Due))
		places = binary.LittleEndian.AppendUint64(places, cursor.Serial)
	}
	b := binary.LittleEndian.AppendUint32([]byte{cursorVersion}, listSum(query, places))
	return base64.RawURLEncoding.EncodeToString(append(b, places...))
}

// listSum returns a checksum of a list's query and places. It detects a token of another list.
func listSum(query *fsm.ListQuery, places []byte) uint32 {
	b := append([]byte(query.Queue), 0, byte(query.State))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueBefore))
	return crc32.Checksum(append(b, places...), crc32.MakeTable(crc32.Castagnoli))
}

// ListQueues implements AdminService.
func (s *adminService) ListQueues(ctx context.Context, req *belfryv1.ListQueuesRequest) (*belfryv1.ListQueuesResponse, error) {
	c := s.checker(ctx, tokens.View)
	most := c.page("pageSize", req.GetPageSize())
	if len(req.GetPrefix()) > s.limits.QueueBytesMax {
		c.fail(fault.TooLarge("prefix", len(req.GetPrefix()), s.limits.QueueBytesMax))
	}
	after := c.queueToken("pageToken", req.GetPageToken())
	if c.err != nil {
		return nil, c.err
	}
	all := make([]uint32, s.node.ShardCount())
	for i := range all {
		all[i] = uint32(i)
	}
	out := &belfryv1.ListQueuesResponse{Stale: req.GetStale()}
	var due fsm.Due
	for _, names := range c.permissions.NamesUnder(req.GetPrefix()) {
		query := &fsm.QueuesQuery{Prefix: names.Prefix, After: after, Max: most + 1 - len(out.Queues)}
		if names.One {
			query.Max = 1 // the queue comes first, if it exists
		}
		readings, _, err := reader{s.router, req.GetStale()}.readAll(ctx, all, func(int) fsm.Query { return query })
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

// queueToken reads a page token of ListQueues: the last name of the previous page.
func (c *checker) queueToken(field, token string) string {
	name, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || token != "" && queueNameFlaw(string(name), c.limits.QueueBytesMax) != nil {
		c.fail(fault.Invalid(field, "not a token of this list: pass on nextPageToken and keep the other fields as they were"))
	}
	return string(name)
}
