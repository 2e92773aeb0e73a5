package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// plantedSeeds is how many seeds may pass before a planted mistake is noticed.
const plantedSeeds = 300

// planted is a mistake in the product's place and the rules that are about it. Other rules may
// notice it earlier.
type planted struct {
	name  string
	rules []string
	make  func() *mistakes
}

// TestNoticesPlanted shows that the judge can fail: it must notice each mistake by itself, without
// the reference model, and by a rule that is about it.
func TestNoticesPlanted(t *testing.T) {
	t.Parallel()
	for _, p := range allPlanted() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var first, its *Outcome
			for seed := uint64(1); seed <= plantedSeeds && its == nil; seed++ {
				o := Run(seed, Config{ModelEvery: math.MaxUint64, mistakes: p.make})
				if o.Violation == nil {
					continue
				}
				if first == nil {
					first = &o
				}
				if slices.Contains(p.rules, o.Violation.Rule) {
					its = &o
				}
			}
			switch {
			case first == nil:
				t.Errorf("not noticed in %d seeds", plantedSeeds)
			case its == nil:
				t.Errorf("noticed in seed %d by %q, but in %d seeds by none of %q", first.Seed, first.Violation.Rule,
					plantedSeeds, p.rules)
			default:
				t.Logf("noticed in seed %d, in seed %d by: %s: %.200s", first.Seed, its.Seed, its.Violation.Rule,
					its.Violation.Text)
			}
		})
	}
}

func allPlanted() []planted {
	return slices.Concat(plantedLog(), plantedReplicas(), plantedLeases(), plantedJobs(), plantedAnswers(), plantedTold(),
		plantedToldOfJobs(), plantedKeys(), plantedContents(), plantedSchedules())
}

// rewritten is a mistake in what all machines make of the commands of one type.
func rewritten[C any](change func(s *shard, c *C)) func() *mistakes {
	return func() *mistakes {
		return &mistakes{rewrite: func(s *shard, requests []fsm.Request) ([]fsm.Request, int) {
			changed := slices.Clone(requests)
			for i := range changed {
				changed[i].Commands = slices.Clone(changed[i].Commands)
				for j, command := range changed[i].Commands {
					if c, ok := any(command).(*C); ok {
						other := *c
						change(s, &other)
						changed[i].Commands[j] = any(&other).(fsm.Command)
					}
				}
			}
			return changed, 0
		}}
	}
}

// before is a mistake that all machines make before they carry out an entry with a command of one
// type.
func before[C any](extra func(s *shard, c *C) fsm.Command) func() *mistakes {
	return func() *mistakes {
		return &mistakes{rewrite: func(s *shard, requests []fsm.Request) ([]fsm.Request, int) {
			for i := range requests {
				for _, command := range requests[i].Commands {
					if c, ok := any(command).(*C); ok {
						if first := extra(s, c); first != nil {
							return slices.Concat([]fsm.Request{{Commands: []fsm.Command{first}}}, requests), 1
						}
					}
				}
			}
			return requests, 0
		}}
	}
}

// toldOf is a mistake in what is answered to the commands of one type.
func toldOf[C any](change func(s *shard, c *C, r *fsm.Result)) func() *mistakes {
	return func() *mistakes {
		return &mistakes{result: func(s *shard, _ *entry, command fsm.Command, r *fsm.Result) {
			if c, ok := any(command).(*C); ok {
				change(s, c, r)
			}
		}}
	}
}

// anyHeld returns a held job of a shard that matches, nil if there is none.
func anyHeld(s *shard, match func(a *account) bool) *account {
	for _, b := range s.w.ledger.books {
		for _, a := range b.held {
			if b.s == s && match(a) {
				return a
			}
		}
	}
	return nil
}

// idOf returns the id that a job goes by.
func idOf(a *account) string {
	if a.put.ID != "" {
		return a.put.ID
	}
	return fsm.FormatID(a.book.partition, a.serial)
}

func plantedLog() []planted {
	return []planted{
		{"a committed entry is lost", []string{"nothing is lost, nothing comes from nowhere",
			"what was acknowledged is in the log", "what is held is found"}, loseEntry},
		{"an entry is applied twice", []string{"nothing from nowhere", "counters count"}, func() *mistakes {
			return &mistakes{rewrite: func(s *shard, requests []fsm.Request) ([]fsm.Request, int) {
				if s.w.r.IntN(40) > 0 {
					return requests, 0
				}
				n := 0
				twice := slices.Clone(requests)
				for i := range twice {
					twice[i].ID = ""
					n += len(twice[i].Commands)
				}
				return slices.Concat(twice, requests), n
			}}
		}},
		{"a clock far ahead", []string{"shard time is not ahead of true time"}, func() *mistakes {
			return &mistakes{stamp: func(w *world, t fsm.Time) fsm.Time {
				return t + fsm.Time(one(w.r.IntN(50) == 0))*fsm.Time(5*time.Second)
			}}
		}},
		{"an unknown outcome is called a failure", []string{"a refusal is one"}, func() *mistakes {
			return &mistakes{outcome: func(*world, opState) opState { return refused }}
		}},
		{"requests are not remembered", []string{"an unknown outcome is applied at most once"}, forgetRequests},
	}
}

// forgetRequests has all machines remember no request.
func forgetRequests() *mistakes {
	return &mistakes{rewrite: func(_ *shard, requests []fsm.Request) ([]fsm.Request, int) {
		forgetful := slices.Clone(requests)
		for i := range forgetful {
			forgetful[i].ID = ""
		}
		return forgetful, 0
	}}
}

// loseEntry takes an answered entry out of the log, and out of all replicas that have it.
func loseEntry() *mistakes {
	lost := false
	return &mistakes{after: func(s *shard, e *entry) {
		if lost || e.index < 20 || s.w.violation != nil || s.w.r.IntN(20) > 0 {
			return
		}
		lost = true
		s.log = s.log[:len(s.log)-1]
		for node, r := range s.replicas {
			if r.machine.Index() == e.index {
				s.replicas[node] = &replica{s: s, node: node, machine: machine.New(fsm.Config{})}
				s.replicas[node].apply(len(s.log))
			}
		}
	}}
}

func plantedReplicas() []planted {
	same := []string{"replicas have the same state", "replicas give the same results"}
	return []planted{
		{"a replica drifts", same, func() *mistakes {
			return &mistakes{reads: func(r *replica, e *entry) []byte {
				if r.node != 2 || e.index < 10 {
					return e.data
				}
				return encode(fsm.FormatOf(e.data), e.stamp+fsm.Time(one(e.index%16 == 0)), e.requests)
			}}
		}},
		{"a replica forgets requests", same, func() *mistakes {
			return &mistakes{reads: func(r *replica, e *entry) []byte {
				if r.node != 1 {
					return e.data
				}
				requests := slices.Clone(e.requests)
				for i := range requests {
					requests[i].ID = ""
				}
				return encode(fsm.FormatOf(e.data), e.stamp, requests)
			}}
		}},
		{"a restored replica lacks an entry", append([]string{"restored is as it was"}, same...), func() *mistakes {
			return &mistakes{restore: func(r *replica) {
				index := r.machine.Index()
				r.machine = machine.New(fsm.Config{})
				for _, e := range r.s.log[:index-1] {
					_, _ = r.machine.Apply(e.index, e.data)
				}
				_, _ = r.machine.Apply(index, encode(r.s.w.format, 0, nil))
			}}
		}},
		{"a restored replica has forgotten all requests", append([]string{"restored is as it was"}, same...),
			func() *mistakes {
				return &mistakes{restore: func(r *replica) {
					index := r.machine.Index()
					r.machine = machine.New(fsm.Config{})
					for _, e := range r.s.log[:index] {
						requests := slices.Clone(e.requests)
						for i := range requests {
							requests[i].ID = ""
						}
						_, _ = r.machine.Apply(e.index, encode(fsm.FormatOf(e.data), e.stamp, requests))
					}
				}}
			}},
		{"a snapshot changes while it is open", []string{"a snapshot stays as it was"}, func() *mistakes {
			return &mistakes{after: func(s *shard, _ *entry) {
				for _, r := range s.replicas {
					if r.open != nil {
						r.open.data[len(r.open.data)/2] ^= 1
					}
				}
			}}
		}},
		{"nobody is woken up", []string{"somebody wakes up"}, func() *mistakes {
			return &mistakes{plan: func(t fsm.Time) fsm.Time { return t.Add(time.Hour) }}
		}},
		{"a counter drifts", []string{"what was put is somewhere", "counters count"}, func() *mistakes {
			return &mistakes{count: func(q *fsm.Queue) { q.Counters.Acked += q.Counters.Acked / 8 }}
		}},
	}
}

func plantedLeases() []planted {
	return []planted{
		{"a lease is handed out twice", []string{"one holder"}, before(func(s *shard, _ *fsm.Reserve) fsm.Command {
			a := anyHeld(s, func(a *account) bool {
				return a.state == leased && !a.exhausted() && a.until > s.machine().Clock().Add(time.Minute)
			})
			if a == nil {
				return nil
			}
			return &fsm.Release{Ref: fsm.Ref{Queue: a.book.queue, Partition: a.book.partition, Serial: a.serial, Fence: a.fence}}
		})},
		{"a job is handed out early", []string{"never early"}, before(func(s *shard, _ *fsm.Reserve) fsm.Command {
			a := anyHeld(s, func(a *account) bool { return a.state == waiting && a.due > s.machine().Clock().Add(time.Minute) })
			if a == nil {
				return nil
			}
			return &fsm.Reschedule{Queue: a.book.queue, ID: idOf(a), Given: fsm.GivenDelay}
		})},
		{"a fence is used again", []string{"fences grow"}, toldOf(func(s *shard, _ *fsm.Reserve, r *fsm.Result) {
			for i, g := range r.Grants {
				if a := s.w.ledger.job(s, g.Serial); a != nil && a.fence > 0 && !r.Replayed {
					r.Grants[i].Fence = a.fence
				}
			}
		})},
		{"a stale ack is taken", []string{"a stale lease is refused"},
			toldOf(func(_ *shard, _ *fsm.Ack, r *fsm.Result) { r.Code = fsm.OK })},
		{"an ack with an old fence ends the new lease", []string{"a stale lease is refused"},
			rewritten(func(s *shard, c *fsm.Ack) {
				if a := s.w.ledger.job(s, c.Serial); a != nil && a.state == leased {
					c.Fence = a.fence
				}
			})},
		{"an attempt is not counted", []string{"attempts are counted"}, toldOf(func(_ *shard, _ *fsm.Reserve, r *fsm.Result) {
			for i := range r.Grants {
				r.Grants[i].Attempt = 1
			}
		})},
		{"attempts have no end", []string{"attempts end", "the dead are not handed out"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Given, c.MaxAttempts = c.Given|fsm.GivenMaxAttempts, 0 })},
		{"an ack does not stick", []string{"what ended is not handed out"}, func() *mistakes {
			live := func(s *shard, c *fsm.Ack, clock fsm.Time) bool {
				a := s.w.ledger.job(s, c.Serial)
				return a != nil && a.state == leased && a.fence == c.Fence && a.until > clock.Add(time.Minute)
			}
			m := rewritten(func(s *shard, c *fsm.Ack) {
				if live(s, c, s.machine().Clock()) {
					c.Serial += 1 << 40
				}
			})()
			m.result = toldOf(func(s *shard, c *fsm.Ack, r *fsm.Result) {
				if live(s, c, s.machine().Clock()-fsm.Time(time.Minute)) {
					*r = fsm.Result{State: fsm.Acked}
				}
			})().result
			return m
		}},
		{"no grace", []string{"one holder", "a lease lasts"}, rewritten(func(_ *shard, c *fsm.Lead) { c.Grace = 0 })},
		{"a lease is shorter than asked for", []string{"a lease is as long as it was asked for"},
			rewritten(func(_ *shard, c *fsm.Reserve) { c.TTR /= 2 })},
		{"extend does nothing", []string{"extend never shortens"}, rewritten(func(_ *shard, c *fsm.Extend) { c.TTR = 1 })},
		{"a pause does not stop", []string{"a paused queue hands out nothing"},
			rewritten(func(_ *shard, c *fsm.Configure) { c.Settings.Paused = false })},
	}
}

func plantedJobs() []planted {
	return []planted{
		{"a cancel does not stick", []string{"what ended is not handed out"}, func() *mistakes {
			waits := func(s *shard, c *fsm.Cancel) bool {
				a := s.w.ledger.find(s, c.Queue, c.ID)
				return a != nil && a.state == waiting && a.expires == 0 && a.due > s.machine().Clock().Add(time.Minute)
			}
			m := rewritten(func(s *shard, c *fsm.Cancel) {
				if waits(s, c) {
					c.ID = "nobody"
				}
			})()
			m.result = toldOf(func(s *shard, c *fsm.Cancel, r *fsm.Result) {
				if r.Code == fsm.JobNotFound && waits(s, c) {
					*r = fsm.Result{State: fsm.Delayed}
				}
			})().result
			return m
		}},
		{"a put that is repeated creates twice", []string{"an id is put once"}, rewritten(func(s *shard, c *fsm.Put) {
			if c.ID != "" && s.w.ledger.find(s, c.Queue, c.ID) != nil {
				c.ID = ""
			}
		})},
		{"an ended id is put once more", []string{"an id is put once"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Again = true })},
		{"order is broken", []string{"jobs leave in order"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Given, c.Priority = c.Given&^fsm.GivenPriority, 0 })},
		{"the last put leaves first", []string{"jobs leave in order"},
			toldOf(func(_ *shard, _ *fsm.Reserve, r *fsm.Result) { slices.Reverse(r.Grants) })},
		{"a delay is rounded down", []string{"a job is due when it was asked for"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Delay = c.Delay.Truncate(time.Second) })},
		{"a retry comes at once", []string{"a retry comes when it was asked for"},
			rewritten(func(_ *shard, c *fsm.Nack) { c.DelayGiven, c.Delay = true, 0 })},
		{"a body is another's", []string{"what is handed out is what was put"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Body = []byte("another") })},
		{"a ttl is forgotten", []string{"what expired is not handed out", "what ended is not handed out"},
			rewritten(func(_ *shard, c *fsm.Put) { c.Given &^= fsm.GivenTTL })},
		{"a job that is released outlives its ttl", []string{"what is over expires"},
			toldOf(func(s *shard, c *fsm.Release, r *fsm.Result) {
				if a := s.w.ledger.job(s, c.Serial); r.State == fsm.Expired && a != nil {
					r.State, r.Due = fsm.Ready, a.due
				}
			})},
		{"a reserve leaves behind what is due", []string{"what is due is handed out"},
			rewritten(func(_ *shard, c *fsm.Reserve) { c.Max = 1 })},
		{"a purge takes the dead as well", []string{"as many as there are"},
			rewritten(func(_ *shard, c *fsm.Purge) { c.States |= fsm.Set(fsm.Dead) })},
		{"a rate does not hold", []string{"a limit holds"},
			rewritten(func(_ *shard, c *fsm.Configure) { c.Settings.PutsPerSecond = 0 })},
		{"a limit does not hold", []string{"a limit holds"},
			rewritten(func(_ *shard, c *fsm.Configure) { c.Settings.MaxJobs, c.Settings.MaxInFlight = 0, 0 })},
		{"a job goes to another queue", []string{"nothing from nowhere"}, rewritten(func(_ *shard, c *fsm.Put) {
			if c.Queue == "ns/short" && c.ID == "" {
				c.Queue = "plain"
			}
		})},
	}
}

func plantedAnswers() []planted {
	return []planted{
		{"a put is answered with another due time", []string{"a put is answered as its first"},
			toldOf(func(_ *shard, _ *fsm.Put, r *fsm.Result) {
				if r.Code == fsm.OK && !r.Created {
					r.Due += fsm.Time(time.Millisecond)
				}
			})},
		{"a conflict is called success", []string{"another put is a conflict"},
			toldOf(func(s *shard, c *fsm.Put, r *fsm.Result) {
				if a := s.w.ledger.find(s, c.Queue, c.ID); r.Code == fsm.JobExists && a != nil {
					*r = fsm.Result{Serial: a.serial, Due: a.firstDue, State: fsm.Delayed}
				}
			})},
		{"a live lease is called stale", []string{"a lease lasts", "an ack may be repeated"},
			toldOf(func(s *shard, _ *fsm.Ack, r *fsm.Result) {
				if s.w.r.IntN(20) == 0 {
					*r = fsm.Result{Code: fsm.StaleLease}
				}
			})},
		{"an answer from memory is another", []string{"an answer from memory is the first"},
			toldOf(func(_ *shard, _ *fsm.Put, r *fsm.Result) {
				if r.Replayed {
					r.Serial++
				}
			})},
		{"a held job is not found", []string{"what is held is found"},
			toldOf(func(_ *shard, _ *fsm.Cancel, r *fsm.Result) { *r = fsm.Result{Code: fsm.JobNotFound} })},
		{"how a job ended is told wrongly", []string{"how a job ended is told"},
			toldOf(func(_ *shard, _ *fsm.Cancel, r *fsm.Result) {
				if r.Code == fsm.JobNotFound {
					r.State = fsm.StateNone
				}
			})},
	}
}
