package mirror

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client/belfrytest"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redistest"
)

// TestLook: how far behind an import is goes by the first entry that is due, claimed or not, and
// not by one without a due time. Each look that Redis answers is told, and when it was; no other
// counts.
func TestLook(t *testing.T) {
	server, c := redistest.Start(t), belfrytest.Start(t).Client(t)
	r, told := server.Client(), ImportCounts{}
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}),
		ImportOptions{Progress: func(n ImportCounts) { told = n }})
	now := time.Now().Truncate(time.Millisecond)
	add := func(key string, due time.Time) {
		if err := r.ZAdd(t.Context(), key, redis.Z{Member: due.String(), Score: float64(due.UnixMilli())}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		change func()
		want   time.Time
	}{
		{func() {}, time.Time{}},
		{func() { add(timerKey, now) }, now},
		{func() { add("belfry_handover:{orders}", now.Add(-time.Second)) }, now.Add(-time.Second)},
		{func() { add(timerKey, now.Add(-time.Minute)) }, now.Add(-time.Minute)},
		{func() { add(timerKey, time.UnixMilli(-5)) }, now.Add(-time.Second)},
		{func() { r.FlushAll(t.Context()) }, time.Time{}},
	} {
		step.change()
		before := time.Now()
		if err := i.look(t.Context()); err != nil || !told.Earliest.Equal(step.want) {
			t.Errorf("the first is due at %v, should be %v: %v", told.Earliest, step.want, err)
		}
		if told.Looked.Before(before) || told.Looked.After(time.Now()) {
			t.Errorf("a look after %v was at %v", before, told.Looked)
		}
	}
	server.Kill()
	if err := i.look(t.Context()); err == nil || !i.counts.Looked.Equal(told.Looked) {
		t.Errorf("without Redis the last look was at %v, not %v: %v", i.counts.Looked, told.Looked, err)
	}
}

// TestImportLooks: an import that has nothing left to do is not behind.
func TestImportLooks(t *testing.T) {
	r, c := redistest.Start(t).Client(), belfrytest.Start(t).Client(t)
	i := newImporter(newLink(r, c, pair.Options{RedisQueue: "orders", Share: 1}), ImportOptions{})
	i.counts.Earliest = time.Now()
	if err := r.RPush(t.Context(), listKey, "an orphan").Err(); err != nil {
		t.Fatal(err)
	}
	if counts, err := i.all(t.Context()); err != nil || !counts.Earliest.IsZero() {
		t.Errorf("the import counted %+v, %v", counts, err)
	}
}
