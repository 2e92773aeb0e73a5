package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/schedules"
)

// TestModelScenarioFullQueue: a firing and a run wait for room in a full queue; a run puts what fits.
func TestModelScenarioFullQueue(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			s.Apply(start, []fsm.Request{{Commands: do(
				&fsm.Configure{Queue: "q", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 2}},
				&fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Next: start + 1},
			)}})
			run := &fsm.RunSchedule{Queue: "q", Name: "s", Times: []fsm.Time{5, 6, 7}}
			list := s.Apply(start+2, []fsm.Request{{Commands: do(run, run,
				&fsm.Fire{Queue: "q", Name: "s", Serial: 1, Version: 1, Nominal: start + 1, Put: start + 1, Due: start + 1},
			)}})
			if list[0].Count != 2 || !list[0].More || list[1].Code != fsm.QueueFull || list[2].Code != fsm.QueueFull {
				t.Errorf("%+v", list)
			}
		})
	}
}

// eachSecond is a calendar of every whole second.
type eachSecond struct{}

func (eachSecond) Next(t fsm.Time) fsm.Time {
	return after((t.Sub(start)/time.Second + 1) * time.Second)
}
func (eachSecond) Due(nominal fsm.Time) fsm.Time { return nominal }
func (eachSecond) ZoneData() string              { return "" }

// TestModelScenarioUpserts: a schedule of each second fires at each, once, though it gets another content
// a thousand times a second, and each firing is planned three contents before it is applied.
func TestModelScenarioUpserts(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		for name, storm := range map[string]upserts{
			"one rule":                       {rules: []string{"a"}},
			"one rule, callers are behind":   {rules: []string{"a"}, ahead: -50 * time.Millisecond},
			"one rule, callers are ahead":    {rules: []string{"a"}, ahead: 50 * time.Millisecond},
			"two rules":                      {rules: []string{"a", "b"}},
			"two rules, callers are behind":  {rules: []string{"a", "b"}, ahead: -50 * time.Millisecond},
			"two rules, callers are ahead":   {rules: []string{"a", "b"}, ahead: 50 * time.Millisecond},
			"two rules, far ahead":           {rules: []string{"a", "b"}, ahead: fsm.CallerAheadMax},
			"two rules, and seldom a change": {rules: []string{"a", "a", "b", "b", "b"}},
		} {
			t.Run(of.name+", "+name, func(t *testing.T) { storm.blow(t, of.open(t, fsm.Config{})) })
		}
	}
}

// upserts gives a schedule another content each millisecond, with one rule after the other. The time of
// the callers of all but the first is ahead of the shard's.
type upserts struct {
	rules []string
	ahead time.Duration
}

// onlySchedule returns the schedule of a shard with one.
func onlySchedule(s shard) *fsm.Schedule {
	switch s := s.(type) {
	case modelShard:
		return &s.Schedules("q")[0]
	case *machineShard:
		return &s.Answer(&fsm.SchedulesQuery{Queue: "q", Max: 1}, 0).Schedules[0]
	default:
		return nil
	}
}

func (u *upserts) blow(t *testing.T, s shard) {
	t.Helper()
	speak(s, fsm.KeysFormat)
	const seconds = 5
	fired := map[fsm.Time]bool{}
	var planned [3][]*fsm.Fire
	for i := 100; i < seconds*1000+500; i++ {
		now := after(time.Duration(i) * ms)
		callers := now
		if i > 100 {
			callers += fsm.Time(u.ahead)
		}
		s.Apply(now, []fsm.Request{{Commands: do(&fsm.PutSchedule{
			Queue: "q", Partitions: 1, Name: "s", Spec: fsm.ScheduleSpec{Cron: u.rules[i%len(u.rules)]},
			Next: eachSecond{}.Next(callers), NextAfter: callers, Job: fsm.Put{Body: []byte{byte(i), byte(i >> 8)}},
		})}})
		for _, c := range planned[i%3] {
			if r := s.Apply(now, []fsm.Request{{Commands: do(c)}})[0]; r.Created && fired[c.Put] {
				t.Errorf("it fires twice at %v", c.Put.Sub(start))
			} else if r.Created {
				fired[c.Put] = true
			}
		}
		planned[i%3] = nil
		if v := onlySchedule(s); v.Next != 0 && v.Next <= now {
			planned[i%3], _ = schedules.Plan(v, now, eachSecond{}, 10)
		}
	}
	if v := onlySchedule(s); len(fired) != seconds || v.Counts != (fsm.ScheduleCounts{Fired: seconds}) ||
		v.Next != after((seconds+1)*time.Second) {
		t.Errorf("%d firings, next at %v, %+v", len(fired), v.Next.Sub(start), v.Counts)
	}
}

// TestModelScenarioBytesOfKeysAndSchedules: the key of a job, and the name and the job of a schedule, count
// against the bytes of their queue.
func TestModelScenarioBytesOfKeysAndSchedules(t *testing.T) {
	t.Parallel()
	const fullBytes = 1000
	schedule := func(name string, bytes int) *fsm.PutSchedule {
		return &fsm.PutSchedule{
			Queue: "q", Partitions: 1, Name: name, Next: start + fsm.Hour,
			Job: fsm.Put{Key: "kk", Body: make([]byte, bytes-len(name)-2)},
		}
	}
	sized := func(key, body int) *fsm.Put {
		return put("", func(p *fsm.Put) { p.Key, p.Body = strings.Repeat("k", key), make([]byte, body) })
	}
	next := func(c *fsm.Put) *fsm.Put {
		c.ID, c.OnExisting = "id", fsm.NextExisting
		return c
	}
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			settings := fsm.Settings{MaxBytes: fullBytes}
			s.Apply(start, []fsm.Request{{Commands: do(configure(1, settings))}})
			for i, c := range []struct {
				do    fsm.Command
				want  fsm.Code
				bytes uint64
			}{
				{sized(100, 1), fsm.OK, 101}, {sized(900, 0), fsm.QueueFull, 101},
				{schedule("s", 800), fsm.OK, 901}, {schedule("t", 100), fsm.QueueFull, 901},
				{schedule("s", 900), fsm.QueueFull, 901}, {schedule("s", 899), fsm.OK, 1000},
				{sized(1, 0), fsm.QueueFull, 1000}, {schedule("s", 499), fsm.OK, 600},
				{schedule("t", 100), fsm.OK, 700}, {&fsm.DeleteSchedule{Queue: "q", Name: "s"}, fsm.OK, 201},
				{next(sized(9, 10)), fsm.OK, 222}, {reserve(2), fsm.OK, 222},
				{next(sized(9, 30)), fsm.OK, 252}, // its id and its key count once
			} {
				list := s.Apply(start, []fsm.Request{{Commands: do(c.do)}})
				if q, _ := s.Queue("q", s.Clock()); list[0].Code != c.want || q.Counts.Bytes != c.bytes {
					t.Fatalf("step %d ended with %+v and %d bytes, want %v and %d", i, list[0], q.Counts.Bytes, c.want, c.bytes)
				}
			}
		})
	}
}

// TestModelScenarioDeadOfEarlier: a dead job pauses its schedule, and not a later one of the name.
func TestModelScenarioDeadOfEarlier(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			apply := func(c fsm.Command) *fsm.Result { return &s.Apply(start, []fsm.Request{{Commands: do(c)}})[0] }
			put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Policy: fsm.SchedulePolicy{PauseOnDead: true}}
			apply(put)
			apply(&fsm.RunSchedule{Queue: "q", Name: "s", Times: []fsm.Time{5}})
			apply(&fsm.DeleteSchedule{Queue: "q", Name: "s"})
			apply(put)
			apply(&fsm.RunSchedule{Queue: "q", Name: "s", Times: []fsm.Time{6}})
			for _, paused := range []bool{false, true} {
				g := apply(&fsm.Reserve{Queues: []string{"q"}, Max: 1, TTR: time.Minute}).Grants[0]
				apply(&fsm.Nack{Ref: fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}, Dead: true})
				if v := onlySchedule(s); v.Paused != paused {
					t.Errorf("after the end of job %d schedule %d is paused: %v", g.Serial, v.Serial, v.Paused)
				}
			}
		})
	}
}

// TestModelScenarioVersions: no schedule of a name has a version that an earlier one had, however often
// that was changed, and a put or a delete for the version of an earlier one is refused.
func TestModelScenarioVersions(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			apply := func(c fsm.Command) *fsm.Result { return &s.Apply(start, []fsm.Request{{Commands: do(c)}})[0] }
			at := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s"}
			var before []uint64
			for _, first := range []uint64{1, 5, 10} { // the serial of a job is between the last two
				for version := first; version < first+4; version++ {
					c := *at
					c.Job.Body = []byte{byte(version)}
					if r := apply(&c); r.Code != fsm.OK || r.Version != version {
						t.Fatalf("it was given content %d: %+v", version, r)
					}
					before, at.IfVersion = append(before, version), version
				}
				for _, old := range before[:len(before)-1] {
					for _, c := range []fsm.Command{
						&fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", IfVersion: old},
						&fsm.DeleteSchedule{Queue: "q", Name: "s", IfVersion: old},
					} {
						if r := apply(c); r.Code != fsm.VersionChanged || r.Version != first+3 {
							t.Errorf("%T for version %d: %+v", c, old, r)
						}
					}
				}
				if r := apply(&fsm.DeleteSchedule{Queue: "q", Name: "s", IfVersion: first + 3}); r.Code != fsm.OK {
					t.Errorf("%+v", r)
				}
				if at.IfVersion = 0; first == 5 {
					apply(put(""))
				}
			}
		})
	}
}

// TestModelScenarioVersionsOfPartitions: a queue that is made again with other partitions may have a name
// in another shard, whose serials are others. The versions differ nevertheless.
func TestModelScenarioVersionsOfPartitions(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			c := &fsm.PutSchedule{Queue: "q", Partition: 5, Partitions: 8, Name: "s"}
			again := *c
			again.Job.Body = []byte("another")
			list := s.Apply(start, []fsm.Request{{Commands: do(
				&fsm.Open{Queue: "q", Partition: 5, Partitions: 8}, c, &again, &fsm.DeleteSchedule{Queue: "q", Name: "s"}, c,
			)}})
			for i, want := range map[int]uint64{1: 5<<48 | 1, 2: 5<<48 | 2, 4: 5<<48 | 3} {
				if r := list[i]; r.Code != fsm.OK || r.Version != want {
					t.Errorf("step %d: %+v, want version %x", i, r, want)
				}
			}
		})
	}
}

// TestModelScenarioResetSchedules: a schedule that fired in a time that is taken back is silent until then,
// also with another content. A new one of the name is not.
func TestModelScenarioResetSchedules(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			apply := func(at time.Duration, c fsm.Command) *fsm.Result {
				return &s.Apply(after(at), []fsm.Request{{Commands: do(c)}})[0]
			}
			put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Next: after(time.Second)}
			apply(0, put)
			ahead := 1000 * time.Hour
			fire := &fsm.Fire{
				Queue: "q", Name: "s", Serial: 1, Version: 1, Nominal: put.Next, Missed: 1, LastMissed: put.Next,
				Put: after(ahead), Due: after(ahead), Next: after(ahead + time.Second),
			}
			if r := apply(ahead, fire); !r.Created {
				t.Fatalf("%+v", r)
			}
			apply(ahead, &fsm.ResetClock{To: after(time.Minute)})
			changed := *put
			changed.Spec.Cron, changed.Next = "@hourly", after(time.Hour)
			if r := apply(time.Minute, &changed); r.Due != after(ahead) || !onlySchedule(s).Replan {
				t.Errorf("with another content it is next at %v", r.Due.Sub(start))
			}
			apply(time.Minute, &fsm.DeleteSchedule{Queue: "q", Name: "s"})
			if r := apply(time.Minute, &changed); r.Due != after(time.Hour) {
				t.Errorf("created anew it is next at %v", r.Due.Sub(start))
			}
		})
	}
}

// TestModelScenarioLargeRun: a run of large jobs ends after about 4 MiB, and says where.
func TestModelScenarioLargeRun(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: "s", Job: fsm.Put{Body: make([]byte, 1<<20)}}
			run := &fsm.RunSchedule{Queue: "q", Name: "s", Times: []fsm.Time{5, 6, 7, 8, 9, 10}}
			list := s.Apply(start, []fsm.Request{{Commands: do(put, run)}})
			if r := &list[1]; r.Count != 4 || !r.More || r.Due != 9 {
				t.Errorf("%+v", r)
			}
			run.Times = run.Times[4:]
			if r := &s.Apply(start, []fsm.Request{{Commands: do(run)}})[0]; r.Count != 2 || r.More || r.Due != 0 {
				t.Errorf("the rest: %+v", r)
			}
		})
	}
}

// TestModelScenarioLargePause: a pause of large schedules ends after about 4 MiB, and does the rest when it is
// sent again.
func TestModelScenarioLargePause(t *testing.T) {
	t.Parallel()
	for _, of := range implementations() {
		t.Run(of.name, func(t *testing.T) {
			s := of.open(t, fsm.Config{})
			speak(s, fsm.KeysFormat)
			pause := &fsm.PauseSchedules{Queue: "q", Names: []string{"none"}}
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				pause.Names = append(pause.Names, name)
				put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: name, Job: fsm.Put{Body: make([]byte, 1<<20)}}
				s.Apply(start, []fsm.Request{{Commands: do(put)}})
			}
			list := s.Apply(start, []fsm.Request{{Commands: do(pause, pause, pause)}})
			for i, want := range []fsm.Result{{Count: 4, More: true}, {Count: 2}, {}} {
				if r := &list[i]; r.Count != want.Count || r.More != want.More {
					t.Errorf("step %d: %+v", i, r)
				}
			}
		})
	}
}

// TestFiringBytes: a job has at most as many bytes as the machine says of its schedule. The model does not
// estimate.
func TestFiringBytes(t *testing.T) {
	t.Parallel()
	s := &machineShard{Machine: machine.New(fsm.Config{}), failed: func(err error) { t.Fatal(err) }}
	speak(s, fsm.KeysFormat)
	name := strings.Repeat("n", 128)
	put := &fsm.PutSchedule{Queue: "q", Partitions: 1, Name: name, Job: fsm.Put{
		Key: "key", Headers: []fsm.Header{{Name: "a", Value: "b"}}, Body: []byte("body"),
	}}
	s.Apply(start, []fsm.Request{{Commands: do(put)}})
	before, _ := s.Queue("q", start)
	run := &fsm.RunSchedule{Queue: "q", Name: name, Times: []fsm.Time{fsm.Time(time.Second - 1)}}
	if r := &s.Apply(start, []fsm.Request{{Commands: do(run)}})[0]; r.Code != fsm.OK || r.Count != 1 {
		t.Fatalf("no job was put: %+v", r)
	}
	q, _ := s.Queue("q", start)
	if has := q.Counts.Bytes - before.Counts.Bytes; has == 0 || s.FiringBytes("q", name) < has {
		t.Errorf("a job has %d bytes, taken for %d", has, s.FiringBytes("q", name))
	}
}
