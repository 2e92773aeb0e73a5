package nodetest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node"
)

// everySecond is a calendar of every whole second.
type everySecond struct{}

func (everySecond) Next(t fsm.Time) fsm.Time {
	return (t/fsm.Time(time.Second) + 1) * fsm.Time(time.Second)
}

func (everySecond) Due(nominal fsm.Time) fsm.Time { return nominal }
func (everySecond) ZoneData() string              { return "" }

// TestSchedulesOutliveLeaders: over many changes of the leader, also while no node runs, each schedule
// puts one job for each nominal time, and leaves none out.
func TestSchedulesOutliveLeaders(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) {
			cfg.Calendar = func(*fsm.Schedule) (schedules.Calendar, error) { return everySecond{}, nil }
		}})
		for _, m := range c.Members() {
			if err := m.Node.Speak(fsm.KeysFormat); err != nil {
				t.Fatal(err)
			}
		}
		const count = 5
		first := everySecond{}.Next(fsm.Time(time.Now().UnixNano()))
		req := &fsm.Request{}
		for i := range count {
			req.Commands = append(req.Commands, &fsm.PutSchedule{
				Queue: fmt.Sprintf("q%d", i), Partitions: 1, Name: "s", Next: first,
				Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
			})
		}
		if _, err := c.Leader(0).Node.Do(t.Context(), 0, req); err != nil {
			t.Fatal(err)
		}
		for round := range 12 {
			time.Sleep(time.Duration(1500+377*round) * time.Millisecond)
			leader := c.Leader(0)
			switch round % 4 {
			case 0: // it hands the leadership over
				c.Shut(leader)()
				c.Start(leader)
			case 1: // it does not know that another one leads
				c.Isolate(leader)
				c.LeaderExcept(0, leader)
				time.Sleep(3 * time.Second)
				c.Heal(leader)
			case 2:
				c.Stop(leader)
				c.Leader(0)
				c.Start(leader)
			case 3:
				for _, m := range c.Members() {
					c.Stop(m)
				}
				time.Sleep(5 * time.Second)
				for _, m := range c.Members() {
					c.Start(m)
				}
			}
			c.Converge(0)
		}
		checkFirings(t, c, count, first)
	})
}

// checkFirings fails the test unless each queue has the job of each second from the first one on.
func checkFirings(t *testing.T, c *Cluster, count int, first fsm.Time) {
	t.Helper()
	last := fsm.Time(time.Now().UnixNano()) - fsm.Time(2*time.Second)
	for i := range count {
		list := &fsm.ListQuery{Queue: fmt.Sprintf("q%d", i), State: fsm.Ready, Max: 10_000}
		reading, _, err := c.Leader(0).Node.Query(t.Context(), 0, list)
		if err != nil {
			t.Fatal(err)
		}
		at := first
		for _, j := range reading.Jobs {
			if want := fsm.ScheduleJobID("s", at); j.ID != want || j.Due != at {
				t.Fatalf("%s has job %s, due at %d, where %s should be", list.Queue, j.ID, j.Due, want)
			}
			at += fsm.Time(time.Second)
		}
		if at < last {
			t.Errorf("%s has %d jobs, the last of %s", list.Queue, len(reading.Jobs), fsm.FormatTime(at-fsm.Time(time.Second)))
		}
	}
}
