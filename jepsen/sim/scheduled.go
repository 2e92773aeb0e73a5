package sim

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/jepsen/sim/reference"
)

// firingsMax bounds the schedules that a leader plans at a time, timesMax the nominal times of each.
const firingsMax, timesMax = 4, 10_000

// actOnSchedule lets a client do something with a schedule of a queue.
func (c *crowd) actOnSchedule(q *queue) {
	w := c.w
	name := "s" + strconv.Itoa(w.r.IntN(2))
	partition := q.partitionOf(name, q.believed)
	s, held, version := w.shardOf(q, partition), q.schedules[name], uint64(2)
	if found := s.machine().Answer(&fsm.ScheduleQuery{Queue: q.name, Name: name}, w.now).Schedules; len(found) > 0 {
		version = found[0].Version
	}
	switch n := w.r.IntN(100); {
	case held == nil || n < 30:
		p := c.newSchedule(q, name)
		p.Partition, p.Partitions = partition, q.believed
		q.schedules[name] = p
		c.ask(s, "producer", p)
	case n < 40:
		again := *held
		reference.FindNext(&again, w.clock(w.r.IntN(nodesMax)))
		again.IfVersion = pick(w.r, 0, version, version, version-1)
		c.ask(s, "producer", &again)
	case n < 65:
		c.ask(s, "admin", &fsm.PauseSchedules{Queue: q.name, Names: []string{name, "none"}, Resume: w.chance(65)})
	case n < 78:
		c.ask(s, "admin", &fsm.RunSchedule{Queue: q.name, Name: name, Times: []fsm.Time{w.clock(w.r.IntN(nodesMax)).Ceil()}})
	case n < 90:
		calendar := reference.Calendar{Spec: &held.Spec}
		c.ask(s, "admin", &fsm.RunSchedule{Queue: q.name, Name: name,
			Times: calendar.Times(w.now-fsm.Time(calendar.Span(4)), w.now, 4)})
	default:
		c.ask(s, "admin", &fsm.DeleteSchedule{Queue: q.name, Name: name, CancelWaiting: w.chance(50),
			IfVersion: pick(w.r, 0, 0, version, version-1)})
	}
}

// newSchedule makes a schedule. Those that catch up with all that they missed fire seldom, so that a
// world stays small.
func (c *crowd) newSchedule(q *queue, name string) *fsm.PutSchedule {
	w := c.w
	every := pick(w.r, time.Second, 7*time.Second, time.Minute, 10*time.Minute)
	p := &fsm.PutSchedule{
		Queue: q.name, Name: name,
		Spec: fsm.ScheduleSpec{Every: every, Phase: time.Duration(w.r.IntN(3)) * every / 4,
			Jitter: pick(w.r, 0, 0, time.Second)},
		Policy: fsm.SchedulePolicy{
			CatchUp: pick(w.r, fsm.CatchUpLatest, fsm.CatchUpNone), Window: pick(w.r, 0, 0, 2*time.Second, time.Minute),
			Overlap:  fsm.Overlap(w.r.IntN(3)),
			MaxFires: pick[uint64](w.r, 0, 0, 0, 3), PauseOnDead: w.chance(20),
		},
		Job: fsm.Put{Body: binary.LittleEndian.AppendUint64(nil, w.r.Uint64())[:w.r.IntN(9)]},
	}
	if every >= time.Minute && w.chance(60) {
		p.Policy.CatchUp = fsm.CatchUpAll
	}
	if w.chance(15) {
		p.Spec.Start = w.now + fsm.Time(c.duration())
	}
	if w.chance(15) {
		p.Spec.End = w.now + fsm.Time(10*c.duration())
	}
	if q.partitions == 1 || w.chance(5) {
		p.Job.Key = c.key()
	}
	if w.chance(40) {
		p.Job.Given, p.Job.TTR = fsm.GivenTTR, c.duration()
	}
	reference.FindNext(p, w.clock(w.r.IntN(nodesMax)))
	p.ZoneData = reference.Calendar{Node: w.r.IntN(nodesMax)}.ZoneData()
	return p
}

// nextFiring is when the leader's machine has a schedule to fire, 0 for never.
func (s *shard) nextFiring() fsm.Time { return s.w.wrong.fires(s.machine().NextFiring()) }

// wakeTime is when something is to happen in a shard, by its machine.
func (s *shard) wakeTime() (fsm.Time, bool) {
	t, ok := s.deadline()
	if f := s.nextFiring(); s.w.keyed != nil && f != 0 && (!ok || f < t) {
		return f, true
	}
	return t, ok
}

// proposeFirings proposes what the scheduler of the leader would: the schedules whose time has come, by
// what they missed meanwhile. Most of the time it waits for the firings before; if it does not, the
// second ones must do nothing.
func (s *shard) proposeFirings() {
	w := s.w
	if s.leader < 0 || s.firing && !w.chance(10) {
		return
	}
	now := w.clock(s.leader)
	due := s.machine().DueSchedules(&schedules.DueQuery{Now: now, Most: firingsMax}).List
	var commands []fsm.Command
	for i := range due {
		plan, _ := schedules.Plan(&due[i], now, reference.Calendar{Node: s.leader, Spec: &due[i].Spec}, timesMax)
		for _, c := range plan {
			w.wrong.fired(c)
			commands = append(commands, c)
		}
	}
	if len(commands) > 0 {
		s.firing = true
		s.inflight = append(s.inflight, s.stamped(nil, commands...))
		w.mark("fire", uint64(s.number), uint64(len(commands)))
	}
}

// endSchedules lets all schedules do what they are behind with, then pauses them.
func (w *world) endSchedules() {
	for _, s := range w.shards {
		for try := 0; w.keyed != nil && w.violation == nil; try++ {
			s.run()
			if next := s.nextFiring(); next == 0 || next > w.clock(s.leader) {
				break
			}
			if try == triesMax {
				w.violated("schedules fire when their time has come", "shard %v has one to fire at %v, it is %v", s.number,
					s.nextFiring(), w.clock(s.leader))
			}
			s.proposeFirings()
		}
	}
	for _, q := range w.keyed {
		names := []string{"s0", "s1"}
		for p := range q.believed {
			s := w.shardOf(q, p)
			for o := w.pauseAll(s, q, names); o.state != answered && w.violation == nil; {
				o = w.pauseAll(s, q, names)
			}
		}
	}
}

func (w *world) pauseAll(s *shard, q *queue, names []string) *op {
	o := w.crowd.ask(s, "drain", &fsm.PauseSchedules{Queue: q.name, Names: names})
	s.run()
	return o
}
