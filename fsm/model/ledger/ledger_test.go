package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
)

// found keeps which rules were broken.
type found struct{ rules []Rule }

// Look implements Report.
func (*found) Look(Rule) {}

// Violated implements Report.
func (f *found) Violated(rule Rule, _ fsm.Time, _ string) { f.rules = append(f.rules, rule) }

// Count implements Report.
func (*found) Count(string, int64) {}

// at is a shard time in seconds.
func at(seconds float64) fsm.Time { return fsm.Time(seconds * float64(time.Second)) }

// between is the time from one shard time to another.
func between(from, to float64) time.Duration {
	return time.Duration((to - from) * float64(time.Second))
}

// line is one command with its result, at a time in seconds.
type line struct {
	clock   float64
	command fsm.Command
	result  fsm.Result
}

// ref names the lease of job 1.
func ref(fence uint64) fsm.Ref { return fsm.Ref{Queue: "q", Serial: 1, Fence: fence} }

func putLine(clock float64, id string, serial uint64, due float64) line {
	put := &fsm.Put{Queue: "q", ID: id, Partitions: 1, Given: fsm.GivenMaxAttempts | fsm.GivenDueAt, MaxAttempts: 2,
		DueAt: at(due)}
	return line{clock, put, fsm.Result{Created: true, Serial: serial, Due: at(due), State: fsm.Delayed}}
}

// grantLine is a grant of job 1, which fell due at a time.
func grantLine(clock, due float64, fence uint64, attempt uint32, until float64) line {
	g := fsm.Grant{Queue: "q", Serial: 1, Fence: fence, Attempt: attempt, Due: at(due), Until: at(until)}
	return line{clock, &fsm.Reserve{Queues: []string{"q"}, Max: 1, TTR: between(clock, until)},
		fsm.Result{Grants: []fsm.Grant{g}}}
}

func ackLine(clock float64, fence uint64, code fsm.Code) line {
	r := fsm.Result{Code: code}
	if code == fsm.OK {
		r.State = fsm.Acked
	}
	return line{clock, &fsm.Ack{Ref: ref(fence)}, r}
}

func releaseLine(clock float64, fence uint64, due float64) line {
	return line{clock, &fsm.Release{Ref: ref(fence)}, fsm.Result{State: fsm.Ready, Due: at(due)}}
}

func extendLine(clock float64, fence uint64, until float64) line {
	return line{clock, &fsm.Extend{Ref: ref(fence), TTR: between(clock, until)}, fsm.Result{Until: at(until)}}
}

func leadLine(clock float64, grace time.Duration) line {
	return line{clock, &fsm.Lead{Grace: grace}, fsm.Result{}}
}

// logCase is a log, and the rule that it breaks; 0 if it breaks none.
type logCase struct {
	log  []line
	want Rule
}

func logCases() map[string]logCase {
	put, grant := putLine(1, "a", 1, 5), grantLine(5, 5, 2, 1, 15)
	cancel := line{3, &fsm.Cancel{Queue: "q", ID: "a"}, fsm.Result{State: fsm.Delayed}}
	nack := line{6, &fsm.Nack{Ref: ref(2), DelayGiven: true, Delay: 14 * time.Second},
		fsm.Result{State: fsm.Delayed, Due: at(20)}}
	early := line{1, &fsm.Put{Queue: "q", Partitions: 1, Given: fsm.GivenDelay, Delay: 4 * time.Second},
		fsm.Result{Created: true, Serial: 1, Due: at(4), State: fsm.Delayed}}
	return map[string]logCase{
		"a whole life": {[]line{put, grant, ackLine(14, 2, fsm.OK), ackLine(20, 2, fsm.OK)}, 0},
		"a lapse": {
			[]line{put, grant, ackLine(15, 2, fsm.StaleLease), grantLine(15, 15, 3, 2, 20)}, 0,
		},
		"a late ack that nobody overtook": {[]line{put, grant, ackLine(15, 2, fsm.OK)}, 16},
		"an ack with an old fence": {
			[]line{put, grant, grantLine(15, 15, 3, 2, 20), ackLine(16, 2, fsm.OK)}, 16,
		},
		"a live lease called stale":          {[]line{put, grant, ackLine(14, 2, fsm.StaleLease)}, 18},
		"a grant before the due time":        {[]line{put, grantLine(4, 5, 2, 1, 15)}, 8},
		"a put that is due before its delay": {[]line{early}, 8},
		// The machine extends leases to whole milliseconds, rounded up.
		"an ack in the millisecond in which the grace ends": {
			[]line{put, grant, leadLine(14.5002, time.Second), ackLine(15.5006, 2, fsm.OK)},
			0},
		"an ack after the grace": {
			[]line{put, grant, leadLine(14.5002, time.Second), ackLine(15.502, 2, fsm.OK)}, 16,
		},
		"two holders": {[]line{put, grant, grantLine(14, 5, 3, 2, 20)}, 15},
		"a grant of what was acked": {
			[]line{put, grant, ackLine(14, 2, fsm.OK), grantLine(16, 5, 3, 2, 20)}, 19,
		},
		"a grant of what was cancelled": {[]line{put, cancel, grant}, 23},
		"a grant of what was never put": {[]line{grant}, 2},
		"a fence that does not grow":    {[]line{put, grant, grantLine(15, 15, 2, 2, 20)}, 15},
		"a serial that comes again":     {[]line{put, putLine(1, "b", 1, 5)}, 6},
		"an id that is put twice":       {[]line{put, putLine(1, "a", 2, 5)}, 5},
		"an attempt too many": {
			[]line{put, grant, grantLine(15, 15, 3, 2, 20), grantLine(20, 20, 4, 3, 25)}, 22,
		},
		"an attempt not counted": {[]line{put, grant, grantLine(15, 15, 3, 1, 20)}, 21},
		"a release gives the attempt back": {
			[]line{put, grant, releaseLine(6, 2, 5), grantLine(6, 5, 3, 1, 20)}, 0,
		},
		"a grant before the delay of a nack is over": {[]line{put, grant, nack, grantLine(19, 20, 3, 2, 25)}, 8},
		"an extended lease": {
			[]line{put, grant, extendLine(14, 2, 30), ackLine(29, 2, fsm.OK)}, 0,
		},
		"an extension that shortens": {[]line{put, grant, extendLine(14, 2, 14.5)}, 18},
		"a new leader's grace is kept": {
			[]line{put, grant, leadLine(14.5, time.Second), grantLine(15.2, 5, 3, 2, 20)}, 15,
		},
		"a new leader's grace prolongs": {
			[]line{put, grant, leadLine(14.5, time.Second), ackLine(15.2, 2, fsm.OK)}, 0,
		},
		"a job that was passed over": {
			[]line{put, {6, &fsm.Reserve{Queues: []string{"q"}, Max: 1}, fsm.Result{}}}, 14,
		},
		"a put answered as another's": {[]line{put, {2, &fsm.Put{Queue: "q", ID: "b", Partitions: 1}, fsm.Result{Serial: 1}}},
			5},
		"a reserved job is cancelled": {
			[]line{put, grant, {6, &fsm.Cancel{Queue: "q", ID: "a"}, fsm.Result{State: fsm.Reserved}}},
			23},
		"an ended job is cancelled": {[]line{put, cancel, cancel}, 23},
	}
}

// keyed is a put of a job of a key, due at once.
func keyed(clock float64, id, name string, serial uint64, on fsm.OnExisting, r fsm.Result) line {
	put := &fsm.Put{Queue: "q", ID: id, Key: name, Partitions: 1, OnExisting: on, Given: fsm.GivenDueAt,
		DueAt: at(clock)}
	r.Serial, r.Due = serial, at(clock)
	if r.State == 0 {
		r.State = fsm.Ready
	}
	return line{clock, put, r}
}

// keySettings gives queue q settings of its keys.
func keySettings(s fsm.KeySettings) line {
	return line{1, &fsm.Configure{Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{Keys: s}}, fsm.Result{}}
}

// grantOf grants a job for the first time, that was due since a time, for ten seconds.
func grantOf(clock float64, serial, fence uint64, due float64) line {
	l := grantLine(clock, due, fence, 1, clock+10)
	l.result.Grants[0].Serial = serial
	return l
}

func keyCases() map[string]logCase {
	one := keyed(2, "a", "k", 1, 0, fsm.Result{Created: true})
	two := keyed(2, "b", "k", 2, 0, fsm.Result{Created: true})
	limit, ordered := keySettings(fsm.KeySettings{Concurrency: 1}), keySettings(fsm.KeySettings{Ordered: true})
	first := grantOf(3, 1, 3, 2)
	none := line{3, &fsm.Reserve{Queues: []string{"q"}, Max: 1}, fsm.Result{}}
	rate := keySettings(fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Minute}})
	rated := []line{rate, one, keyed(2, "b", "k", 4, 0, fsm.Result{Created: true}), grantOf(3, 1, 5, 2)} // 3 is a round
	replaced := keyed(3, "a", "k", 1, fsm.ReplaceExisting, fsm.Result{Replaced: true, Version: 2})
	next := keyed(4, "a", "k", 1, fsm.NextExisting, fsm.Result{Replaced: true, Version: 2, State: fsm.Reserved})
	old := replaced
	old.result.Version = 1
	follower := func(serial uint64) line { return grantOf(14, serial, 9, 4) }
	return map[string]logCase{
		"a key at its limit":                 {[]line{limit, one, two, first, none}, 0},
		"a key beyond its limit":             {[]line{limit, one, two, first, grantOf(3, 2, 4, 2)}, keyLimit},
		"a key whose lease lapsed":           {[]line{limit, one, two, first, grantOf(13, 2, 4, 2)}, 0},
		"a key that is blocked for nothing":  {[]line{limit, one, none}, 14},
		"an ordered key":                     {[]line{ordered, one, two, first}, 0},
		"an ordered key out of order":        {[]line{ordered, one, two, grantOf(3, 2, 3, 2)}, keyOrder},
		"a key without a token":              {append(rated[:4:4], grantOf(4, 4, 6, 2)), keyLimit},
		"a key that has another token":       {append(rated[:4:4], grantOf(64, 4, 7, 2)), 0},
		"a job that is replaced":             {[]line{one, replaced, grantOf(4, 1, 2, 3)}, 0},
		"a job that keeps its time":          {[]line{one, replaced, grantOf(4, 1, 2, 2)}, 24},
		"a replacement with an old version":  {[]line{one, old}, contents},
		"a successor":                        {[]line{one, first, next, ackLine(13, 3, fsm.OK)}, 16},
		"a successor after its job":          {[]line{one, first, next, ackLine(12, 3, fsm.OK), follower(4)}, 0},
		"a successor that never comes":       {[]line{one, first, next, ackLine(12, 3, fsm.OK), none}, 14},
		"a successor that is the job itself": {[]line{one, first, next, ackLine(12, 3, fsm.OK), follower(1)}, 19},
		"a key that is paused": {
			[]line{one, {2, &fsm.PauseKey{Queue: "q", Key: "k"}, fsm.Result{}}, grantOf(3, 1, 4, 2)}, keyLimit,
		},
	}
}

// roundCases are logs of a fair queue whose key has got a token since its last grant. It takes a turn at the
// next Reserve, and not when a lease is prolonged: serial 6 is that of the next job.
func roundCases() map[string]logCase {
	fair := keySettings(fsm.KeySettings{Concurrency: 2, Fair: true, Rate: fsm.KeyRate{Count: 1, Per: 5 * time.Second}})
	waits := []line{
		fair, keyed(2, "a", "k", 1, 0, fsm.Result{Created: true}), keyed(2, "b", "k", 4, 0, fsm.Result{Created: true}),
		grantOf(3, 1, 5, 2), {9, &fsm.Expire{}, fsm.Result{}},
	}
	other := line{10, &fsm.Put{Queue: "other", Partitions: 1}, fsm.Result{Created: true, Serial: 6, Due: at(10),
		State: fsm.Ready}}
	return map[string]logCase{
		"a lease that is extended is no turn":          {append(waits[:5:5], extendLine(10, 5, 20), other), 0},
		"a lease that a leader prolongs is no turn":    {append(waits[:5:5], leadLine(10, 20*time.Second), other), 0},
		"a key that takes a turn at the next reserve":  {append(waits[:5:5], grantOf(10, 4, 8, 2)), 0},
		"a key that takes its turn before the reserve": {append(waits[:5:5], grantOf(10, 4, 6, 2)), 6},
	}
}

// scheduled creates a schedule of every ten seconds.
func scheduled(next float64) line {
	put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Spec: fsm.ScheduleSpec{Every: 10 * time.Second},
		Policy: fsm.SchedulePolicy{CatchUp: fsm.CatchUpAll}, Next: at(next)}
	return line{1, put, fsm.Result{Created: true, Serial: 1, Version: 1, Due: at(next)}}
}

// fireLine is a firing whose job has a serial; 0 for none.
func fireLine(clock float64, c fsm.Fire, serial uint64) line {
	c.Queue, c.Name, c.Serial, c.Version, c.Due = "q", "s", 1, 1, c.Put
	return line{clock, &c, fsm.Result{Created: serial > 0, Serial: serial}}
}

func scheduleCases() map[string]logCase {
	s := scheduled(10)
	fire := fireLine(10, fsm.Fire{Nominal: at(10), Put: at(10), Next: at(20)}, 2)
	again, early := fire, fire
	again.result.Serial, early.clock = 3, 9
	refused := line{11, fire.command, fsm.Result{Code: fsm.VersionChanged}}
	return map[string]logCase{
		"a firing":              {[]line{s, fire, refused}, 0},
		"a firing that repeats": {[]line{s, fire, again}, firedOnce},
		"a firing before it is": {[]line{s, early}, firedOnce},
		"a firing that puts not": {
			[]line{s, fireLine(10, fsm.Fire{Nominal: at(10), Put: at(10), Next: at(20)}, 0)}, firedAll,
		},
		"a nominal time that is passed over": {
			[]line{s, fireLine(20, fsm.Fire{Nominal: at(10), Put: at(20), Next: at(30)}, 2)}, firedAll,
		},
		"a next one that is passed over": {
			[]line{s, fireLine(10, fsm.Fire{Nominal: at(10), Put: at(10), Next: at(30)}, 2)}, firedAll,
		},
		"a plan with other time-zone data": {
			[]line{scheduled(40), fireLine(40, fsm.Fire{Nominal: at(40), Next: at(20)}, 0),
				fireLine(40, fsm.Fire{Nominal: at(20), Put: at(20), Next: at(30)}, 2)}, 0,
		},
		"a plan for a time that is none": {
			[]line{scheduled(40), fireLine(40, fsm.Fire{Nominal: at(40), Next: at(25)}, 0)}, firedAll,
		},
		"a plan that passes over a time": {
			[]line{scheduled(40), fireLine(40, fsm.Fire{Nominal: at(40), Next: at(50)}, 0)}, firedAll,
		},
		"missed ones that are not counted": {
			[]line{s, fireLine(90010, fsm.Fire{Nominal: at(10), Missed: 1, LastMissed: at(20), Put: at(30), Next: at(40)}, 2)},
			firedAll,
		},
		"missed ones within the window": {
			[]line{s, fireLine(20, fsm.Fire{Nominal: at(10), Missed: 1, LastMissed: at(10), Put: at(20), Next: at(30)}, 2)},
			firedAll,
		},
		"missed ones": {
			[]line{s, fireLine(90010, fsm.Fire{Nominal: at(10), Missed: 2, LastMissed: at(20), Put: at(30), Next: at(40)}, 2)},
			0,
		},
	}
}

// TestMoved: the caller hears of each change of a job, and by which command it came.
func TestMoved(t *testing.T) {
	var heard []string
	b := New(Config{Report: &found{}, Moved: func(a *Job, c *Command) {
		heard = append(heard, fmt.Sprintf("%T %d due %d", c.Command, a.State, a.Due/at(1)))
	}})
	for i, l := range []line{
		putLine(1, "a", 1, 5), grantLine(6, 5, 1, 1, 10), {11, &fsm.Expire{}, fsm.Result{Count: 1}},
		grantLine(12, 10, 2, 2, 20), ackLine(13, 2, fsm.OK),
	} {
		e := &Entry{Index: uint64(i + 1), Clock: at(l.clock)}
		e.Commands = []Command{{Entry: e, Request: &fsm.Request{}, Command: l.command, Result: l.result}}
		b.Enter(e)
	}
	want := []string{"*fsm.Put 1 due 5", "*fsm.Reserve 2 due 5", "*fsm.Reserve 3 due 5", "*fsm.Expire 2 due 10",
		"*fsm.Reserve 3 due 10", "*fsm.Ack 5 due 10"}
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Error(diff)
	}
}

// TestNextFiring: the next firing is the first one of the schedules that are not paused.
func TestNextFiring(t *testing.T) {
	b := New(Config{Report: &found{}})
	other := scheduled(5)
	c := *other.command.(*fsm.PutSchedule)
	c.Name, other.command, other.result.Serial = "other", &c, 2
	pause := line{2, &fsm.PauseSchedules{Queue: "q", Names: []string{"other"}}, fsm.Result{Count: 1}}
	for i, step := range []struct {
		line
		want fsm.Time
	}{{scheduled(10), at(10)}, {other, at(5)}, {pause, at(10)}} {
		e := &Entry{Index: uint64(i + 1), Clock: at(step.clock)}
		e.Commands = []Command{{Entry: e, Request: &fsm.Request{}, Command: step.command, Result: step.result}}
		b.Enter(e)
		if got := b.NextFiring(); got != step.want {
			t.Errorf("after %T the next firing is at %d, want %d", step.command, got, step.want)
		}
	}
}

// The ledger finds what is wrong with a log, and nothing wrong with a log that is right.
func TestShard(t *testing.T) {
	cases := logCases()
	maps.Copy(cases, keyCases())
	maps.Copy(cases, roundCases())
	maps.Copy(cases, scheduleCases())
	every := func(spec *fsm.ScheduleSpec, after fsm.Time) (fsm.Time, bool) {
		return (after/fsm.Time(spec.Every) + 1) * fsm.Time(spec.Every), true
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var f found
			s := New(Config{Report: &f, Nominal: every})
			for i, l := range tc.log {
				e := &Entry{Index: uint64(i + 1), Format: fsm.LatestFormat, Clock: at(l.clock), At: at(l.clock)}
				e.Commands = []Command{{Entry: e, Request: &fsm.Request{Commands: []fsm.Command{l.command}},
					Command: l.command, Result: l.result}}
				s.Enter(e)
			}
			if tc.want == 0 && len(f.rules) > 0 || tc.want != 0 && !slices.Contains(f.rules, tc.want) {
				t.Errorf("found %v, want %v", f.rules, tc.want)
			}
		})
	}
}
