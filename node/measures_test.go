package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
)

// TestEndingsAreMeasured: how long jobs took from their puts to their acks, and after how many
// attempts they were acked or died.
func TestEndingsAreMeasured(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		once := put("orders", "fails", 0)
		once.Given, once.MaxAttempts = once.Given|fsm.GivenMaxAttempts, 1
		do(t, n, 0, once, put("orders", "works", 2*time.Second))
		do(t, n, 0, &fsm.Nack{Ref: refOf(reserve(t, n, 0, "orders", 0)[0])})
		do(t, n, 0, &fsm.Nack{Ref: refOf(reserve(t, n, 0, "orders", time.Minute)[0])})
		pass(3 * time.Second)
		do(t, n, 0, &fsm.Ack{Ref: refOf(reserve(t, n, 0, "orders", 0)[0])})
		got := n.Stats().Shards[0].Queues["orders"]
		if h := got.JobSeconds; h.Count != 1 || h.Sum < 5 || h.Sum > 5.01 {
			t.Errorf("%d jobs took %v s, want one that took 5", h.Count, h.Sum)
		}
		if h := got.Attempts; h.Count != 2 || h.Sum != 3 {
			t.Errorf("%d jobs took %v attempts, want 2 with 1 and 2", h.Count, h.Sum)
		}
	})
}

// everySecond is a calendar of every whole second, whose jobs are due a tenth of a second later.
type everySecond struct{}

func (everySecond) Next(t fsm.Time) fsm.Time {
	return (t/fsm.Time(time.Second) + 1) * fsm.Time(time.Second)
}

func (everySecond) Due(nominal fsm.Time) fsm.Time { return nominal.Add(time.Second / 10) }
func (everySecond) ZoneData() string              { return "" }

// TestFiringsAreMeasured: what came of firings, how late their jobs were put, and what there is of
// schedules.
func TestFiringsAreMeasured(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		cfg.Calendar = func(*fsm.Schedule) (schedules.Calendar, error) { return everySecond{}, nil }
		n := openNode(t, cfg)
		if err := n.Speak(fsm.KeysFormat); err != nil {
			t.Fatal(err)
		}
		now := fsm.Time(time.Now().UnixNano())
		pass(everySecond{}.Next(now).Add(time.Second / 4).Sub(now)) // a quarter of a second after a firing
		first := everySecond{}.Next(fsm.Time(time.Now().UnixNano())) - fsm.Time(10*time.Second)
		policy := fsm.SchedulePolicy{Overlap: fsm.OverlapSkip}
		do(t, n, 0, &fsm.PutSchedule{Queue: "reports", Partitions: 1, Name: "often", Next: first, Policy: policy},
			&fsm.PutSchedule{Queue: "reports", Partitions: 1, Name: "paused", Next: first.Add(time.Hour)},
			&fsm.PauseSchedules{Queue: "reports", Names: []string{"paused"}})
		pass(2 * time.Second)
		run := &fsm.Request{ID: "1", Commands: []fsm.Command{
			&fsm.RunSchedule{Queue: "reports", Name: "paused", Times: []fsm.Time{first, first + 1, first + 2}},
		}}
		for range 2 { // the second is answered from memory
			if _, err := n.Do(t.Context(), 0, run); err != nil {
				t.Fatal(err)
			}
		}
		got := n.Stats().Shards[0]
		if got.Fired != 1 || got.Missed != 9 || got.Skipped != 2 || got.Backfilled != 3 {
			t.Errorf("%d fired, %d missed, %d skipped, %d backfilled, want 1, 9, 2, 3",
				got.Fired, got.Missed, got.Skipped, got.Backfilled)
		}
		if h := got.FiredLateSeconds; h.Count != 1 || h.Sum < 0.149 || h.Sum > 0.16 {
			t.Errorf("%d firings were %v s late, want one that was 0.15 s late", h.Count, h.Sum)
		}
		if next := first.Add(12 * time.Second); got.NextFiring != next || !got.Leading {
			t.Errorf("the next firing is at %d, leading %v; want %d", got.NextFiring, got.Leading, next)
		}
		if m := got.Machine; m.Schedules != 2 || m.SchedulesPaused != 1 {
			t.Errorf("%d schedules, %d paused, want 2 and 1", m.Schedules, m.SchedulesPaused)
		}
	})
}
