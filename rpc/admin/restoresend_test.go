package admin

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/drain"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// stubbornNode answers every request with an error.
type stubbornNode struct {
	backend.Node
	err error
}

func (n *stubbornNode) Do(context.Context, uint32, *fsm.Request) (node.Reply, error) {
	return node.Reply{}, n.err
}

// TestRestoreWaitsNoLongerThanItSays: a shard that takes nothing for too long ends the restore,
// which says what it waited for, also in the log; so does the stop of the server, and the end of
// the call.
func TestRestoreWaitsNoLongerThanItSays(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		step  fsm.Import
		stop  func(d *drain.Signal, end context.CancelFunc) // what happens after a second; nil for nothing
		after time.Duration
		want  belfryv1.Reason
		words string
	}{
		{"the clocks do not agree", node.ErrClockAhead, fsm.Import{
			Step: fsm.ImportRecords, Sequence: 7,
		}, nil, restoreInsists, belfryv1.Reason_REASON_CLOCK_AHEAD, "waited 1m for shard 2 to take part 7 of the backup"},
		{"nobody leads", node.ErrNoLeader, fsm.Import{Step: fsm.ImportBegin}, nil, restoreInsists,
			belfryv1.Reason_REASON_NO_LEADER, "to take the beginning of the restore"},
		{"too much is waiting", node.ErrOverloaded, fsm.Import{Step: fsm.ImportEnd}, nil, restoreInsists,
			belfryv1.Reason_REASON_OVERLOADED, "to take the end of the restore"},
		{"nobody knows what came of it", node.ErrUnknownOutcome, fsm.Import{Step: fsm.ImportAbandon}, nil, restoreInsists,
			belfryv1.Reason_REASON_UNKNOWN_OUTCOME, "given up"},
		{"the server stops", node.ErrShuttingDown, fsm.Import{Step: fsm.ImportEnd},
			func(d *drain.Signal, _ context.CancelFunc) {
				d.Start()
			}, time.Second, belfryv1.Reason_REASON_SHUTTING_DOWN, "this server is stopping"},
		{"the caller leaves", node.ErrNoLeader, fsm.Import{Step: fsm.ImportEnd},
			func(_ *drain.Signal, end context.CancelFunc) {
				end()
			}, time.Second, belfryv1.Reason_REASON_NO_LEADER, ""},
		{"the disk is full", node.ErrDiskFull, fsm.Import{Step: fsm.ImportEnd}, nil, 0, belfryv1.Reason_REASON_DISK_FULL, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				router, stopping := shardcall.Router{Node: &stubbornNode{err: tt.err}}, drain.New()
				r := &restorer{service: &Service{
					router: router, drain: stopping, logger: slog.New(slog.NewTextHandler(&log, nil)),
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.stop != nil {
					time.AfterFunc(time.Second, func() { tt.stop(stopping, cancel) })
				}
				began := time.Now()
				_, err := r.send(ctx, 2, &tt.step)
				f := fault.Of(err)
				if took := time.Since(began); took != tt.after || f.Reason != tt.want || !strings.Contains(f.Message, tt.words) {
					t.Errorf("after %v: %v", took, err)
				}
				if said := log.String(); (tt.after > 0) != (strings.Count(said, "a restore waits") == 1) {
					t.Errorf("the log says %q", said)
				}
			})
		})
	}
}
