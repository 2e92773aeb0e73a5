package admin

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// CreateQueue implements AdminService.
func (s *Service) CreateQueue(ctx context.Context,
	req *belfryv1.CreateQueueRequest) (*belfryv1.CreateQueueResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue := c.Queue("queue", req.GetQueue())
	partitions := c.Count("partitions", req.GetPartitions(), 1, uint32(s.router.Node.ShardCount()))
	change := c.Settings("settings", req.GetSettings(), partitions)
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	catalog, remembers := s.forRequest(requestID, req)
	if !remembers {
		if err := s.mustNotExist(ctx, queue); err != nil {
			return nil, err
		}
	}
	settings, err := change(fsm.Settings{})
	if err == nil {
		err = s.speaksKeys(&settings.Keys)
	}
	if err != nil {
		return nil, err
	}
	config, err := catalog.CreateQueue(ctx, queue, partitions, settings)
	if err != nil {
		return nil, fault.Of(err)
	}
	witnesses, pending, err := s.reconcile(ctx, config, remembers)
	if err != nil {
		return nil, err
	}
	return &belfryv1.CreateQueueResponse{
		Queue: queue, Partitions: config.Partitions,
		Settings:        wire.Settings(&config.Settings, s.createdIn(ctx, &config, pending)),
		SettingsVersion: config.Version, Witnesses: witnesses, PendingShards: pending,
	}, nil
}

// reconcile is configure for a record that was just changed, or that is the answer to an earlier
// call. In the second case the shards are updated only if the record has not changed since. The
// change itself is made: unreachable shards are pending, which does not fail the call. Neither does
// a later deletion.
func (s *Service) reconcile(ctx context.Context, config backend.QueueConfig,
	remembers bool) (witnesses []*belfryv1.Witness, pending []uint32, err error) {
	if held, ok := s.router.Catalog.Queue(config.Name); remembers && (!ok || held.Version != config.Version) {
		return nil, nil, nil
	}
	witnesses, pending, err = s.router.Configure(ctx, config.Name)
	if err == nil {
		return witnesses, pending, nil
	}
	if f := fault.Of(err); f.Reason == belfryv1.Reason_REASON_QUEUE_EXISTS {
		return nil, nil, f
	}
	for p := range max(1, config.Partitions) {
		pending = append(pending, s.router.Shard(config.Name, p))
	}
	return nil, pending, nil
}

// mustNotExist returns QUEUE_EXISTS if the catalog or the home shard knows a queue.
func (s *Service) mustNotExist(ctx context.Context, queue string) error {
	if config, ok := s.router.Catalog.Queue(queue); ok {
		if config.Deleting() {
			return shardcall.BeingDeleted(queue)
		}
		return existing(config.Name)
	}
	exists, err := s.existsUnrecorded(ctx, queue)
	if err == nil && exists {
		return existing(queue)
	}
	return err
}

// existing returns the fault of a queue that exists already.
func existing(queue string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_QUEUE_EXISTS)
	f.Field, f.Message = "queue", "queue: "+queue+" exists already"
	return f
}

// UpdateQueue implements AdminService.
func (s *Service) UpdateQueue(ctx context.Context,
	req *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue, requestID := c.Queue("queue", req.GetQueue()), c.RequestID(req.GetRequestId())
	if req.GetSettings() == nil {
		c.Fail(fault.Invalid("settings", "at least one setting is required"))
	}
	if c.Err != nil {
		return nil, c.Err
	}
	if err := s.router.Refresh(ctx); err != nil { // limits are checked against the number of partitions
		return nil, err
	}
	change := c.Settings("settings", req.GetSettings(), s.router.Partitions(queue))
	if c.Err != nil {
		return nil, c.Err
	}
	if s.router.Deleting(queue) {
		return nil, shardcall.BeingDeleted(queue)
	}
	if err := s.mustExist(ctx, queue); err != nil {
		return nil, err
	}
	catalog, remembers := s.forRequest(requestID, req)
	shards := s.router.Shards(queue)
	config, err := catalog.UpdateQueue(ctx, queue, func(before fsm.Settings) (fsm.Settings, error) {
		after, err := change(before)
		if err == nil {
			err = s.mayChangeKeys(ctx, queue, shards, &before.Keys, &after.Keys)
		}
		return after, err
	})
	if err != nil {
		return nil, fault.Of(err)
	}
	witnesses, pending, err := s.reconcile(ctx, config, remembers)
	if err != nil {
		return nil, err
	}
	return &belfryv1.UpdateQueueResponse{
		Settings:        wire.Settings(&config.Settings, s.createdIn(ctx, &config, pending)),
		SettingsVersion: config.Version, PendingShards: pending, Witnesses: witnesses,
	}, nil
}

// createdIn returns the format in which a queue was created; its default retry delays are those of
// that format. Only the shards of a queue know it. If the home shard cannot be asked, or need not
// be, createdIn returns the format of the cluster.
func (s *Service) createdIn(ctx context.Context, config *backend.QueueConfig, pending []uint32) fsm.Format {
	home := s.router.Shard(config.Name, 0)
	if len(config.Settings.RetryDelays) == 0 && !slices.Contains(pending, home) {
		if r, _, err := s.router.Node.Query(ctx, home, &fsm.QueueQuery{Queue: config.Name}); err == nil && len(r.Queues) > 0 {
			return r.Queues[0].Format
		}
	}
	return s.cluster.Format()
}

// mustExist returns QUEUE_NOT_FOUND if neither the catalog nor the home shard knows a queue.
func (s *Service) mustExist(ctx context.Context, queue string) error {
	if _, ok := s.router.Catalog.Queue(queue); ok {
		return nil
	}
	exists, err := s.existsUnrecorded(ctx, queue)
	if err != nil {
		return err
	}
	if !exists {
		return fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND)
	}
	return nil
}

// GetQueue implements AdminService.
func (s *Service) GetQueue(ctx context.Context,
	req *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error) {
	c := s.rules.Request(ctx, tokens.View)
	queue := c.Queue("queue", req.GetQueue())
	if c.Err != nil {
		return nil, c.Err
	}
	from := shardcall.Reader{Router: s.router, Stale: req.GetStale()}
	if err := from.Learn(ctx, queue); err != nil {
		return nil, err
	}
	shards := s.router.Shards(queue)
	readings, witnesses, err := from.ReadAll(ctx, shards, func(int) fsm.Query { return &fsm.QueueQuery{Queue: queue} })
	if err != nil {
		return nil, err
	}
	parts := queueParts(readings)
	if len(parts) == 0 {
		return nil, fault.New(belfryv1.Reason_REASON_QUEUE_NOT_FOUND)
	}
	var due fsm.Due
	for i := range parts {
		wire.AddDue(&due, &parts[i].Due)
	}
	out := s.wireQueue(parts)
	out.Due = wire.DueHistogram(&due)
	answer := &belfryv1.GetQueueResponse{Queue: out, Witnesses: witnesses, Stale: req.GetStale()}
	if req.GetMinutes() {
		hours, _, err := from.ReadAll(ctx, shards, func(int) fsm.Query { return &fsm.MinuteQuery{Queue: queue} })
		if err != nil {
			return nil, err
		}
		answer.Minutes, answer.MinutesSince = minutes(hours)
	}
	return answer, nil
}

// queuePart is the part of a queue that one shard holds.
type queuePart struct {
	*fsm.Queue // of a reading
	// AsOf is the shard's time: counts are exact as of it. Ages and pauses are computed from now,
	// which is not before AsOf.
	asOf, now fsm.Time
}

// queueParts returns the queues of all readings, in the order of the readings.
func queueParts(readings []fsm.Reading) (parts []queuePart) {
	for i := range readings {
		r := &readings[i]
		parts = slices.Grow(parts, len(r.Queues))
		for k := range r.Queues {
			parts = append(parts, queuePart{Queue: &r.Queues[k], asOf: r.Clock, now: r.Now})
		}
	}
	return parts
}

// wireQueue adds up the parts of a queue. It leaves out when the jobs fall due.
func (s *Service) wireQueue(parts []queuePart) *belfryv1.Queue {
	first := &parts[0]
	out := &belfryv1.Queue{
		Name: first.Name, Partitions: first.Partitions, Settings: wire.Settings(&first.Settings, first.Format),
		SettingsVersion: first.Version,
		Counts:          &belfryv1.JobCounts{}, Totals: &belfryv1.QueueTotals{},
	}
	var counts fsm.Counts
	var oldest, next, dedupSince, asOf, now fsm.Time
	for i := range parts {
		q := &parts[i]
		counts.Delayed += q.Counts.Delayed
		counts.Ready += q.Counts.Ready
		counts.Reserved += q.Counts.Reserved
		counts.Dead += q.Counts.Dead
		counts.Bytes += q.Counts.Bytes
		addTotals(out.GetTotals(), &q.Counters)
		oldest, next = wire.Earlier(oldest, q.OldestReady), wire.Earlier(next, q.NextDue)
		dedupSince = max(dedupSince, q.DedupSince)
		out.DedupWindowShortened = out.DedupWindowShortened || dedupShortened(q)
		asOf, now = wire.Earlier(asOf, q.asOf), wire.Earlier(now, q.now)
	}
	out.Counts.Delayed, out.Counts.Ready = wire.Count(counts.Delayed), wire.Count(counts.Ready)
	out.Counts.Reserved, out.Counts.Dead = wire.Count(counts.Reserved), wire.Count(counts.Dead)
	out.Bytes, out.NextDueAt = counts.Bytes, wire.CeilTime(next)
	out.WaitingConsumers = waiting(parts)
	recent := sumRecent(parts)
	out.Lateness, out.Rates = recent.lateness(), recent.rates()
	out.AsOf = wire.ExactTime(asOf)
	if !first.Settings.PausedAt(now) {
		out.Settings.Paused, out.Settings.PausedUntil = proto.Bool(false), nil
	}
	if oldest != 0 {
		out.OldestReadyAge = durationpb.New(max(0, now.Sub(oldest)))
	}
	out.DedupWindowHeld = durationpb.New(wire.DedupHeld(&first.Settings, dedupSince, now))
	return out
}

// waiting returns how many consumers wait for a queue. Each waits in all partitions; those that have just
// been handed a job are missing in one. It returns nil if a part does not know.
func waiting(parts []queuePart) *uint32 {
	var most uint64
	for i := range parts {
		calls := parts[i].Parked
		if calls == nil {
			return nil
		}
		most = max(most, *calls)
	}
	return new(wire.Count(most))
}

// dedupShortened reports whether a shard dropped ids that the setting would have kept, because its
// memory for them is limited.
func dedupShortened(q *queuePart) bool {
	kept := q.Created
	if !q.Settings.DedupForever {
		kept = max(kept, q.now-fsm.Time(wire.DedupWindow(&q.Settings)))
	}
	return q.DedupSince > kept
}

// addTotals adds the counters of a part to t.
func addTotals(t *belfryv1.QueueTotals, c *fsm.Counters) {
	t.Puts += c.Put
	t.Reserves += c.Granted
	t.Acks += c.Acked
	t.Nacks += c.Nacked
	t.Lapses += c.Lapsed
	t.Releases += c.Released
	t.Deaths += c.Died
	t.Cancels += c.Cancelled + c.Purged
	t.Expiries += c.Expired
	t.Redrives += c.Redriven
}

// PurgeQueue implements AdminService.
func (s *Service) PurgeQueue(ctx context.Context,
	req *belfryv1.PurgeQueueRequest) (*belfryv1.PurgeQueueResponse, error) {
	c := s.rules.Request(ctx, tokens.Admin)
	queue := c.Queue("queue", req.GetQueue())
	states := fsm.Set(fsm.Delayed, fsm.Ready, fsm.Dead)
	if len(req.GetStates()) > 0 {
		states = 0
	}
	for i, wanted := range req.GetStates() {
		held, ok := wire.HeldState(wanted)
		if !ok {
			c.Fail(fault.Invalid(fault.Indexed("states", i), "want one of DELAYED, READY, RESERVED, DEAD, not %s",
				codec.QuotedEnum(wanted)))
		}
		states |= fsm.Set(held)
	}
	requestID := c.RequestID(req.GetRequestId())
	if c.Err != nil {
		return nil, c.Err
	}
	left := uint64(req.GetMax())
	if left == 0 {
		left = 1 << 62
	}
	if err := (shardcall.Reader{Router: s.router}).Learn(ctx, queue); err != nil {
		return nil, err
	}
	done, err := s.router.InShards(ctx, s.router.Shards(queue), requestID, left, func(most uint32) fsm.Command {
		return &fsm.Purge{Queue: queue, States: states, Max: most}
	})
	if err != nil {
		return nil, err
	}
	return &belfryv1.PurgeQueueResponse{Purged: wire.Count(done.Count), Witnesses: done.Witnesses}, nil
}
