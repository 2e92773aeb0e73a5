package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/clock"
)

// keyedQueue has the jobs with keys, and the schedules.
const keyedQueue = "shops"

// keyNames and scheduleNames are few, so that calls meet.
func keyNames() []string      { return []string{"k0", "k1", "k2"} }
func scheduleNames() []string { return []string{"s0", "s1"} }

// calendar has the nominal times of a schedule that fires every so often.
type calendar struct{ every time.Duration }

// newCalendar implements node.Config.Calendar.
func newCalendar(s *fsm.Schedule) (schedules.Calendar, error) { return calendar{s.Spec.Every}, nil }

// Next implements schedules.Calendar.
func (c calendar) Next(t fsm.Time) fsm.Time { return (t/fsm.Time(c.every) + 1) * fsm.Time(c.every) }

// Due implements schedules.Calendar.
func (calendar) Due(nominal fsm.Time) fsm.Time { return nominal }

// ZoneData implements schedules.Calendar.
func (calendar) ZoneData() string { return "" }

// nominal is what the ledger knows of the times of schedules.
func nominal(spec *fsm.ScheduleSpec, after fsm.Time) (fsm.Time, bool) {
	return calendar{spec.Every}.Next(after), true
}

// useKeys does something with the queue that has keys.
func (c *client) useKeys(ctx context.Context) {
	key := keyNames()[c.random.IntN(len(keyNames()))]
	switch n := c.random.IntN(30); {
	case n == 0:
		c.do(ctx, &fsm.PauseKey{Queue: keyedQueue, Key: key}, 0)
	case n < 3:
		c.do(ctx, &fsm.PauseKey{Queue: keyedQueue, Key: key, Resume: true}, 0)
	case n == 3:
		c.do(ctx, &fsm.PurgeKey{Queue: keyedQueue, Key: key, States: fsm.Set(fsm.Ready, fsm.Dead)}, 0)
	case n == 4:
		c.configureKeys(ctx, c.keySettings())
	case n < 11:
		c.useSchedule(ctx, scheduleNames()[c.random.IntN(len(scheduleNames()))])
	default:
		c.putKeyed(ctx, key)
	}
}

// keySettings draws limits of keys. Servers do not change ordered while a queue holds jobs, so it is
// always the same.
func (c *client) keySettings() fsm.KeySettings {
	k := fsm.KeySettings{Ordered: c.world.plan.ordered, Concurrency: 1, Fair: c.chance(3), HoldOnDead: c.chance(5)}
	if !k.Ordered {
		k.Concurrency = uint32(c.random.IntN(3))
	}
	if c.chance(3) {
		k.Rate = fsm.KeyRate{Count: 1 + uint32(c.random.IntN(3)), Per: time.Second}
	}
	return k
}

// configureKeys sets the limits of the keys.
func (c *client) configureKeys(ctx context.Context, keys fsm.KeySettings) {
	version := c.world.settings.Add(1)
	c.do(ctx, &fsm.Configure{
		Queue: keyedQueue, Partitions: 1, Version: version, Settings: fsm.Settings{Keys: keys},
	}, 0)
}

// putKeyed puts a job, often over one that has its id.
func (c *client) putKeyed(ctx context.Context, key string) {
	put := &fsm.Put{
		Queue: keyedQueue, Partitions: 1, Key: key,
		Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenMaxAttempts | fsm.GivenRetryDelays, RetryDelays: retryDelays(),
		Delay: c.upTo(delayMax / 3), TTR: time.Second + c.upTo(6*time.Second), MaxAttempts: 1 + uint32(c.random.IntN(3)),
		Body: fmt.Appendf(nil, "%s %d", c.name, c.serial),
	}
	if c.chance(2) {
		put.ID = fmt.Sprintf("%s-%d", key, c.random.IntN(3))
		put.OnExisting = []fsm.OnExisting{
			fsm.KeepExisting, fsm.ReplaceExisting, fsm.NextExisting, fsm.NextExisting,
		}[c.random.IntN(4)]
		if put.OnExisting != fsm.KeepExisting && c.chance(3) {
			put.MaxWait = time.Second + c.upTo(delayMax/3)
		}
	}
	c.do(ctx, put, 0)
}

// useSchedule puts, pauses, runs or deletes a schedule.
func (c *client) useSchedule(ctx context.Context, name string) {
	now := fsm.Time(time.Now().UnixNano())
	switch n := c.random.IntN(12); n {
	case 0:
		c.do(ctx, &fsm.DeleteSchedule{Queue: keyedQueue, Name: name, CancelWaiting: c.chance(2)}, 0)
	case 1, 2, 3, 4:
		c.do(ctx, &fsm.PauseSchedules{Queue: keyedQueue, Names: []string{name, "none"}, Resume: n > 1}, 0)
	case 5:
		c.do(ctx, &fsm.RunSchedule{Queue: keyedQueue, Name: name, Times: []fsm.Time{now.Ceil()}}, 0)
	default:
		c.do(ctx, c.newSchedule(name, now), 0)
	}
}

// newSchedule draws a schedule as a caller puts it whose clock is right. The clock of one in five is
// ahead by more than a right one can be, whatever the shard's is.
func (c *client) newSchedule(name string, now fsm.Time) *fsm.PutSchedule {
	every := []time.Duration{time.Second, 7 * time.Second, 20 * time.Second}[c.random.IntN(3)]
	if c.chance(5) {
		now = now.Add(fsm.CallerAheadMax + clock.DefaultBound + c.upTo(delayMax))
	}
	return &fsm.PutSchedule{
		Queue: keyedQueue, Partitions: 1, Name: name, Spec: fsm.ScheduleSpec{Every: every},
		Policy: fsm.SchedulePolicy{
			CatchUp: []fsm.CatchUp{fsm.CatchUpLatest, fsm.CatchUpAll, fsm.CatchUpNone}[c.random.IntN(3)],
			Overlap: fsm.Overlap(c.random.IntN(3)),
		},
		Job: fsm.Put{
			Key: keyNames()[0], Given: fsm.GivenTTR | fsm.GivenRetryDelays, TTR: 3 * time.Second, RetryDelays: retryDelays(),
			Body: fmt.Appendf(nil, "%s %d", c.name, c.serial),
		},
		Next: calendar{every}.Next(now), NextAfter: now,
	}
}

// endKeys ends all schedules and lets every key go on, so that the queue can be drained.
func (c *client) endKeys(ctx context.Context) {
	for _, name := range scheduleNames() {
		c.do(ctx, &fsm.DeleteSchedule{Queue: keyedQueue, Name: name}, 0)
	}
	for _, key := range keyNames() {
		c.do(ctx, &fsm.PauseKey{Queue: keyedQueue, Key: key, Resume: true}, 0)
	}
	c.configureKeys(ctx, fsm.KeySettings{Ordered: c.world.plan.ordered, Concurrency: 1})
}
