package mirror

import (
	"errors"
	"testing"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/redisson"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestResumeTooEarly resumes a queue after an export was killed between the write and the cancel,
// which the page says not to do: Belfry hands out a job that Redis has. The next export takes it
// from its consumer.
func TestResumeTooEarly(t *testing.T) {
	server, belfry := redistest.Start(t), belfrytest.Start(t)
	r, c, killed := server.Client(), belfry.Client(t), belfry.Client(t)
	if _, err := c.Put(t.Context(), "orders", []byte("x")); err != nil {
		t.Fatal(err)
	}
	interruptExport(t, server, killed, func() { killed.Close() })
	paused := false
	if _, err := c.Admin().UpdateQueue(t.Context(), "orders", &admin.QueueSettings{Paused: &paused}); err != nil {
		t.Fatal(err)
	}
	job := reserveOne(t, c)
	if n := r.ZCard(t.Context(), timerKey).Val(); n != 1 {
		t.Errorf("Redis has %d entries", n)
	}
	if counts, err := Export(t.Context(), r, c, ExportOptions{RedisQueue: "orders",
		Format: redisson.New}); err != nil || counts.Returned != 0 {
		t.Errorf("the next export counted %+v, %v", counts, err)
	}
	if err := job.Ack(t.Context()); !errors.Is(err, client.ErrStaleLease) {
		t.Errorf("the consumer acked it: %v", err)
	}
	if left, n := bodies(t, c), r.ZCard(t.Context(), timerKey).Val(); len(left) != 0 || n != 1 {
		t.Errorf("Belfry has %v, Redis %d entries", left, n)
	}
}
