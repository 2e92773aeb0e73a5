package nodetest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// zonesAhead are time-zone data in which the zone Test/Moved is so many seconds ahead of UTC.
func zonesAhead(t *testing.T, seconds int) *calendar.Calendars {
	t.Helper()
	file := func(ahead int) *fstest.MapFile { // see RFC 9636
		b := append([]byte("TZif2"), make([]byte, 15+6*4)...) // nothing for readers of version 1
		b = append(append(b, "TZif2"...), make([]byte, 15+4*4)...)
		for _, n := range []int{1, 4, ahead} { // one type of local time, whose name has four bytes
			b = binary.BigEndian.AppendUint32(b, uint32(n))
		}
		return &fstest.MapFile{Data: append(b, "\x00\x00TST\x00\n\n"...)}
	}
	zones, err := cron.ReadZones(fstest.MapFS{"UTC": file(0), "Test/Moved": file(seconds)})
	if err != nil {
		t.Fatal(err)
	}
	return calendar.New(zones)
}

// TestNodesWithOtherZoneData: three nodes with three versions of the time-zone data lead in turn. The
// machines stay equal, each nominal time fires once, also one that another leader found, and a schedule
// whose zone all of them know alike fires as with equal data. A schedule notes the data of the leader
// that it fired with.
func TestNodesWithOtherZoneData(t *testing.T) {
	dir := t.TempDir()
	of := map[string]*calendar.Calendars{}
	for i := range 3 {
		of[fmt.Sprintf("n%d", i+1)] = zonesAhead(t, 20*i)
	}
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Configure: func(cfg *node.Config) { cfg.Calendar = of[cfg.Name].OfSchedule }})
		for _, m := range c.Members() {
			if err := m.Node.Speak(fsm.KeysFormat); err != nil {
				t.Fatal(err)
			}
		}
		now := fsm.Time(time.Now().UnixNano())
		first := now - now%fsm.Time(time.Minute) + fsm.Time(time.Minute)
		req := &fsm.Request{}
		for queue, zone := range map[string]string{"alike": "UTC", "moved": "Test/Moved"} {
			req.Commands = append(req.Commands, &fsm.PutSchedule{
				Queue: queue, Partitions: 1, Name: "s", Spec: fsm.ScheduleSpec{Cron: "* * * * *", TimeZone: zone}, Next: first,
				Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll},
			})
		}
		if _, err := c.Leader(0).Node.Do(t.Context(), 0, req); err != nil {
			t.Fatal(err)
		}
		const rounds = 9
		for round := range rounds {
			target := c.Members()[round%3]
			if leader := c.Leader(0); leader != target {
				if err := leader.Node.TransferLeader(t.Context(), "shard-0", target.ServerID); err != nil {
					t.Fatal(err)
				}
				c.Await(target.Name()+" leads", func() bool { return target.Node.Serves(0) })
			}
			time.Sleep(2*time.Minute + time.Second)
			c.Converge(0)
			for _, queue := range []string{"alike", "moved"} {
				s := scheduleOf(t, c, queue)
				if want := of[target.Name()].Zones().Version(); s.ZoneData != want || s.Counts.Missed+s.Counts.Skipped > 0 {
					t.Errorf("round %d: %s has fired with the data %s, counts %+v; %s leads, with %s", round, queue, s.ZoneData,
						s.Counts, target.Name(), want)
				}
			}
		}
		at := first
		for _, j := range firedJobs(t, c, "alike") {
			if j.Due != at {
				t.Fatalf("%s fired where %s should have", j.ID, fsm.FormatTime(at))
			}
			at += fsm.Time(time.Minute)
		}
		if got, want := at-first, fsm.Time(rounds*2*time.Minute); got < want {
			t.Errorf("the schedule whose zone is alike fired for %v, want %v", time.Duration(got), time.Duration(want))
		}
		seconds := map[fsm.Time]bool{}
		for _, j := range firedJobs(t, c, "moved") {
			seconds[j.Due%fsm.Time(time.Minute)/fsm.Time(time.Second)] = true
		}
		if len(seconds) != 3 || !seconds[0] || !seconds[20] || !seconds[40] {
			t.Errorf("by three versions of the data it fired at these seconds: %v", seconds)
		}
	})
}

// scheduleOf returns the schedule of a queue.
func scheduleOf(t *testing.T, c *Cluster, queue string) fsm.Schedule {
	t.Helper()
	reading, _, err := c.Leader(0).Node.Query(t.Context(), 0, &fsm.ScheduleQuery{Queue: queue, Name: "s"})
	if err != nil || len(reading.Schedules) != 1 {
		t.Fatalf("%d schedules, %v", len(reading.Schedules), err)
	}
	return reading.Schedules[0]
}

// firedJobs returns the jobs of the schedule of a queue, by due time, and fails the test unless it
// counted as many firings.
func firedJobs(t *testing.T, c *Cluster, queue string) []fsm.Job {
	t.Helper()
	reading, _, err := c.Leader(0).Node.Query(t.Context(), 0, &fsm.ListQuery{Queue: queue, State: fsm.Ready, Max: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range reading.Jobs {
		if i > 0 && j.Due <= reading.Jobs[i-1].Due || j.ID != fsm.ScheduleJobID("s", j.Due) {
			t.Errorf("%s, due at %s, follows %s", j.ID, fsm.FormatTime(j.Due), reading.Jobs[i-1].ID)
		}
	}
	if n := uint64(len(reading.Jobs)); n == 0 || scheduleOf(t, c, queue).Counts.Fired != n {
		t.Errorf("%s has %d jobs, and counts %+v", queue, n, scheduleOf(t, c, queue).Counts)
	}
	return reading.Jobs
}
