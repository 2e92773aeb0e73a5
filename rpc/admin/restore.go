package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
)

const (
	// importBytes and importRecords bound one Import; a larger record has an Import of its own. A
	// resumed restore must split the backup as the earlier attempt did, so older restores cannot be
	// resumed after a change of them.
	importBytes   = 256 << 10
	importRecords = 512
	// restoreInsists is how long an Import is repeated to a shard that cannot serve for now, or
	// whose answer was lost.
	restoreInsists = time.Minute
	restorePause   = 200 * time.Millisecond
)

// Restore implements AdminService.
func (s *Service) Restore(ctx context.Context,
	stream *connect.ClientStream[belfryv1.RestoreRequest]) (*belfryv1.RestoreResponse, error) {
	return s.restore(ctx, stream)
}

// restoreStream is what a Restore call needs of its stream.
type restoreStream interface {
	Receive() bool
	Msg() *belfryv1.RestoreRequest
	Err() error
}

func (s *Service) restore(ctx context.Context, stream restoreStream) (*belfryv1.RestoreResponse, error) {
	body := inbound.StreamOf(ctx)
	stop := context.AfterFunc(ctx, body.Cut)
	defer stop()
	in := &restoreInput{stream: stream, body: body}
	if !in.next() {
		if in.err == nil || errors.Is(in.err, io.EOF) {
			return nil, fault.Invalid("data", "the stream brings no backup")
		}
		return nil, inbound.StreamFault(in.err)
	}
	r := &restorer{service: s, shards: make([]restoredShard, s.router.Node.ShardCount())}
	c := s.rules.Request(ctx, tokens.Admin)
	r.beginImport = c.RestoreOptions(stream.Msg().GetOverdue())
	if c.Err != nil {
		return nil, c.Err
	}
	var err error
	if r.in, err = backup.NewReader(in); err == nil {
		err = s.speaks(r.in.Header().Format)
	}
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return nil, r.explain(in, err)
	}
	h, t := r.in.Header(), r.in.Totals()
	return &belfryv1.RestoreResponse{
		ClusterId: h.ClusterID, Time: timestamppb.New(time.Unix(0, int64(h.Time))), Queues: t.Queues, Jobs: t.Jobs,
		Remembered: t.Tombstones,
	}, nil
}

// speaks refuses a backup whose format is later than that of this cluster. It runs before any
// record is imported.
func (s *Service) speaks(format fsm.Format) error {
	if spoken := s.cluster.Format(); format > spoken {
		return fault.Invalid("data",
			"the backup has format %d and this cluster speaks %d: have all nodes run the version that made the backup, or a "+
				"later one", format, spoken)
	}
	return nil
}

// restoreInput reads the bytes of a stream.
type restoreInput struct {
	stream restoreStream
	body   *inbound.Stream
	data   []byte
	err    error
}

// next receives the next message.
func (in *restoreInput) next() bool {
	if !in.stream.Receive() {
		if in.err = in.stream.Err(); in.err == nil {
			in.err = io.EOF
		}
		return false
	}
	in.body.Arrived()
	in.data = in.stream.Msg().GetData()
	return true
}

// Read implements io.Reader.
func (in *restoreInput) Read(p []byte) (int, error) {
	for len(in.data) == 0 {
		if in.err != nil || !in.next() {
			return 0, in.err
		}
	}
	n := copy(p, in.data)
	in.data = in.data[n:]
	return n, nil
}

// restorer restores one backup into the cluster.
type restorer struct {
	service     *Service
	in          *backup.Reader
	beginImport fsm.Import
	shards      []restoredShard
	// queues and namespaces are for the catalog.
	queues     []backup.CatalogQueue
	namespaces []backend.Namespace
	// where is the shard of each queue in the current section of the backup.
	where map[string]uint32
	begun bool
}

// restoredShard holds the records for one shard.
type restoredShard struct {
	sequence uint64 // of the Import sent last
	total    uint64 // records so far
	records  []fsm.BackupRecord
	bytes    int
}

// explain returns the fault of a restore that failed.
func (r *restorer) explain(in *restoreInput, err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
	case errors.Is(err, fsm.ErrDamaged), errors.Is(err, backup.ErrIncomplete), errors.Is(err, fsm.ErrVersion):
		if in.err != nil && !errors.Is(in.err, io.EOF) {
			return inbound.StreamFault(in.err)
		}
		f = fault.Invalid("data", "%s", err)
		if !r.begun {
			f.Message += "; nothing was restored"
		}
	case in.err != nil && errors.Is(err, in.err):
		return inbound.StreamFault(in.err)
	default:
		return err
	}
	if r.begun {
		g := *f
		g.Message += "; the restore has begun and not ended: the cluster does nothing else until it is repeated with the " +
			"same backup and options"
		f = &g
	}
	return f
}

// run restores the backup. It ends in this order: all records, the queues of the catalog, then each
// shard is opened. A restore that is interrupted leaves shards that refuse to serve, and can be
// repeated.
func (r *restorer) run(ctx context.Context) error {
	record, err := r.readCatalog(ctx)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if beginErr := r.beginAll(ctx); beginErr != nil {
		return beginErr
	}
	if quotaErr := r.setQuotas(ctx); quotaErr != nil {
		return quotaErr
	}
	for err == nil {
		if err = r.addRecord(ctx, record); err == nil {
			record, err = r.in.Next()
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	for shard := range r.shards {
		if err := r.flush(ctx, uint32(shard)); err != nil { //nolint:gosec // bounded by node
			return err
		}
	}
	for _, q := range r.queues {
		config := backend.QueueConfig{Name: q.Name, Partitions: q.Partitions, Settings: q.Settings}
		if err := r.service.router.Catalog.RestoreQueue(ctx, config); err != nil {
			return fmt.Errorf("restoring the catalog: %w", err)
		}
	}
	return r.endAll(ctx)
}

// setQuotas sets the quotas of the backup, which do not apply to the restored jobs. A shard has its
// part of a quota by what it holds, so the quotas are set before the shards hold much.
func (r *restorer) setQuotas(ctx context.Context) error {
	if len(r.namespaces) == 0 {
		return nil
	}
	if err := r.service.cluster.RestoreNamespaces(ctx, r.namespaces); err != nil {
		return fmt.Errorf("restoring the quotas: %w", err)
	}
	return nil
}

// readCatalog reads the queues and quotas of the catalog, and returns the record after them. They
// come first in a backup, so that a cluster which cannot have one of them refuses the backup before
// the restore begins.
func (r *restorer) readCatalog(ctx context.Context) (next fsm.BackupRecord, err error) {
	for {
		record, err := r.in.Next()
		if ended := errors.Is(err, io.EOF); err != nil && !ended {
			return record, err
		} else if ended || record.Kind != fsm.BackupCatalog && record.Kind != fsm.BackupNamespace {
			if f := r.tooWide(r.queues); f != nil {
				return record, f
			}
			return record, err
		}
		if record.Kind == fsm.BackupNamespace {
			err = r.readNamespace(ctx, &record)
		} else {
			err = r.readQueue(&record)
		}
		if err != nil {
			return record, err
		}
	}
}

func (r *restorer) readQueue(record *fsm.BackupRecord) error {
	q, err := backup.ParseCatalog(record)
	if err == nil {
		r.queues = append(r.queues, q)
	}
	return err
}

// readNamespace reads a quota, which must be one that SetNamespace accepts.
func (r *restorer) readNamespace(ctx context.Context, record *fsm.BackupRecord) error {
	q, err := backup.ParseNamespace(record)
	if err != nil {
		return err
	}
	c := r.service.rules.Request(ctx, tokens.Admin)
	n := backend.Namespace{Name: c.Namespace("data", q.Name), Quota: node.Amounts{
		node.JobsLimit: q.MaxJobs, node.BytesLimit: q.MaxBytes, node.LeasesLimit: q.MaxInFlight, node.PutRate: q.PutRate,
	}}
	for _, l := range []struct {
		limit node.Limit
		most  uint64
		unit  string
	}{
		{node.JobsLimit, limitMax, "jobs"},
		{node.BytesLimit, limitMax, "bytes"},
		{node.LeasesLimit, limitMax, "jobs in flight"},
		{node.PutRate, putsPerSecondMax * 1000, "thousandths of puts per second"},
	} {
		if amount := n.Quota[l.limit]; amount > l.most {
			c.Fail(fault.Invalid("data", "the quota of namespace %s has %d %s, at most %d", fault.Quote([]byte(q.Name)), amount,
				l.unit, l.most))
		}
	}
	if c.Err != nil {
		return c.Err
	}
	r.namespaces = append(r.namespaces, n)
	return nil
}

// tooWide names the queues that have more partitions than there are shards; it returns nil if none
// has. A job is found by the number of partitions with which its queue was created, and a shard
// holds one partition of a queue. So neither fewer partitions nor two of them in a shard would
// work.
func (r *restorer) tooWide(queues []backup.CatalogQueue) *fault.Error {
	var wide []string
	var most uint32
	for i := range queues {
		if q := &queues[i]; int64(q.Partitions) > int64(len(r.shards)) {
			wide = append(wide, fmt.Sprintf("%s has %d", fault.Quote([]byte(q.Name)), q.Partitions))
			most = max(most, q.Partitions)
		}
	}
	if len(wide) == 0 {
		return nil
	}
	return fault.Invalid("data",
		"this cluster has %d shards, too few for the partitions of some queues, each of which needs a shard of its own: %s. "+
			"Nothing was restored; found a cluster with --shards %d or more and restore into that", len(r.shards), list(wide),
		most)
}

// beginAll starts the restore in all shards, or in none.
func (r *restorer) beginAll(ctx context.Context) error {
	h := r.in.Header()
	r.beginImport.Restore, r.beginImport.Since = h.ID, h.Time
	var fresh []uint32
	ended, resumed := 0, false
	for i := range r.shards {
		shard := uint32(i) //nolint:gosec // bounded by node
		result, err := r.send(ctx, shard, &r.beginImport)
		if err == nil && result.Code != fsm.OK {
			err = r.occupied(ctx, shard, &result)
		}
		if err != nil {
			if !resumed {
				r.abandon(ctx, fresh)
			}
			r.begun = resumed
			return err
		}
		fresh = append(fresh, shard)
		resumed = resumed || result.Count > 1
		if !result.More {
			ended++
		}
	}
	if ended == len(r.shards) {
		return &fault.Error{
			Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Field: "data",
			Message: "data: this backup has been restored here already",
		}
	}
	r.begun = true
	return nil
}

// abandon reverts what beginAll has started. If that fails, repeating the restore or another
// attempt to start it ends the same way.
func (r *restorer) abandon(ctx context.Context, shards []uint32) {
	for _, shard := range shards {
		_, _ = r.send(ctx, shard, &fsm.Import{Restore: r.beginImport.Restore, Step: fsm.ImportAbandon})
	}
}

// occupied returns why a backup cannot be restored into a shard.
func (r *restorer) occupied(ctx context.Context, shard uint32, result *fsm.Result) error {
	f := &fault.Error{Reason: belfryv1.Reason_REASON_QUEUE_EXISTS, Shard: &shard, Field: "data"}
	if result.More {
		f.Message = "data: another restore, or this one with other options, has begun and not ended"
		return f
	}
	reading, _, err := r.service.router.Node.Query(ctx, shard, &fsm.QueuesQuery{Max: 3})
	if err != nil {
		return fault.OfShard(shard, err)
	}
	f.Message = "data: a backup is restored into a cluster without queues; this one has"
	for i := range reading.Queues {
		f.Message += " " + fault.Quote([]byte(reading.Queues[i].Name)) + ","
	}
	f.Message = f.Message[:len(f.Message)-1]
	if reading.More {
		f.Message += " and more"
	}
	return f
}

// addRecord adds a record to the batch of its shard.
func (r *restorer) addRecord(ctx context.Context, record fsm.BackupRecord) error {
	var shard uint32
	switch record.Kind {
	case fsm.BackupShard:
		r.where = map[string]uint32{}
		return nil
	case fsm.BackupQueue:
		q, err := backup.ParseQueue(&record)
		if err != nil {
			return err
		}
		if int64(q.Partitions) > int64(len(r.shards)) || q.Partition >= max(1, q.Partitions) {
			return fault.Invalid("data", "partition %d of %d of queue %s has no place in %d shards", q.Partition, q.Partitions,
				fault.Quote([]byte(q.Name)), len(r.shards))
		}
		shard = r.service.router.Shard(q.Name, q.Partition)
		r.where[q.Name] = shard
	case fsm.BackupKey, fsm.BackupSchedule, fsm.BackupJob, fsm.BackupTombstone:
		name, err := backup.OwnerOf(&record)
		if err != nil {
			return err
		}
		var ok bool
		if shard, ok = r.where[name]; !ok {
			return fmt.Errorf("%w: a record of queue %q, which is not in its shard", fsm.ErrDamaged, name)
		}
	default:
		return nil
	}
	to := &r.shards[shard]
	if len(to.records) > 0 && (len(to.records) >= importRecords || to.bytes+len(record.Data) > importBytes) {
		if err := r.flush(ctx, shard); err != nil {
			return err
		}
	}
	to.records = append(to.records, fsm.BackupRecord{Kind: record.Kind, Data: bytes.Clone(record.Data)})
	to.bytes += len(record.Data)
	to.total++
	return nil
}

// flush sends the batch of a shard.
func (r *restorer) flush(ctx context.Context, shard uint32) error {
	to := &r.shards[shard]
	if len(to.records) == 0 {
		return nil
	}
	to.sequence++
	c := &fsm.Import{
		Restore: r.beginImport.Restore, Step: fsm.ImportRecords, Sequence: to.sequence, Floor: r.in.Totals().Serial,
		Records: to.records,
	}
	to.records, to.bytes = nil, 0 // after an unknown outcome they may still be in use
	result, err := r.send(ctx, shard, c)
	if err == nil && result.Code != fsm.OK {
		err = fmt.Errorf("shard %d refused part %d of the backup with code %d", shard, c.Sequence, result.Code)
	}
	return err
}

// endAll opens the shards for use.
func (r *restorer) endAll(ctx context.Context) error {
	for i := range r.shards {
		shard := uint32(i) //nolint:gosec // bounded by node
		result, err := r.send(ctx, shard, &fsm.Import{
			Restore: r.beginImport.Restore, Step: fsm.ImportEnd, Floor: r.in.Totals().Serial, Total: r.shards[i].total,
		})
		if err != nil {
			return err
		}
		if result.Code != fsm.OK {
			return fmt.Errorf("shard %d placed %d records of %d: the cluster must be founded anew", shard, result.Serial,
				r.shards[i].total)
		}
	}
	return nil
}
