package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
)

// backupChunkBytes bounds the bytes of one message of a backup.
const backupChunkBytes = 512 << 10

// Backup implements AdminService.
func (s *Service) Backup(ctx context.Context, _ *belfryv1.BackupRequest,
	stream *connect.ServerStream[belfryv1.BackupResponse]) error {
	body := inbound.StreamOf(ctx)
	body.Arrived() // else the time limit of an arriving request would end the call
	// A server that stops does not wait for a backup, nor for a client that does not read it.
	ctx, end := s.drain.Until(ctx)
	defer end()
	defer context.AfterFunc(ctx, body.LimitEndOfResponse)()
	v := s.look(ctx)
	sink := &backupSink{send: stream.Send}
	for i := range v.shards {
		sink.expected += uint64(max(0, v.shards[i].Jobs))
	}
	shards := uint32(s.router.Node.ShardCount()) //nolint:gosec // bounded by node
	header := &backup.Header{
		ClusterID: v.id, Format: v.format, Time: fsm.Time(s.rules.Now().UnixNano()), Shards: shards, Parts: shards,
	}
	_, _ = rand.Read(header.ID[:]) // never fails
	b := &backupCall{
		source: s.router.Node, queues: s.router.Catalog.Queues(), namespaces: s.cluster.Namespaces(), header: header,
		sink: sink,
	}
	err := s.backUp(ctx, b)
	if err != nil && s.drain.HasStarted() {
		return fault.New(belfryv1.Reason_REASON_SHUTTING_DOWN)
	}
	if err == nil {
		s.backups.sent(s.rules.Now())
	}
	return err
}

// BackupTimes keeps the time of a node's last complete backup over restarts.
type BackupTimes interface {
	// Last returns the time that was kept; zero if there is none, or if it cannot be read.
	Last() time.Time
	// Keep stores the time for the next start. It may be called from several goroutines.
	Keep(at time.Time) error
}

// backups shows and keeps the time of this node's last complete backup. It shows no time before the
// first.
type backups struct {
	shown  *prometheus.GaugeVec
	kept   BackupTimes // nil for nothing
	logger *slog.Logger
}

// newBackups registers the metric.
func newBackups(cfg Config) (*backups, error) {
	b := &backups{kept: cfg.Backups, logger: cfg.Logger}
	b.shown = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "belfry_backup_timestamp_seconds", Help: "When this node last sent all of a backup; missing if it never did.",
	}, nil)
	if err := cfg.Registry.Register(b.shown); err != nil {
		return nil, fmt.Errorf("registering the metrics of backups: %w", err)
	}
	if b.kept == nil {
		return b, nil
	}
	if at := b.kept.Last(); !at.IsZero() {
		b.show(at)
	}
	return b, nil
}

func (b *backups) show(at time.Time) { b.shown.WithLabelValues().Set(float64(at.Unix())) }

// sent records that a backup is complete. It is complete even if its time cannot be kept.
func (b *backups) sent(at time.Time) {
	b.show(at)
	if b.kept == nil {
		return
	}
	if err := b.kept.Keep(at); err != nil {
		b.logger.Error("keeping for the next start when the last backup was sent", "error", err)
	}
}

// backupCall is a backup in progress.
type backupCall struct {
	source backend.Node
	queues []backend.QueueConfig
	// namespaces has the namespaces with a quota.
	namespaces []backend.Namespace
	header     *backup.Header
	sink       *backupSink
}

// backUp writes a backup. The catalog comes first, and decides: a queue that is created or deleted
// on purpose during the export is in the backup as the catalog had it at the beginning, or not at
// all.
func (s *Service) backUp(ctx context.Context, b *backupCall) error {
	partitions := map[string]uint32{}
	out := backup.NewWriter(b.sink, b.header)
	for i := range b.queues {
		q := &b.queues[i]
		partitions[q.Name] = max(1, q.Partitions)
		if q.Deleting() {
			partitions[q.Name] = 0
			continue
		}
		if b.said() < fsm.KeysFormat && q.Settings.Keys != (fsm.KeySettings{}) {
			return b.raisedMeanwhile(fsm.KeysFormat, q.Name)
		}
		record := backup.CatalogRecord(&backup.CatalogQueue{
			Name: q.Name, Partitions: partitions[q.Name], Settings: q.Settings,
		})
		if err := out.Append(record); err != nil {
			return err
		}
	}
	for i := range b.namespaces {
		if err := out.Append(namespaceRecord(&b.namespaces[i])); err != nil {
			return err
		}
	}
	keep := func(q *fsm.QueueRecord) bool {
		recorded, ok := partitions[q.Name]
		if !ok {
			recorded = 1
		}
		return q.Partitions == recorded
	}
	for shard := range b.header.Shards {
		err := b.source.Export(ctx, shard, keep, func(r fsm.BackupRecord) error {
			if r.Kind == fsm.BackupJob {
				b.sink.jobs++
			}
			if err := b.checkFormat(&r); err != nil {
				return err
			}
			return out.Append(r)
		})
		if err != nil {
			return fault.OfShard(shard, err)
		}
	}
	return out.Close()
}

// checkFormat refuses a record of a later format than the header says: the format of the cluster was
// raised since the backup began. A cluster that speaks the format of the header would accept the
// record and not understand it.
func (b *backupCall) checkFormat(r *fsm.BackupRecord) error {
	if b.said() >= fsm.LatestFormat {
		return nil
	}
	queue, format, err := backup.FormatOf(r)
	if err != nil {
		return fmt.Errorf("reading a record for a backup: %w", err)
	}
	if format <= b.said() {
		return nil
	}
	return b.raisedMeanwhile(format, queue)
}

// said is the format that the header says.
func (b *backupCall) said() fsm.Format { return max(fsm.FirstFormat, b.header.Format) }

func (b *backupCall) raisedMeanwhile(to fsm.Format, queue string) *fault.Error {
	f := fault.New(belfryv1.Reason_REASON_OVERLOADED)
	f.Message, f.RetryAfter = fmt.Sprintf(
		"the format of the cluster was raised from %d to %d while the backup was made (queue %q): make it again", b.said(),
		to, queue), time.Second
	return f
}

// namespaceRecord returns the record of a quota.
func namespaceRecord(n *backend.Namespace) fsm.BackupRecord {
	q := &n.Quota
	return backup.NamespaceRecord(&backup.CatalogNamespace{
		Name: n.Name, MaxJobs: q[node.JobsLimit], MaxBytes: q[node.BytesLimit], MaxInFlight: q[node.LeasesLimit],
		PutRate: q[node.PutRate],
	})
}

// backupSink sends the bytes that are written to it.
type backupSink struct {
	send           func(*belfryv1.BackupResponse) error
	jobs, expected uint64
}

// Write implements io.Writer.
func (b *backupSink) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		part := p[sent:min(len(p), sent+backupChunkBytes)]
		if err := b.send(&belfryv1.BackupResponse{Data: part, Jobs: b.jobs, JobsExpected: b.expected}); err != nil {
			return sent, fmt.Errorf("sending a backup: %w", err)
		}
		sent += len(part)
	}
	return sent, nil
}
