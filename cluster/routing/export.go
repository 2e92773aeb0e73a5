package routing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/node"
)

const pathExport = "/shard/export"

// exportHost is a node whose shards can be exported. *node.Node implements it.
type exportHost interface {
	ShardCount() int
	Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool, emit func(fsm.BackupRecord) error) error
}

// Export is node.Node's Export for any shard. A shard that another node leads arrives over the peer
// port as a backup of its own, and Export checks everything in it.
func (r *Router) Export(ctx context.Context, shard uint32, keep func(*fsm.QueueRecord) bool,
	emit func(fsm.BackupRecord) error) error {
	to := &filter{keep: keep, emit: emit}
	return r.routing.route(ctx, shard, newRetryBudget(ctx, LeaderWait, nil), func() error {
		return to.retryable(r.Node.Export(ctx, shard, keep, to.add))
	}, func(server string) error {
		return to.retryable(r.peers.export(ctx, server, shard, to))
	})
}

// answerExports registers the call that exports a shard.
func answerExports(p *Peers, host exportHost, clusterID string) {
	p.mux.HandleFunc("POST "+pathExport, func(w http.ResponseWriter, r *http.Request) {
		shard, err := shardOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var out *backup.Writer // nil before the first record: until then the answer can be an error
		all := func(*fsm.QueueRecord) bool { return true }
		err = host.Export(r.Context(), shard, all, func(record fsm.BackupRecord) error {
			if out == nil {
				w.Header().Set("Content-Type", "application/octet-stream")
				header := &backup.Header{
					ClusterID: clusterID, Format: p.spoken(), Shards: uint32(host.ShardCount()), Parts: 1,
				} //nolint:gosec // bounded
				out = backup.NewWriter(w, header)
			}
			return out.Append(record)
		})
		switch {
		case err == nil:
			err = out.Close()
		case out == nil:
			writePeerError(w, err)
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the caller finds the backup incomplete
		}
	})
}

// export asks another node for a shard.
func (p *Peers) export(ctx context.Context, server string, shard uint32, to *filter) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+server+pathExport+"?shard="+strconv.Itoa(int(shard)), http.NoBody)
	if err != nil {
		return fmt.Errorf("%w: %w", node.ErrNoLeader, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("exporting shard %d from %s: %w", shard, server, unreached(ctx, false, err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		_, err := readAnswer(ctx, response)
		return fmt.Errorf("exporting shard %d from %s: %w", shard, server, err)
	}
	in, err := backup.NewReader(newStallReader(response.Body))
	for err == nil {
		var record fsm.BackupRecord
		if record, err = in.Next(); err == nil {
			err = to.pass(record)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("exporting shard %d from %s: %w: %w", shard, server, node.ErrCanceled, context.Cause(ctx))
	case errors.Is(err, to.failed) && to.failed != nil:
		return err
	default:
		return fmt.Errorf("exporting shard %d from %s: %w: %w", shard, server, node.ErrNoLeader, err)
	}
}

// filter passes on the records of a shard, except those of queues that are left out, and counts
// them.
type filter struct {
	keep   func(*fsm.QueueRecord) bool
	emit   func(fsm.BackupRecord) error
	left   map[string]bool
	counts backup.Totals
	failed error
	// emitted: a record was emitted, so that the export cannot start again.
	emitted bool
}

// add emits a record that needs no filter.
func (f *filter) add(r fsm.BackupRecord) error {
	f.emitted = true
	return f.emit(r)
}

// retryable returns the error of an export. It permits a new start of the export elsewhere, unless
// a record was emitted.
func (f *filter) retryable(err error) error {
	switch {
	case err == nil, !servedElsewhere(err):
		return err
	case f.emitted:
		return fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err)
	default:
		return fmt.Errorf("%w: %w", errAgain, err)
	}
}

func (f *filter) pass(r fsm.BackupRecord) error {
	switch r.Kind {
	case fsm.BackupQueue:
		q, err := backup.ParseQueue(&r)
		if err != nil {
			return err
		}
		if !f.keep(&q) {
			if f.left == nil {
				f.left = map[string]bool{}
			}
			f.left[q.Name] = true
			return nil
		}
	case fsm.BackupKey, fsm.BackupSchedule, fsm.BackupJob, fsm.BackupTombstone:
		if name, err := backup.OwnerOf(&r); err != nil || f.left[name] {
			return err
		}
	case fsm.BackupShardEnd:
		shard, err := backup.ParseEnd(&r)
		if err != nil {
			return err
		}
		r = backup.EndRecord(shard, &f.counts)
	default:
	}
	f.counts.Count(r.Kind)
	f.failed = f.add(r)
	return f.failed
}
