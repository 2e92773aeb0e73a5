package admin

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

const (
	// releasedMax bounds the jobs that one ReleaseLeases releases, and heldScanMax those that it looks at.
	releasedMax, heldScanMax = 1000, 100_000
	// heldAtOnce is how many held jobs one query reads.
	heldAtOnce = 1000
	// holdersFormat is the first format in which jobs note who holds them.
	holdersFormat fsm.Format = 3
)

// leaseRelease is a ReleaseLeases in progress.
type leaseRelease struct {
	from          shardcall.Reader
	queue, client string
	// before bounds when the jobs were reserved; 0 is no bound.
	before fsm.Time
	// left is how many jobs may still be released, and unread how many held jobs may still be looked at.
	left, unread int
	done         belfryv1.ReleaseLeasesResponse
}

// ReleaseLeases implements AdminService. It reads the held jobs of one partition after the other, and
// releases those of the consumer under the fences that it read. So a job that was acked or handed out
// again meanwhile is skipped.
func (s *Service) ReleaseLeases(ctx context.Context,
	req *belfryv1.ReleaseLeasesRequest) (*belfryv1.ReleaseLeasesResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	r := &leaseRelease{
		from: shardcall.Reader{Router: s.router}, queue: c.Queue("queue", req.GetQueue()),
		client: c.Consumer("client", req.GetClient()), before: c.ListTime("reservedBefore", req.GetReservedBefore()),
		left: int(c.Count("max", req.GetMax(), releasedMax, releasedMax)), unread: heldScanMax,
	}
	c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	if format := s.cluster.Format(); format < holdersFormat {
		f := fault.New(belfryv1.Reason_REASON_UNIMPLEMENTED)
		f.Message = fmt.Sprintf("who holds a job is noted from format %d on, and the cluster is at format %d: upgrade all "+
			"nodes; until then, leases end by themselves", holdersFormat, format)
		return nil, f
	}
	if err := r.from.Learn(ctx, r.queue); err != nil {
		return nil, err
	}
	switch known, err := s.existsUnrecorded(ctx, r.queue); {
	case err != nil:
		return nil, err
	case !known:
		return nil, fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND)
	}
	shards := s.router.Shards(r.queue)
	place := c.Place("pageToken", req.GetPageToken(), r.list(), len(shards))
	if c.Err != nil {
		return nil, c.Err
	}
	for partition, shard := range shards {
		if f := r.inShard(ctx, shard, &place.Cursors[partition]); f != nil {
			return nil, shardcall.Partly(f, uint64(r.done.Released))
		}
	}
	if !place.Done() {
		r.done.NextPageToken = check.PageToken(r.list(), place)
	}
	return &r.done, nil
}

// list names the held jobs of the consumer in page tokens.
func (r *leaseRelease) list() *fsm.SearchQuery {
	return &fsm.SearchQuery{
		ListQuery: fsm.ListQuery{Queue: r.queue, State: fsm.Reserved, DueBefore: r.before},
		Match:     fsm.Match{Text: r.client},
	}
}

// inShard releases jobs of one partition, from a cursor on, which it moves.
func (r *leaseRelease) inShard(ctx context.Context, shard uint32, at *fsm.Cursor) *fault.Error {
	var last *belfryv1.Witness
	for *at != check.Through() && r.left > 0 && r.unread > 0 {
		page, _, err := r.from.Read(ctx, shard, &fsm.ListQuery{
			Queue: r.queue, State: fsm.Reserved, After: *at, Max: min(heldAtOnce, r.unread),
		})
		if err != nil {
			return r.from.FaultAt(shard, err)
		}
		commands, seen := r.releases(page.Jobs)
		if len(commands) > 0 {
			// A repeat needs no id: it finds what is still held, under its fences.
			w, f := r.count(r.from.ProposeAll(ctx, shard, "", commands))
			if f != nil {
				return f
			}
			if w != nil {
				last = w
			}
		}
		r.left, r.unread = r.left-len(commands), r.unread-seen
		switch {
		case seen == len(page.Jobs) && !page.More:
			*at = check.Through()
		case seen > 0:
			*at = page.Jobs[seen-1].ListPlace()
		}
	}
	if last != nil {
		r.done.Witnesses = append(r.done.Witnesses, last)
	}
	return nil
}

// releases returns commands for the jobs of the consumer, as many as may be released, and how many of
// the jobs were looked at for that.
func (r *leaseRelease) releases(jobs []fsm.Job) (commands []fsm.Command, seen int) {
	for i := range jobs {
		j := &jobs[i]
		if len(commands) == r.left {
			return commands, i
		}
		if j.Client == r.client && (r.before == 0 || j.Leased < r.before) {
			commands = append(commands, &fsm.Release{Ref: fsm.Ref{
				Queue: j.Queue, Partition: j.Partition, Serial: j.Serial, Fence: j.Fence,
			}})
		}
	}
	return commands, len(jobs)
}

// count counts what became of the commands of a request.
func (r *leaseRelease) count(answers []shardcall.Answer) (last *belfryv1.Witness, failed *fault.Error) {
	for i := range answers {
		switch a := &answers[i]; {
		case a.Fault == nil:
			r.done.Released++
			last = a.Witness()
		case a.Fault.Reason == belfryv1.Reason_REASON_STALE_LEASE:
			r.done.Skipped++
		default:
			return last, a.Fault
		}
	}
	return last, nil
}
