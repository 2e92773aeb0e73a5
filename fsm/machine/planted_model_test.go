package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model"
)

// plantedSeeds is how many seeds may pass before a planted change is noticed.
const plantedSeeds = 1500

// TestModelNoticesPlanted shows that the comparison can fail: each change of a rule must be
// noticed.
func TestModelNoticesPlanted(t *testing.T) {
	t.Parallel()
	for _, wrong := range plants() {
		t.Run(wrong.name, func(t *testing.T) {
			t.Parallel()
			seen, failed := effort{firstSeed: 1, seeds: plantedSeeds, commands: commandsDefault}.run(wrong)
			if failed == nil {
				t.Fatalf("not noticed in %s", seen.totals())
			}
			t.Logf("noticed by seed %d", failed.seed)
		})
	}
}

func plants() []plant {
	return slices.Concat(plantedMemory(), plantedSteps(), plantedCommands(), plantedResults())
}

// configured is a plant in the bounds of what is remembered.
func configured(name string, change func(*fsm.Config)) plant {
	p := asItIs()
	p.name, p.config = name, change
	return p
}

func plantedMemory() []plant {
	return []plant{
		configured("one tombstone more", func(c *fsm.Config) {
			if c.TombstonesMax > 0 {
				c.TombstonesMax++
			}
		}),
		configured("one finished lease more", func(c *fsm.Config) {
			if c.FinishedMax > 0 {
				c.FinishedMax++
			}
		}),
		configured("one queue more", func(c *fsm.Config) {
			if c.QueuesMax > 0 {
				c.QueuesMax++
			}
		}),
		configured("one key more is woken", func(c *fsm.Config) {
			if c.WakeMax > 0 {
				c.WakeMax++
			}
		}),
		configured("more room for answers", func(c *fsm.Config) {
			if c.AnswersBytesMax > 0 {
				c.AnswersBytesMax += 20
			}
		}),
	}
}

func plantedSteps() []plant {
	none := func(*fsm.Config) {}
	return []plant{
		{"an entry for each request", none, func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
			var list []fsm.Result
			for i := range requests {
				list = append(list, m.Apply(stamp, requests[i:i+1])...)
			}
			return list
		}},
		{"swept twice", none, func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
			list := m.Apply(stamp, requests)
			m.Apply(stamp, nil)
			return list
		}},
		{"settled when nobody asked", none, func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
			return m.Apply(stamp,
				append(slices.Clone(requests),
					fsm.Request{Commands: do(&fsm.Ack{Ref: fsm.Ref{Queue: "b"}})}))[:commandsIn(requests)]
		}},
	}
}

func commandsIn(requests []fsm.Request) int {
	n := 0
	for i := range requests {
		n += len(requests[i].Commands)
	}
	return n
}

// asked is a plant in the commands of one type. Requests with an id stay as they are, since their
// hash would tell.
func asked[C any](name string, change func(c *C)) plant {
	p := asItIs()
	p.name = name
	p.apply = func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
		requests = slices.Clone(requests)
		for i := range requests {
			if requests[i].ID != "" {
				continue
			}
			requests[i].Commands = slices.Clone(requests[i].Commands)
			for j, command := range requests[i].Commands {
				if c, ok := any(command).(*C); ok {
					changed := *c
					change(&changed)
					requests[i].Commands[j] = any(&changed).(fsm.Command)
				}
			}
		}
		return m.Apply(stamp, requests)
	}
	return p
}

func plantedCommands() []plant {
	return []plant{
		anonymous(),
		asked("a put never comes again", func(c *fsm.Put) { c.Again = false }),
		asked("a lease of 30 s for everyone", func(c *fsm.Reserve) { c.TTR = max(c.TTR, 30*time.Second) }),
		asked("a reserve knows no bound", func(c *fsm.Reserve) { c.Bytes = 0 }),
		asked("an exact fit is too much", func(c *fsm.Reserve) { c.Bytes = max(c.Bytes, 1) - 1 }),
		asked("a byte too much fits", func(c *fsm.Reserve) {
			if c.Bytes > 0 {
				c.Bytes++
			}
		}),
		asked("a delay is rounded before it is added", func(c *fsm.Nack) { c.Delay = (c.Delay + ms - 1).Truncate(ms) }),
		asked("a due time is rounded down", func(c *fsm.Reschedule) { c.DueAt -= c.DueAt % fsm.Time(ms) }),
		asked("a lease is rounded before it is granted", func(c *fsm.Reserve) { c.TTR = (c.TTR + ms - 1).Truncate(ms) }),
		asked("queues in another order", func(c *fsm.Reserve) {
			c.Queues = slices.Clone(c.Queues)
			slices.Reverse(c.Queues)
		}),
		asked("the error of a nack is lost", func(c *fsm.Nack) { c.Error = "" }),
		asked("a nack never kills", func(c *fsm.Nack) { c.Dead = false }),
		asked("the schedule decides always", func(c *fsm.Nack) { c.DelayGiven = false }),
		asked("a release is a nanosecond late", func(c *fsm.Release) { c.Delay++ }),
		asked("extend forgets the length", func(c *fsm.Extend) { c.TTR = max(c.TTR, 30*time.Second) }),
		asked("cancel with force", func(c *fsm.Cancel) { c.Force = true }),
		asked("no grace", func(c *fsm.Lead) { c.Grace = 0 }),
		asked("no grace when the time is reset", func(c *fsm.ResetClock) { c.Grace = 0 }),
		asked("the time is reset a millisecond less", func(c *fsm.ResetClock) { c.To = c.To.Add(ms) }),
		asked("the last id is not redriven", func(c *fsm.Redrive) { c.IDs = c.IDs[:max(1, len(c.IDs))-1] }),
		asked("purge leaves the dead", func(c *fsm.Purge) { c.States &^= fsm.Set(fsm.Dead) }),
		asked("a key may have one lease more", func(c *fsm.Configure) {
			if c.Settings.Keys.Concurrency > 0 {
				c.Settings.Keys.Concurrency++
			}
		}),
		asked("jobs of a key in any order", func(c *fsm.Configure) {
			if c.Settings.Keys.Ordered {
				c.Settings.Keys.Ordered, c.Settings.Keys.Concurrency = false, 1
			}
		}),
		asked("a bucket has a token more", func(c *fsm.Configure) { c.Settings.Keys.Rate.Burst++ }),
		asked("keys take no turns", func(c *fsm.Configure) { c.Settings.Keys.Fair = false }),
		asked("a dead job holds nothing", func(c *fsm.Configure) { c.Settings.Keys.HoldOnDead = false }),
		asked("a put is kept", func(c *fsm.Put) { c.OnExisting = min(c.OnExisting, fsm.KeepExisting) }),
		asked("a put waits without end", func(c *fsm.Put) { c.MaxWait = 0 }),
		asked("the version does not matter", func(c *fsm.Put) { c.IfVersion = 0 }),
		asked("a purge takes all jobs of a key", func(c *fsm.PurgeKey) { c.States = 0xff }),
		asked("a firing is due at once", func(c *fsm.Fire) { c.Due = c.Put }),
		asked("a missed firing is not counted", func(c *fsm.Fire) { c.Missed = min(c.Missed, 1) }),
		asked("firings overlap", func(c *fsm.PutSchedule) { c.Policy.Overlap = fsm.OverlapAllow }),
		asked("a schedule has no last firing", func(c *fsm.PutSchedule) { c.Policy.MaxFires = 0 }),
		asked("a schedule of any version is replaced", func(c *fsm.PutSchedule) { c.IfVersion = 0 }),
		asked("a schedule of any version is deleted", func(c *fsm.DeleteSchedule) { c.IfVersion = 0 }),
		asked("the priority of a release is lost", func(c *fsm.Release) { c.PriorityGiven = false }),
		asked("the priority of a nack is lost", func(c *fsm.Nack) { c.PriorityGiven = false }),
		asked("a FIFO job has no place of its own", func(c *fsm.Put) { c.FIFO = false }),
		asked("a priority has 31 bits", func(c *fsm.Put) { c.Priority = min(c.Priority, 1<<31-1) }),
		asked("one job more is kicked", func(c *fsm.Kick) { c.Max++ }),
		asked("the length of the lease of one job does not count", func(c *fsm.ReserveJob) { c.TTR = 0 }),
		asked("a dead job pauses nothing", func(c *fsm.PutSchedule) { c.Policy.PauseOnDead = false }),
	}
}

// anonymous is a plant that forgets the clients of requests.
func anonymous() plant {
	p := asItIs()
	p.name = "nobody knows who holds a job"
	p.apply = func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
		requests = slices.Clone(requests)
		for i := range requests {
			requests[i].Client = ""
		}
		return m.Apply(stamp, requests)
	}
	return p
}

// answered is a plant in results.
func answered(name string, change func(*fsm.Result)) plant {
	p := asItIs()
	p.name = name
	p.apply = func(m *model.Model, stamp fsm.Time, requests []fsm.Request) []fsm.Result {
		list := m.Apply(stamp, requests)
		for i := range list {
			change(&list[i])
		}
		return list
	}
	return p
}

func plantedResults() []plant {
	return []plant{
		answered("a wait is a nanosecond short", func(r *fsm.Result) { r.Wait = max(0, r.Wait-1) }),
		answered("nobody says that an answer is a repeated one", func(r *fsm.Result) { r.Replayed = false }),
		answered("nothing is ever left to do", func(r *fsm.Result) { r.More = false }),
		answered("how a job ended is not told", func(r *fsm.Result) {
			if r.Code == fsm.JobNotFound {
				r.State = fsm.StateNone
			}
		}),
		answered("an attempt is not counted", func(r *fsm.Result) {
			for i := range r.Grants {
				r.Grants[i].Attempt = 1
			}
		}),
	}
}
