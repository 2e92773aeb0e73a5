package machine_test

import (
	"math/rand/v2"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model"
)

// event is one thing that happens to a shard: perhaps a snapshot, then an entry, then perhaps
// reads.
type event struct {
	snapshot snapshotKind
	format   fsm.Format // that is spoken from here on, 0 for none
	stamp    fsm.Time
	requests []fsm.Request
	reads    *readPlan // nil for none
}

// snapshotKind is what happens before an entry.
type snapshotKind int

const (
	noSnapshot snapshotKind = iota
	// restored: the machine is written, and goes on as what is read from it.
	restored
	// writtenLater: the snapshot is written at once and again after some entries; both must be the
	// same bytes.
	writtenLater
	// writtenBeside: as writtenLater, in a goroutine beside the entries that follow.
	writtenBeside
)

// readPlan is what to read after an entry.
type readPlan struct {
	ahead     time.Duration // of the clock
	dueAfter  fsm.Time
	dueBefore fsm.Time
	pageSize  int
	match     fsm.Match
	scan      int
}

// The values that everything is chosen from are few, so that things meet: ids and queues collide,
// and sums of durations fall on the very nanosecond of a deadline. Some durations are no whole
// milliseconds, and some of those add up to one.
func queueNames() []string { return []string{"a", "b", "ns/part", "never"} }

func jobIDs() []string { return []string{"j1", "j2", "j3", "j4", "job-five", ""} }

func jobKeys() []string { return []string{"k1", "k2", "key three"} }

func durations() []time.Duration {
	return []time.Duration{
		0, 1, time.Microsecond, part, ms - part, ms - 1, ms, ms + 1, 5 * ms, time.Second, 30 * time.Second,
		time.Minute, 5 * time.Minute, 10 * time.Minute,
	}
}

// generator makes events out of a seed and of what the shard has answered so far.
type generator struct {
	r           *rand.Rand
	m           *model.Model // read only, to aim at what is there
	now         fsm.Time     // the leader's clock
	bursts      int          // events to come that are larger than StepMax
	pacing      bool         // the next event is the pacer's
	grants      []fsm.Grant  // the last ones
	made        []string     // the last generated ids
	sent        []fsm.Request
	commandsMax int
	raises      bool // the format
	rated       bool // keys of queue "a" wait for tokens
	single      bool // many commands are about one job
}

// recent is how many of each kind of thing a generator keeps in mind.
const recent = 12

// newGenerator returns the generator of a seed and the configuration that its shard should have.
func newGenerator(seed uint64) (*generator, fsm.Config) {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0xbe1f)), now: start, commandsMax: 4}
	g.raises, g.single = seed%3 != 0, seed%3 == 1
	cfg := fsm.Config{Seed: g.r.Uint64()}
	if g.r.IntN(50) == 0 {
		g.bursts = 1 + g.r.IntN(3)
		cfg.TombstonesMax, cfg.FinishedMax = pick(g, 0, 1500), pick(g, 0, 1500)
		return g, cfg
	}
	cfg.TombstonesMax, cfg.FinishedMax = pick(g, 0, 0, 1, 2, 5), pick(g, 0, 0, 1, 2)
	cfg.AnswersBytesMax = pick[int64](g, 0, 0, 100, 400, 2000)
	cfg.QueuesMax = pick(g, 0, 0, 0, 0, 0, 0, 1, 2)
	cfg.SchedulesMax = pick(g, 0, 0, 1, 3)
	if g.rated = seed%8 == 0; g.rated {
		cfg.WakeMax = pick(g, 0, 1, 1, 2)
	}
	return g, cfg
}

func pick[T any](g *generator, list ...T) T { return list[g.r.IntN(len(list))] }

// chance is true in percent of the calls.
func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *generator) duration() time.Duration { return pick(g, durations()...) }

// next returns the next event.
func (g *generator) next() event {
	g.step()
	e := event{stamp: g.now}
	if g.chance(3) { // of a former leader
		e.stamp -= fsm.Time(g.duration())
	}
	if g.raises && g.chance(15) { // a lower one is of a leader that has not heard of the later one
		e.format = pick(g, fsm.FirstFormat, 2, 3, fsm.LatestFormat, fsm.LatestFormat, fsm.LatestFormat, fsm.LatestFormat)
	}
	switch n := g.r.IntN(100); {
	case n < 4:
		e.snapshot = restored
	case n < 9:
		e.snapshot = writtenLater
	case n < 10:
		e.snapshot = writtenBeside
	}
	if g.chance(12) {
		e.reads = &readPlan{
			ahead: g.duration() + g.far(), pageSize: 1 + g.r.IntN(5), scan: 1 + g.r.IntN(9),
			match: fsm.Match{
				IDPrefix: pick(g, "", "", "", "a", "0-"), Text: pick(g, "", "", "o", "1", "smtp"),
				Cause: pick(g, "", "", fsm.NoErrorText, fsm.Fingerprint("smtp 421")),
			},
		}
		if e.reads.pageSize == 5 {
			e.reads.match.Key = jobKeys()[0]
		}
		if g.chance(30) {
			e.reads.dueAfter = g.now - fsm.Time(g.duration())
		}
		if g.chance(30) {
			e.reads.dueBefore = g.now + fsm.Time(g.duration())
		}
	}
	if g.pacing {
		g.pacing = false
		e.stamp = max(e.stamp, g.now)
		e.requests = []fsm.Request{{Commands: []fsm.Command{&fsm.Expire{}}}, {Commands: []fsm.Command{&fsm.Expire{}}}}
		return e
	}
	if g.rated && g.chance(25) {
		e.format = fsm.KeysFormat
		e.requests = []fsm.Request{{Commands: g.tokens()}}
		return e
	}
	if g.bursts > 0 && g.chance(8) {
		g.bursts--
		g.pacing = g.chance(50)
		e.requests = g.burst()
		return e
	}
	for range 1 + g.r.IntN(3) {
		e.requests = append(e.requests, g.request())
	}
	return e
}

// step moves the leader's clock: often not at all, often to a deadline or a nanosecond beside it.
func (g *generator) step() {
	switch n := g.r.IntN(100); {
	case n < 35:
	case n < 55:
		t, ok := g.m.NextDeadline()
		if at := g.m.NextFiring(); at != 0 && g.chance(50) {
			t, ok = at, true
		}
		if ok && t < start.Add(1000*time.Hour) {
			g.now = max(g.now, t+fsm.Time(g.r.IntN(3)-1))
		}
	case n < 97:
		g.now += fsm.Time(g.duration())
	case n < 99:
		g.now += fsm.Time(g.r.Int64N(int64(time.Hour)))
	default:
		g.now += fsm.Time(24 * time.Hour)
	}
}

// request returns new commands, or a request that was sent before, perhaps with other content.
func (g *generator) request() fsm.Request {
	if len(g.sent) > 0 && g.chance(15) {
		r := pick(g, g.sent...)
		if g.chance(15) {
			r.Commands = []fsm.Command{g.command()}
		}
		return r
	}
	r := fsm.Request{Caller: pick(g, "x", "y"), Client: pick(g, "", "", "w1", "worker-2@10.0.0.7")}
	if g.chance(50) {
		r.ID = g.requestID()
	}
	for range 1 + g.r.IntN(g.commandsMax) {
		r.Commands = append(r.Commands, g.command())
	}
	if g.chance(2) {
		r.Commands = nil
	}
	return r
}

func (g *generator) requestID() string {
	if g.chance(50) {
		return pick(g, "r1", "r2", "r3", "a request id that is somewhat longer")
	}
	age := pick(g, 0, 0, 0, time.Millisecond, time.Second, 5*time.Minute-time.Millisecond, 5*time.Minute,
		5*time.Minute+time.Millisecond)
	return uuidAt(g.now-fsm.Time(age)) + pick(g, "", "", "", "#1")
}

// saw tells the generator what came of an event.
func (g *generator) saw(e event, list []fsm.Result) {
	for i := range e.requests {
		r := &e.requests[i]
		if r.ID != "" && len(r.Commands) < recent {
			g.sent = remembered(g.sent, *r)
		}
		for range r.Commands {
			result := list[0]
			list = list[1:]
			for _, grant := range result.Grants {
				g.grants = remembered(g.grants, grant)
			}
			if result.Created {
				g.made = remembered(g.made, fsm.FormatID(result.Partition, result.Serial))
			}
		}
	}
}

func remembered[T any](list []T, v T) []T {
	list = append(list, v)
	return list[max(0, len(list)-recent):]
}

// burst is an entry that crosses the bounds of one step: many jobs, many ended ids, many requests,
// or many finished leases.
func (g *generator) burst() []fsm.Request {
	if acks := g.ackAll(); len(acks) > recent {
		return []fsm.Request{{Commands: acks}}
	}
	n := fsm.StepMax - 20 + g.r.IntN(200)
	if g.chance(50) {
		n = fsm.SweepMax - 20 + g.r.IntN(60)
	}
	template := *g.put()
	template.Queue, template.Partition, template.Partitions = "a", 0, 1
	if g.pacing {
		template.Given, template.Delay, template.DueAt = fsm.GivenDelay, 1, 0
	}
	var requests []fsm.Request
	together := pick(g, 10, 60)
	for i := range n {
		p := template
		p.ID = ""
		if g.chance(50) {
			p.ID = "burst" + fsm.FormatID(0, uint64(i))
		}
		if last := len(requests) - 1; last >= 0 && g.chance(together) {
			requests[last].Commands = append(requests[last].Commands, &p)
			continue
		}
		requests = append(requests, fsm.Request{
			Caller: "x", ID: "burst" + fsm.FormatID(1, uint64(i)), Commands: []fsm.Command{&p},
		})
	}
	if g.pacing {
		g.now += fsm.Time(time.Millisecond)
		return requests
	}
	return append(requests, fsm.Request{Commands: []fsm.Command{g.bulk(), g.bulk()}})
}

// tokens has several keys of a queue with a rate wait for a token each, or reserves some of their jobs.
func (g *generator) tokens() []fsm.Command {
	reserve := &fsm.Reserve{Queues: []string{"a"}, Max: uint32(g.r.IntN(4)), TTR: time.Hour}
	if g.chance(60) {
		return []fsm.Command{reserve, reserve}[:1+g.r.IntN(2)]
	}
	settings := fsm.KeySettings{Fair: g.chance(40)}
	settings.Rate = fsm.KeyRate{Count: 1, Per: pick(g, ms, 5*ms, time.Second, time.Minute), Burst: uint32(g.r.IntN(2))}
	commands := []fsm.Command{&fsm.Configure{
		Queue: "a", Partitions: 1, Version: 100, Settings: fsm.Settings{Keys: settings},
	}}
	for _, key := range append(jobKeys(), jobKeys()...) {
		commands = append(commands, &fsm.Put{
			Queue: "a", Partitions: 1, Key: key, Given: fsm.GivenPriority, Priority: pick[int64](g, -1, 0, 1),
		})
	}
	return append(commands, reserve)
}

// bulk returns a command that acts on many jobs at once.
func (g *generator) bulk() fsm.Command {
	return pick[fsm.Command](g,
		&fsm.Reserve{
			Queues: []string{"a", "b"}, Max: uint32(g.r.IntN(3000)), TTR: g.duration(), Bytes: pick[uint64](g, 0, 0, 5000),
		},
		&fsm.Purge{Queue: "a", States: fsm.StateSet(g.r.Uint32()), Max: uint32(g.r.IntN(6000))},
		&fsm.DeleteQueue{Queue: "a"}, &fsm.Redrive{Queue: "a"}, &fsm.Expire{})
}

// ackAll returns acks of all leases of queue "a"; in a burst's wake they are many.
func (g *generator) ackAll() []fsm.Command {
	var acks []fsm.Command
	for _, j := range g.m.Jobs("a") {
		if j.State == fsm.Reserved {
			acks = append(acks, &fsm.Ack{Ref: fsm.Ref{Queue: "a", Serial: j.Serial, Fence: j.Fence}})
		}
	}
	return acks
}
