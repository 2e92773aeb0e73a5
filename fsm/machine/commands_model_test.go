package machine_test

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// command returns a command, the common ones more often.
func (g *generator) command() fsm.Command {
	if g.single && g.chance(15) {
		return g.oneJob()
	}
	switch n := g.r.IntN(100); {
	case n < 28:
		return g.put()
	case n < 35:
		return g.scheduleCommand()
	case n < 51:
		return g.reserve()
	case n < 58:
		return &fsm.Ack{Ref: g.ref()}
	case n < 65:
		return g.nack()
	case n < 72:
		return g.release()
	case n < 74:
		return g.oneJob()
	case n < 76:
		return &fsm.Extend{Ref: g.ref(), TTR: pick(g, 0, g.duration())}
	case n < 79:
		return &fsm.Cancel{Queue: g.queue(), ID: g.id(), Key: g.keyAsked(), Force: g.chance(50)}
	case n < 83:
		return g.reschedule()
	case n < 86:
		return g.redrive()
	case n < 92:
		return g.control()
	case n < 94:
		return g.keyControl()
	case n < 96:
		return &fsm.Expire{}
	case n < 97:
		return g.resetClock()
	default:
		return &fsm.Lead{Grace: g.duration()}
	}
}

// resetClock moves the time back, and the leader's clock with it: stamps of the time taken back
// would undo it at once.
func (g *generator) resetClock() fsm.Command {
	g.now = max(start, g.now-fsm.Time(pick(g, g.duration(), 24*time.Hour)))
	return &fsm.ResetClock{To: g.now, Grace: g.duration()}
}

// control returns one of the commands about whole queues.
func (g *generator) control() fsm.Command {
	queue := g.queue()
	partition, partitions := g.partition(queue)
	switch n := g.r.IntN(100); {
	case n < 15:
		return &fsm.Purge{Queue: queue, States: fsm.StateSet(g.r.Uint32()), Max: uint32(g.r.IntN(4))}
	case n < 30:
		return &fsm.DeleteQueue{Queue: queue}
	case n < 45:
		return &fsm.Open{Queue: queue, Partition: partition, Partitions: partitions}
	default:
		return &fsm.Configure{
			Queue: queue, Partition: partition, Partitions: partitions, Version: uint64(g.r.IntN(30)), Settings: g.settings(),
		}
	}
}

// queue returns the name of a queue; "never" is named, and is created only by an Open.
func (g *generator) queue() string {
	return pick(g, "a", "a", "a", "b", "b", "ns/part", "ns/part", "never")
}

// partition returns how a caller routes to a queue: in most cases correctly.
func (g *generator) partition(queue string) (partition, partitions uint32) {
	if g.chance(4) {
		return uint32(g.r.IntN(3)), uint32(g.r.IntN(4))
	}
	switch queue {
	case "ns/part":
		return 1, 3
	case "never":
		return 1, 2
	}
	return 0, 1
}

func (g *generator) id() string {
	if len(g.made) > 0 && g.chance(40) {
		return pick(g, g.made...)
	}
	return pick(g, jobIDs()...)
}

func (g *generator) put() *fsm.Put {
	p := &fsm.Put{Queue: g.queue(), ID: pick(g, jobIDs()...), Again: g.chance(15)}
	p.Partition, p.Partitions = g.partition(p.Queue)
	g.existing(p)
	p.FIFO = g.chance(30)
	if g.chance(60) { // few contents, so that some are equal
		if g.chance(50) {
			p.Given, p.Delay = fsm.GivenDelay, pick(g, 0, time.Millisecond, time.Second)
		}
		return p
	}
	switch g.r.IntN(3) {
	case 0:
		p.Given, p.Delay = p.Given|fsm.GivenDelay, g.duration()
	case 1:
		p.Given, p.DueAt = p.Given|fsm.GivenDueAt, g.now+fsm.Time(pick[time.Duration](g, -1, 1)*g.duration()+g.far())
	}
	if g.chance(30) {
		p.Given, p.TTR = p.Given|fsm.GivenTTR, g.duration()
	}
	if g.chance(30) {
		p.Given, p.Priority = p.Given|fsm.GivenPriority, g.priority()
	}
	if g.chance(30) {
		p.Given, p.MaxAttempts = p.Given|fsm.GivenMaxAttempts, uint32(g.r.IntN(4))
	}
	if g.chance(30) {
		p.Given, p.RetryDelays = p.Given|fsm.GivenRetryDelays, g.retryDelays()
	}
	if g.chance(50) {
		p.Given, p.TTL = p.Given|fsm.GivenTTL, g.duration()
	}
	for i := range g.r.IntN(3) {
		p.Headers = append(p.Headers, fsm.Header{Name: string(rune('m' + i)), Value: pick(g, "", "v", "value")})
	}
	p.Body = make([]byte, pick(g, 0, 1, 7, 100, 40_000*g.r.IntN(2)))
	for i := range p.Body {
		p.Body[i] = byte(i)
	}
	return p
}

// existing adds a key, and what happens to a job of that id that exists.
func (g *generator) existing(p *fsm.Put) {
	if g.chance(40) {
		p.Key = pick(g, jobKeys()...)
	}
	if !g.chance(30) {
		return
	}
	p.OnExisting = pick(g, fsm.KeepExisting, fsm.ReplaceExisting, fsm.NextExisting)
	if g.chance(30) {
		p.MaxWait = g.duration()
	}
	if g.chance(30) {
		p.IfVersion = 1 + g.r.Uint64N(3)
	}
}

// keyControl returns a command about a key.
func (g *generator) keyControl() fsm.Command {
	if g.chance(30) {
		return &fsm.PurgeKey{
			Queue: g.queue(), Key: g.key(), States: fsm.StateSet(g.r.Uint32()), Max: uint32(g.r.IntN(4)),
		}
	}
	return &fsm.PauseKey{Queue: g.queue(), Key: g.key(), Resume: g.chance(60)}
}

// keyAsked is a key that a command about a job names: mostly none.
func (g *generator) keyAsked() string {
	if g.chance(80) {
		return ""
	}
	return g.key()
}

func (g *generator) key() string { return pick(g, append(jobKeys(), "")...) }

func (g *generator) keySettings() (s fsm.KeySettings) {
	if g.chance(40) {
		return s
	}
	s.Concurrency = uint32(g.r.IntN(3))
	if g.chance(40) {
		s.Rate = fsm.KeyRate{Count: 1 + uint32(g.r.IntN(3)), Per: g.duration(), Burst: uint32(g.r.IntN(3))}
	}
	s.Ordered, s.Fair, s.HoldOnDead, s.Refused = g.chance(30), g.chance(40), g.chance(30), g.chance(5)
	return s
}

// scheduleCommand returns a command about a schedule: in most cases a Fire that goes on from one.
func (g *generator) scheduleCommand() fsm.Command {
	queue, name := g.queue(), pick(g, "s1", "s2")
	var held []fsm.Schedule
	for _, q := range queueNames() {
		held = append(held, g.m.Schedules(q)...)
	}
	if len(held) > 0 && g.chance(75) {
		s := pick(g, held...)
		if queue, name = s.Queue, s.Name; g.chance(60) {
			return g.fire(s)
		}
	}
	switch n := g.r.IntN(100); {
	case n < 50:
		return g.putSchedule(queue, name)
	case n < 70:
		return &fsm.DeleteSchedule{
			Queue: queue, Name: name, CancelWaiting: g.chance(50),
			IfVersion: pick(g, 0, g.version(queue, name), g.version(queue, name)),
		}
	case n < 80:
		return &fsm.PauseSchedules{
			Queue: queue, Names: []string{name, pick(g, "s1", "s2", "none")}, Resume: g.chance(50), Note: pick(g, "", "n"),
		}
	default:
		c := &fsm.RunSchedule{Queue: queue, Name: name}
		for range g.r.IntN(4) {
			c.Times = append(c.Times, start+fsm.Time(g.duration()))
		}
		return c
	}
}

// version returns a version of a schedule: often the present one, or one that it, an earlier one of the
// name or a later one may have.
func (g *generator) version(queue, name string) uint64 {
	version := pick(g, 1, g.m.Serial, g.m.Serial+1)
	for _, s := range g.m.Schedules(queue) {
		if s.Name == name && g.chance(70) {
			version = s.Version - pick[uint64](g, 0, 0, 0, 1)
		}
	}
	return version
}

func (g *generator) putSchedule(queue, name string) *fsm.PutSchedule {
	p := g.put()
	c := &fsm.PutSchedule{
		Queue: queue, Name: name, Spec: fsm.ScheduleSpec{Cron: pick(g, "@daily", "@daily", "30 2 * * *")},
		Policy: fsm.SchedulePolicy{
			Overlap:  pick(g, fsm.OverlapAllow, fsm.OverlapSkip, fsm.OverlapOneWaiting),
			MaxFires: pick[uint64](g, 0, 0, 2), PauseOnDead: g.chance(40),
		},
		Job: fsm.Put{Given: p.Given &^ (fsm.GivenDelay | fsm.GivenDueAt), TTR: p.TTR, TTL: p.TTL, Priority: p.Priority,
			MaxAttempts: p.MaxAttempts, RetryDelays: p.RetryDelays, Headers: p.Headers, Body: p.Body, Key: p.Key,
			FIFO: p.FIFO},
		IfVersion: pick(g, 0, 0, 0, g.version(queue, name)), ZoneData: pick(g, "2026a", "2026b"),
	}
	if g.chance(90) {
		c.Next = g.now + fsm.Time(pick[time.Duration](g, -1, 1, 1)*g.duration())
		c.NextAfter = pick(g, 0, c.Next-1, g.now.Add(g.duration()), g.now.Add(g.duration()+fsm.CallerAheadMax))
	}
	c.Partition, c.Partitions = g.partition(queue)
	return c
}

// fire returns a Fire that mostly goes on from a schedule.
func (g *generator) fire(s fsm.Schedule) *fsm.Fire {
	c := &fsm.Fire{Queue: s.Queue, Name: s.Name, Serial: s.Serial, Version: s.Version, Nominal: s.Next, ZoneData: "2026b"}
	at := s.Next
	if g.chance(40) {
		c.Missed, c.LastMissed = 1+g.r.Uint64N(3), at
		at += fsm.Time(g.duration())
	}
	if g.chance(80) {
		c.Put, c.Due = at, at+fsm.Time(g.duration())
	}
	if g.chance(90) {
		c.Next = at + fsm.Time(pick(g, 1, g.duration()))
	}
	switch g.r.IntN(30) {
	case 0:
		c.Serial--
	case 1:
		c.Nominal++
	case 2:
		c.Put = s.Last
	case 3:
		c.Name = "none"
	case 4, 5, 6:
		c.Version--
	case 7:
		c.Version++
	}
	return c
}

func (g *generator) retryDelays() []time.Duration {
	list := make([]time.Duration, g.r.IntN(4))
	for i := range list {
		list[i] = g.duration()
	}
	return list
}

// far returns how much further away something is: mostly nothing, else hours, days or months.
func (g *generator) far() time.Duration {
	if g.chance(80) {
		return 0
	}
	return pick(g, time.Hour, 25*time.Hour, 29*24*time.Hour, 300*24*time.Hour)
}

func (g *generator) reserve() *fsm.Reserve {
	c := &fsm.Reserve{Max: uint32(g.r.IntN(4)), TTR: pick(g, 0, g.duration())}
	if g.chance(30) { // sums of few ids, headers and bodies, so that some fit exactly
		c.Bytes = pick[uint64](g, 1, 2, 4, 6, 8, 10, 100, 102, 40_002, 1<<63)
	}
	for range 1 + g.r.IntN(2) {
		c.Queues = append(c.Queues, g.queue())
	}
	return c
}

// ref names a lease, mostly one of the last ones, sometimes wrong in one part.
func (g *generator) ref() fsm.Ref {
	if len(g.grants) == 0 {
		return fsm.Ref{Queue: g.queue(), Serial: g.r.Uint64N(20), Fence: g.r.Uint64N(20)}
	}
	grant := pick(g, g.grants...)
	ref := fsm.Ref{Queue: grant.Queue, Partition: grant.Partition, Serial: grant.Serial, Fence: grant.Fence}
	switch g.r.IntN(40) {
	case 0:
		ref.Queue = g.queue()
	case 1:
		ref.Partition++
	case 2:
		ref.Serial--
	case 3:
		ref.Fence--
	case 4:
		ref.Fence++
	}
	return ref
}

func (g *generator) nack() *fsm.Nack {
	c := &fsm.Nack{
		Ref: g.ref(), Delay: g.duration(), DelayGiven: g.chance(40), Error: pick(g, "", "", "boom", "smtp 421"),
		Dead: g.chance(25),
	}
	if c.PriorityGiven = g.chance(20); c.PriorityGiven {
		c.Priority = g.priority()
	}
	return c
}

func (g *generator) reschedule() *fsm.Reschedule {
	c := &fsm.Reschedule{Queue: g.queue(), ID: g.id(), Key: g.keyAsked(), Given: fsm.GivenDelay, Delay: g.duration()}
	if g.chance(40) {
		c.Given, c.Delay, c.DueAt = fsm.GivenDueAt, 0, g.now+fsm.Time(pick[time.Duration](g, -1, 1)*g.duration())
	}
	return c
}

func (g *generator) redrive() *fsm.Redrive {
	c := &fsm.Redrive{Queue: g.queue(), Max: uint32(g.r.IntN(3))}
	for range g.r.IntN(3) {
		c.IDs = append(c.IDs, g.id())
	}
	return c
}

// settings returns settings with small limits, few of them at a time.
func (g *generator) settings() fsm.Settings {
	s := fsm.Settings{Overdue: pick(g, fsm.FireOverdue, fsm.SpreadOverdue, fsm.DropOverdue), ExpireToDead: g.chance(40)}
	if g.chance(30) {
		s.TTR = g.duration()
	}
	if g.chance(30) {
		s.MaxAttemptsSet, s.MaxAttempts = true, uint32(g.r.IntN(4))
	}
	if g.chance(30) {
		s.RetryDelays = g.retryDelays()
	}
	if g.chance(40) {
		s.DedupWindowSet, s.DedupWindow = true, g.duration()
	}
	s.DedupForever = g.chance(10)
	if g.chance(15) {
		s.MaxInFlight = 1 + g.r.Uint64N(6)
	}
	if g.chance(15) {
		s.MaxJobs = 1 + g.r.Uint64N(8)
	}
	if g.chance(15) {
		s.MaxBytes = 1 + g.r.Uint64N(300)
	}
	if g.chance(15) {
		s.PutsPerSecond = pick[uint64](g, 1, 2, 7, 2_000_000_000, 1<<63)
	}
	if s.Overdue == fsm.SpreadOverdue {
		s.OverduePeriod = pick(g, 0, 7, g.duration(), 1<<62)
	}
	if g.chance(60) {
		s.OverdueAfter = g.duration()
	}
	s.Keys = g.keySettings()
	if g.chance(15) {
		s.Paused = true
		if g.chance(70) {
			s.PausedUntil = g.now + fsm.Time(g.duration())
		}
	}
	return s
}
