package nodetest

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
)

const (
	bound = clock.DefaultBound
	year  = 365 * 24 * time.Hour
)

// trueTime is what a right clock shows.
func trueTime() fsm.Time { return fsm.Time(time.Now().UnixNano()) }

// pass lets time pass.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// expectRight puts a job and fails the test unless it was stamped within the bound of true time,
// and not before last.
func expectRight(t *testing.T, leader *Member, last fsm.Time) fsm.Time {
	t.Helper()
	_, w := do(t, leader, put("x"))
	if off := w.Time.Sub(trueTime()); off.Abs() > bound {
		t.Errorf("%s stamps %v away from true time", leader.name, off)
	}
	if w.Time < last {
		t.Errorf("%s stamps %v before the stamp before", leader.name, last.Sub(w.Time))
	}
	return w.Time
}

// entrust has a member lead shard 0, or at least be elected.
func entrust(t *testing.T, c *Cluster, m *Member) {
	t.Helper()
	leader := c.Leader(0)
	if leader == m {
		return
	}
	c.Await("it answers the leader", func() bool {
		return leader.Node.Answered("shard-0", []string{m.ServerID}, 1) == nil
	})
	term := leader.status(0).Term
	if err := leader.Node.TransferLeader(t.Context(), "shard-0", m.ServerID); err != nil {
		t.Fatal(err)
	}
	c.Await("the transfer is over", func() bool { return m.status(0).Term > term })
}

// A node whose clock is wrong while those of the majority are right is elected, and stamps nothing:
// it gives the leadership away.
func TestSkewedNodeDoesNotLead(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"ahead": time.Second, "a year ahead": year, "behind": -time.Second, "just too far": bound/2 + 10*time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := New(t, Options{Dir: dir})
				skewed := c.Followers(0)[0]
				last := expectRight(t, c.Leader(0), 0)
				c.Stop(skewed) // its clock is anchored at its start
				skewed.Clock.Step(off)
				c.Start(skewed)
				c.Converge(0)
				before := skewed.index(0)
				entrust(t, c, skewed)
				leader := c.LeaderExcept(0, skewed)
				expectRight(t, leader, last)
				c.Await("it sends callers elsewhere", func() bool {
					_, err := skewed.Node.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("x")}})
					return errors.Is(err, node.ErrNotLeader)
				})
				if stamps := skewed.Node.Stats().Shards[0].Entries; stamps > 0 || skewed.index(0) < before {
					t.Errorf("the node whose clock is wrong logged %d entries", stamps)
				}
				skewed.Clock.Step(0)
				pass(10 * time.Second)
				c.Await("it no longer takes the shard to be ahead", func() bool { return !skewed.status(0).ClockAhead })
				c.Converge(0)
			})
		})
	}
}

// A replica whose clock was wrong at its start, and then set right, does not show jobs as ready
// that are not.
func TestReadWhereTheClockWasWrong(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		skewed := c.Followers(0)[0]
		c.Stop(skewed)
		skewed.Clock.Step(year)
		c.Start(skewed)
		c.Converge(0)
		skewed.Clock.Step(0)
		c.Await("its clock is followed", func() bool {
			return skewed.Node.ReadClock().Stamp.Sub(trueTime()).Abs() <= bound/2
		})
		do(t, c.Leader(0), &fsm.Put{Queue: "orders", Partitions: 1, ID: "later", Given: fsm.GivenDelay, Delay: time.Minute})
		c.Converge(0)
		read, _, err := skewed.Node.Peek(0, &fsm.JobQuery{Queue: "orders", ID: "later"})
		if err != nil || len(read.Jobs) != 1 || read.Jobs[0].State != fsm.Delayed {
			t.Errorf("a job that is due in a minute is read as %+v, %v", read.Jobs, err)
		}
	})
}

// A leader that is paused gets no answers about the time, so it stamps nothing.
func TestLeaderWithoutAMajorityOfClocksStampsNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		old := c.Leader(0)
		expectRight(t, old, 0)
		c.Mute()
		if err := old.Node.TransferLeader(t.Context(), "shard-0", ""); err != nil {
			t.Fatal(err)
		}
		elected := func() (m *Member) {
			for _, m := range c.Members() {
				if m.status(0).Role == node.Leader {
					return m
				}
			}
			return nil
		}
		c.Await("another is elected", func() bool { return elected() != nil && elected() != old })
		pass(20 * time.Second)
		next := elected()
		if next == nil || next.status(0).Serving {
			t.Fatalf("the leader is %+v", next)
		}
		if _, err := next.Node.Do(t.Context(), 0,
			&fsm.Request{Commands: []fsm.Command{put("x")}}); node.OutcomeOf(err) != node.NotApplied || err == nil {
			t.Errorf("a put ended with %v", err)
		}
		c.Unmute()
		expectRight(t, c.Leader(0), 0)
	})
}

// Nodes that start together elect before they can ask one another for the time. That is trouble
// only if it lasts.
func TestClocksThatCannotBeReadYetAreNoTrouble(t *testing.T) {
	for _, test := range []struct {
		mute    time.Duration
		trouble bool
	}{{time.Second, false}, {10 * time.Second, true}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			c := New(t, Options{
				Dir: dir, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			for _, m := range c.Members() {
				c.Stop(m)
			}
			said.Reset()
			c.Mute()
			for _, m := range c.Members() {
				c.Start(m)
			}
			pass(test.mute)
			c.Unmute()
			c.Leader(0)
			synctest.Wait()
			if got := strings.Contains(said.String(), "comparing clocks"); got != test.trouble {
				t.Errorf("after %v without clocks the log says: %s", test.mute, &said)
			}
		})
	}
}

// A comparison that fails because the leadership has ended meanwhile is no trouble.
func TestComparisonThatIsCutShortIsNotComplainedOf(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		c := New(t, Options{
			Dir: dir, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
		leader, next := c.Leader(0), c.Followers(0)[0]
		synctest.Wait()
		c.options.Latency = time.Second // longer than a leader that is cut off leads
		if err := leader.Node.TransferLeader(t.Context(), "shard-0", next.ServerID); err != nil {
			t.Fatal(err)
		}
		c.Await("it leads, and compares its clock", func() bool { return next.status(0).Role == node.Leader })
		c.Isolate(next)
		c.Await("it leads no more", func() bool { return next.status(0).Role != node.Leader })
		synctest.Wait()
		if strings.Contains(said.String(), "comparing clocks") {
			t.Errorf("it was said: %s", said.String())
		}
	})
}

// Clocks that are all within half the bound of true time, in turn at the head: time runs forwards
// and near true time.
func TestLeadersChangeBetweenSkewedNodes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir, Latency: 30 * time.Millisecond})
		for i, m := range c.Members() {
			m.Clock.Step(time.Duration(i-1) * bound * 2 / 5)
			c.Stop(m)
			c.Start(m)
		}
		var last fsm.Time
		led := map[*Member]int{}
		for round := range 9 {
			entrust(t, c, c.Members()[round%3])
			leader := c.Leader(0)
			led[leader]++
			for range 3 {
				last = expectRight(t, leader, last)
				pass(time.Second)
			}
		}
		if len(led) < 3 {
			t.Errorf("only %d members led", len(led))
		}
		c.Converge(0)
	})
}

// Whatever one node's wall clock does, the shard's time stays near true time and never runs back.
func TestOneWildClock(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		wild := c.Leader(0)
		last := expectRight(t, wild, 0)
		for i, off := range []time.Duration{time.Hour, -time.Hour, bound, 50 * year, -bound, 0} {
			wild.Clock.Step(off)
			if i%2 == 0 {
				entrust(t, c, wild)
			}
			for range 20 {
				pass(3 * time.Second)
				last = expectRight(t, c.Leader(0), last)
			}
		}
		c.Converge(0)
	})
}

// A machine that was suspended, or whose clock was set right late, comes back to true time at once.
func TestSuspendedNode(t *testing.T) {
	for name, everybody := range map[string]bool{"a leader alone": false, "all at once": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := New(t, Options{Dir: dir})
				leader := c.Leader(0)
				last := expectRight(t, leader, 0)
				const moment = 100 * time.Millisecond
				for range time.Minute / moment { // in which their monotonic clocks stand still
					pass(moment)
					for _, m := range c.Members() {
						if everybody || m == leader {
							m.Clock.Miss(moment)
						}
					}
				}
				c.Await("time is right again", func() bool {
					_, w := do(t, c.Leader(0), put("x"))
					return w.Time.Sub(trueTime()).Abs() <= bound/2
				})
				expectRight(t, c.Leader(0), last)
				entrust(t, c, leader)
				if c.Leader(0) != leader {
					t.Error("the node that was suspended does not lead, although its clock is right")
				}
				last = expectRight(t, leader, last)
				pass(time.Hour) // a clock that was not anchored anew would draw the shard's time back by almost two seconds
				expectRight(t, c.Leader(0), last)
			})
		})
	}
}

// A node whose clock is set right long after its start leads from then on.
func TestLateSynchronisation(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := New(t, Options{Dir: dir})
		late := c.Followers(0)[0]
		c.Stop(late)
		late.Clock.Step(-20 * year)
		c.Start(late)
		c.Converge(0)
		entrust(t, c, late)
		if leader := c.LeaderExcept(0, late); leader == late {
			t.Error("it leads in the wrong year")
		}
		late.Clock.Step(0)
		c.Await("it leads", func() bool {
			entrust(t, c, late)
			pass(time.Second)
			return c.Leader(0) == late
		})
		last := expectRight(t, late, 0)
		pass(time.Hour) // in which a clock that is not anchored anew, but slewed, loses almost two seconds
		expectRight(t, c.Leader(0), last)
	})
}

// A cluster that was founded in the wrong year finds that out when nodes with right clocks lead it,
// goes on, and is brought back by nothing but a reset, after which no leader takes it there again.
func TestFoundedInTheWrongYear(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		wrong := 70 * year
		c := New(t, Options{Dir: dir, Clocks: []time.Duration{wrong}})
		founder := c.Members()[0]
		c.Await("a node with a right clock leads", func() bool { return c.Leader(0) != founder }) // two of three are right
		leader := c.Leader(0)
		result, w := do(t, leader, &fsm.Put{
			Queue: "orders", Partitions: 1, ID: "soon", Given: fsm.GivenDelay, Delay: time.Minute,
		})
		if ahead := w.Time.Sub(trueTime()); ahead < wrong-time.Minute {
			t.Fatalf("the shard is %v ahead", ahead)
		}
		g := reserveOne(t, leader)
		if st := leader.status(0); !st.ClockAhead || st.ClockAheadBy < wrong-time.Minute {
			t.Errorf("the status does not say so: %+v", st)
		}
		follower := c.Followers(0)[0]
		if _, err := follower.Node.ResetClock(t.Context(), 0); !errors.Is(err, node.ErrNotLeader) {
			t.Errorf("a follower answered %v", err)
		}
		reset, err := leader.Node.ResetClock(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if reset.From < w.Time || reset.To.Sub(trueTime()).Abs() > bound/2 {
			t.Errorf("the reset says %+v", reset)
		}
		if again, err := leader.Node.ResetClock(t.Context(), 0); err != nil || again.From != again.To {
			t.Errorf("a second reset says %+v, %v", again, err)
		}
		last := expectRight(t, leader, 0)
		if st := leader.status(0); st.ClockAhead {
			t.Errorf("after the reset the status is %+v", st)
		}
		if left := held(t, leader, g).Until.Sub(trueTime()); left < time.Minute || left > time.Minute+2*bound+time.Second {
			t.Errorf("%v are left of a lease of a minute", left)
		}
		founder.Clock.Step(0)
		for _, m := range c.Members() { // also the one that led in the wrong year
			entrust(t, c, m)
			last = expectRight(t, c.Leader(0), last)
		}
		pass(time.Minute + bound)
		queue, _, err := c.Leader(0).Node.Query(t.Context(), 0, &fsm.JobQuery{Queue: "orders", ID: "soon"})
		if err != nil || len(queue.Jobs) != 1 || queue.Jobs[0].State != fsm.Ready {
			t.Errorf("the job that was put for serial %d is %+v, %v", result.Serial, queue.Jobs, err)
		}
		c.Converge(0)
	})
}

// The time of a shard is moved back only to where a majority of the voters agrees that it is: not
// while all clocks differ, nor while no node tells the time.
func TestResetWithoutAMajorityIsRefused(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		wrong := 70 * year
		c := New(t, Options{Dir: dir, Clocks: []time.Duration{wrong}})
		founder := c.Members()[0]
		for c.Leader(0) == founder {
			pass(time.Second)
		}
		leader := c.Leader(0)
		refused := func(why string) {
			t.Helper()
			_, before := do(t, leader, put("before"))
			reset, err := leader.Node.ResetClock(t.Context(), 0)
			if !errors.Is(err, node.ErrClockAhead) || node.OutcomeOf(err) != node.NotApplied {
				t.Fatalf("%s: the reset says %+v, %v", why, reset, err)
			}
			if _, after := do(t, leader, put("after")); after.Time < before.Time || after.Index != before.Index+1 {
				t.Errorf("%s: after the refusal an entry is stamped %v before the one before, at %d after %d", why,
					before.Time.Sub(after.Time), after.Index, before.Index)
			}
		}
		other := c.Followers(0)[0]
		if other == founder {
			other = c.Followers(0)[1]
		}
		restartAt := func(off time.Duration) {
			c.Stop(other) // its clock is anchored at its start
			other.Clock.Step(off)
			c.Start(other)
			c.Converge(0)
			pass(10 * time.Second) // what it said of its clock before counts for a while
		}
		restartAt(-10 * time.Second)
		refused("three clocks differ")
		restartAt(0)
		c.Mute()
		pass(10 * time.Second)
		refused("nobody tells the time")
		c.Unmute()
		pass(10 * time.Second)
		if reset, err := leader.Node.ResetClock(t.Context(), 0); err != nil || reset.From.Sub(reset.To) < wrong-time.Minute {
			t.Errorf("two of three clocks agree: %+v, %v", reset, err)
		}
		expectRight(t, leader, 0)
	})
}

// reserveOne puts a job and takes it for a minute.
func reserveOne(t *testing.T, m *Member) fsm.Grant {
	t.Helper()
	do(t, m, put("now"))
	return reserve(t, m)
}
