package model

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// sound returns a model that holds a delayed, a reserved and a dead job, a tombstone, a finished
// lease and a remembered request.
func sound(t *testing.T) *Model {
	t.Helper()
	m := New(fsm.Config{TombstonesMax: 1, FinishedMax: 1, AnswersBytesMax: 500})
	put := func(id string, delay time.Duration) *fsm.Put {
		return &fsm.Put{Queue: "q", Partitions: 1, ID: id, Given: fsm.GivenDelay, Delay: delay}
	}
	reserve := &fsm.Reserve{Queues: []string{"q"}, Max: 1}
	lease := func(serial, fence uint64) fsm.Ref { return fsm.Ref{Queue: "q", Serial: serial, Fence: fence} }
	results := m.Apply(1_000, []fsm.Request{{ID: "r", Commands: []fsm.Command{
		put("acked", 0), put("dead", 0), put("reserved", 0), put("delayed", 1),
		reserve, &fsm.Ack{Ref: lease(1, 5)}, reserve, &fsm.Nack{Ref: lease(2, 6), Dead: true}, reserve,
	}}})
	for i, r := range results {
		if r.Code != fsm.OK {
			t.Fatalf("command %d answered %+v", i, r)
		}
	}
	if err := m.Check(); err != nil {
		t.Fatalf("a sound model: %v", err)
	}
	return m
}

func TestModelCheckFindsEachFault(t *testing.T) {
	t.Parallel()
	// The jobs of sound, in put order.
	const dead, reserved, delayed = 0, 1, 2
	for _, test := range []struct {
		name   string
		damage func(m *Model, q *queue)
		want   string
	}{
		{"a job is lost", func(_ *Model, q *queue) { q.jobs = q.jobs[:2] }, "4 put, but 2 held and 1 gone"},
		{"a job is counted out twice", func(_ *Model, q *queue) { q.Counters.Acked++ }, "4 put, but 3 held and 2 gone"},
		{"one id twice", func(_ *Model, q *queue) { q.jobs[dead].ID = "delayed" }, "is there twice"},
		{"one serial twice", func(_ *Model, q *queue) { q.jobs[reserved].Serial = q.jobs[dead].Serial }, "is there twice"},
		{"one fence twice", func(_ *Model, q *queue) { q.jobs[reserved].Fence = q.jobs[dead].Fence }, "is there twice"},
		{"a fence lives on after its ack", func(m *Model, q *queue) {
			m.finished[0].fence = q.jobs[reserved].Fence
		}, "once finished"},
		{"an ended job is held", func(_ *Model, q *queue) { q.jobs[dead].State = fsm.Acked }, "held in a state that is not"},
		{"a serial from nowhere", func(m *Model, q *queue) {
			q.jobs[delayed].Serial = m.Serial + 1
		}, "beyond the shard's serial"},
		{"a fence before its job", func(_ *Model, q *queue) { q.jobs[reserved].Fence = 1 }, "fence is not above"},
		{"reserved by nobody", func(_ *Model, q *queue) { q.jobs[delayed].State = fsm.Reserved }, "without a lease"},
		{"dead without a death", func(_ *Model, q *queue) { q.jobs[delayed].State = fsm.Dead }, "dead since never"},
		{"a job of tomorrow", func(m *Model, q *queue) { q.jobs[delayed].Created = m.Clock + 1 }, "after now"},
		{"due within a millisecond", func(_ *Model, q *queue) { q.jobs[delayed].Due++ }, "a part of a millisecond"},
		{"first due within a millisecond", func(_ *Model, q *queue) {
			q.jobs[delayed].FirstDue++
		}, "a part of a millisecond"},
		{"leased until within a millisecond", func(_ *Model, q *queue) {
			q.jobs[reserved].Until--
		}, "a part of a millisecond"},
		{"alive until within a millisecond", func(_ *Model, q *queue) { q.jobs[dead].TTL++ }, "a part of a millisecond"},
		{"a queue that was never created", func(m *Model, q *queue) { q.CreateSeq = m.QueuesCreated + 1 }, "out of order"},
		{"too many tombstones", func(m *Model, _ *queue) { m.cfg.TombstonesMax = 0 }, "1 tombstones, at most 0"},
		{"too many finished leases", func(m *Model, _ *queue) { m.cfg.FinishedMax = 0 }, "1 finished leases, at most 0"},
		{"too many answers", func(m *Model, _ *queue) { m.cfg.AnswersBytesMax = 10 }, "bytes of remembered requests"},
		{"a tombstone of a held job", func(m *Model, _ *queue) { m.tombstones[0].ID = "dead" }, "not alone with its id"},
		{"a tombstone of no queue", func(m *Model, _ *queue) { m.tombstones[0].Queue = "gone" }, "which is gone"},
		{"answers out of order", func(m *Model, _ *queue) {
			older := m.answers[0]
			older.At--
			m.answers = append(m.answers, older)
		}, "older than the one before"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := sound(t)
			test.damage(m, m.queue("q"))
			err := m.Check()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check returned %v, want an error with %q", err, test.want)
			}
		})
	}
}
