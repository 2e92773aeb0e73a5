package sim

import (
	"math"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// plantedTold are mistakes in single answers, each for a rule that no other mistake is about.
func plantedTold() []planted {
	coded := func(code fsm.Code) func(*fsm.Result) { return func(r *fsm.Result) { *r = fsm.Result{Code: code} } }
	return []planted{
		{"a configuration is refused", []string{"a configuration goes where its queue is"},
			told[fsm.Configure](coded(fsm.QueueChanged))},
		{"a put is sent elsewhere", []string{"a put goes where its queue is"}, told[fsm.Put](coded(fsm.QueueChanged))},
		{"a queue is full too soon", []string{"a limit is reached before it refuses"}, told[fsm.Put](coded(fsm.QueueFull))},
		{"a put comes too fast for a queue without a rate", []string{"a limit is reached before it refuses"},
			told[fsm.Put](coded(fsm.RateLimited))},
		{"an id expires at once", []string{"a request id is good for 5 minutes"}, told[fsm.Ack](coded(fsm.RequestExpired))},
		{"a request is taken for another", []string{"a request is what it was"}, told[fsm.Ack](coded(fsm.Invalid))},
		{"a queue is not found", []string{"a queue is there once it was told of"},
			told[fsm.Redrive](coded(fsm.QueueNotFound))},
		{"a nack is not understood", []string{"an answer is one of its kind"}, told[fsm.Nack](coded(fsm.JobExists))},
		{"a queue is opened again", []string{"a queue is opened once"},
			told[fsm.Open](func(r *fsm.Result) { r.Created = !r.Created })},
		{"a purge leaves some", []string{"a purge leaves nothing"}, told[fsm.Purge](func(r *fsm.Result) { r.More = true })},
		{"a serial comes again", []string{"serials grow"},
			told[fsm.Put](func(r *fsm.Result) { r.Serial = min(r.Serial, 3) })},
		{"a repeat is told as a conflict", []string{"only another job is a conflict"}, told[fsm.Put](func(r *fsm.Result) {
			if r.Code == fsm.OK && !r.Created {
				r.Code = fsm.JobExists
			}
		})},
		{"a first answer is told as a repeated one", []string{"an answer from memory has a first"},
			told[fsm.Nack](func(r *fsm.Result) { r.Replayed = true })},
		{"a job is released into the dead letters", []string{"a release does not count"},
			told[fsm.Release](func(r *fsm.Result) { r.State = fsm.Dead })},
		{"a job that was given back expires", []string{"only what is over expires"},
			told[fsm.Nack](func(r *fsm.Result) { r.State = fsm.Expired })},
	}
}

// plantedToldOfJobs are mistakes in the answers to calls on single jobs.
func plantedToldOfJobs() []planted {
	return []planted{
		{"a cancelled job was dead", []string{"a state is told as it is"},
			told[fsm.Cancel](func(r *fsm.Result) { r.State = fsm.Dead })},
		{"what is gone is cancelled", []string{"what ended is not cancelled"},
			told[fsm.Cancel](func(r *fsm.Result) { *r = fsm.Result{State: fsm.Delayed} })},
		{"what is gone is rescheduled", []string{"what ended is not rescheduled"},
			told[fsm.Reschedule](func(r *fsm.Result) { r.Code = fsm.OK })},
		{"a reserved job is rescheduled", []string{"only what waits is rescheduled"},
			told[fsm.Reschedule](func(r *fsm.Result) {
				if r.Code == fsm.JobReserved {
					r.Code = fsm.OK
				}
			})},
		{"a due time moves", []string{"a due time stays"}, told[fsm.Reserve](func(r *fsm.Result) {
			for i := range r.Grants {
				r.Grants[i].Due -= fsm.Time(time.Millisecond)
			}
		})},
		{"a job comes from a queue that nobody named", []string{"only queues that were asked for"},
			told[fsm.Reserve](func(r *fsm.Result) {
				for i := range r.Grants {
					r.Grants[i].Queue = "another"
				}
			})},
		{"a repeated reserve has a lease that nobody has", []string{"a repeated reserve has live grants of the first"},
			told[fsm.Reserve](func(r *fsm.Result) {
				for i := range r.Grants {
					r.Grants[i].Fence += one(r.Replayed)
				}
			})},
		{"a cancel takes what is reserved", []string{"a reserved job is not cancelled"},
			rewritten(func(_ *shard, c *fsm.Cancel) { c.Force = true })},
		{"old requests are not remembered", []string{"an old request is refused"}, forgetRequests},
		{"an entry cannot be read", []string{"an entry can be read"}, func() *mistakes {
			return &mistakes{reads: func(_ *replica, e *entry) []byte { return e.data[:len(e.data)-1] }}
		}},
		{"a snapshot is damaged", []string{"a snapshot can be restored"}, func() *mistakes {
			return &mistakes{after: func(s *shard, _ *entry) {
				for _, r := range s.replicas {
					for i := range r.saved {
						r.saved[i].data = r.saved[i].data[:len(r.saved[i].data)-1]
					}
				}
			}}
		}},
	}
}

// told is a mistake in every answer to the commands of one type.
func told[C any](change func(r *fsm.Result)) func() *mistakes {
	return toldOf(func(_ *shard, _ *C, r *fsm.Result) { change(r) })
}

// The reference model notices what the machine makes of a command otherwise.
func TestModelNotices(t *testing.T) {
	t.Parallel()
	otherwise := rewritten(func(_ *shard, c *fsm.Put) { c.Given, c.TTR = c.Given|fsm.GivenTTR, time.Hour })
	for every, want := range map[uint64]bool{1: true, math.MaxUint64: false} {
		o := Run(1, Config{ModelEvery: every, mistakes: otherwise})
		if got := o.Violation != nil && o.Violation.Rule == "the model agrees"; got != want {
			t.Errorf("one in %d worlds held against the model: %v", every, o)
		}
	}
}
