package nemesis

import (
	"maps"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// TestSameJobs: what was restored is what was in the backup, and only what time changes may be otherwise.
func TestSameJobs(t *testing.T) {
	key := jobKey{"q", 0, 7}
	job := func(state fsm.State, change func(*fsm.Job)) map[jobKey]fsm.Job {
		j := fsm.Job{
			Queue: "q", Serial: 7, ID: "seven", State: state, Due: 100, FirstDue: 90, Body: []byte("body"), Headers: []fsm.Header{{Name: "a", Value: "b"}},
			RetryDelays: []time.Duration{1}, Fence: 6, Attempt: 1,
		}
		change(&j)
		return map[jobKey]fsm.Job{key: j}
	}
	same := func(*fsm.Job) {}
	for _, c := range []struct {
		what string
		had  fsm.State
		now  map[jobKey]fsm.Job
		want bool
	}{
		{"the same", fsm.Delayed, job(fsm.Delayed, same), true},
		{"fallen due", fsm.Delayed, job(fsm.Ready, same), true},
		{"a lease that lapsed", fsm.Reserved, job(fsm.Ready, func(j *fsm.Job) { j.Due, j.Attempt = 200, 2 }), true},
		{"another id", fsm.Delayed, job(fsm.Delayed, func(j *fsm.Job) { j.ID = "eight" }), false},
		{"another body", fsm.Reserved, job(fsm.Ready, func(j *fsm.Job) { j.Body = []byte("bodi") }), false},
		{"another header", fsm.Dead, job(fsm.Dead, func(j *fsm.Job) { j.Headers = nil }), false},
		{"another due time", fsm.Delayed, job(fsm.Delayed, func(j *fsm.Job) { j.Due = 101 }), false},
		{"another due time when it fell due", fsm.Delayed, job(fsm.Ready, func(j *fsm.Job) { j.Due = 101 }), false},
		{"ready and delayed again", fsm.Ready, job(fsm.Delayed, same), false},
		{"risen", fsm.Dead, job(fsm.Ready, same), false},
		{"an attempt more without a lease", fsm.Ready, job(fsm.Ready, func(j *fsm.Job) { j.Attempt++ }), false},
		{"a lease that lives, with another fence", fsm.Reserved, job(fsm.Reserved, func(j *fsm.Job) { j.Fence++ }), false},
		{"gone", fsm.Delayed, nil, false},
	} {
		if err := sameJobs(job(c.had, same), c.now); (err == nil) != c.want {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	more := maps.Clone(job(fsm.Delayed, same))
	more[jobKey{"q", 0, 8}] = fsm.Job{}
	if err := sameJobs(job(fsm.Delayed, same), more); err == nil {
		t.Error("a job from nowhere was restored")
	}
}
