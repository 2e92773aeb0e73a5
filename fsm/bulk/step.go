package bulk

import (
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

const (
	// chunkJobs is how many jobs one request acts on at most.
	chunkJobs = 1000
	// scanJobs is how many jobs one query looks at: about a millisecond, in which the shard applies
	// nothing.
	scanJobs = 1024
)

// Query returns the query for the next jobs of a partition. It asks for no more than the task may
// still act on, and for no more than most.
func (t *Task) Query(partition uint32, most int) *fsm.SearchQuery {
	place := t.place(partition)
	q := &fsm.SearchQuery{
		ListQuery: fsm.ListQuery{
			Queue: t.Queue, State: t.State, DueAfter: t.DueAfter, DueBefore: t.DueBefore,
			After: fsm.Cursor{Due: place.Due, Serial: place.Serial}, Max: min(chunkJobs, most),
		},
		Match: fsm.Match{IDPrefix: t.IDPrefix, Text: t.Text, Cause: t.Cause}, Scan: scanJobs,
	}
	if t.Most > 0 {
		q.Max = int(min(uint64(q.Max), t.left()))
	}
	return q
}

// left is how many jobs the task may still act on, if Most bounds it.
func (t *Task) left() uint64 { return t.Most - min(t.Most, t.Progress.Matched) }

// Full reports whether the task has acted on as many jobs as it may.
func (t *Task) Full() bool { return t.Most > 0 && t.left() == 0 }

func (t *Task) place(partition uint32) Place {
	if int(partition) < len(t.Progress.Places) {
		return t.Progress.Places[partition]
	}
	return Place{}
}

// Done reports whether the task is through with a partition.
func (t *Task) Done(partition uint32) bool { return t.place(partition).Done }

// Trim leaves out of a reading what nobody was shown when the task began, and what it would meet again
// and again: jobs that were put or have died since, and, of those that are to be rescheduled, jobs that
// have the new due time already, or failed since and wait for another attempt.
func (t *Task) Trim(found *fsm.Reading) {
	found.Jobs = slices.DeleteFunc(found.Jobs, func(j fsm.Job) bool {
		begun := fsm.Time(t.Created)
		return j.Created > begun || t.State == fsm.Dead && j.Died > begun ||
			t.Act == Reschedule && (t.Due != 0 && j.Due == t.Due || failedSince(&j, begun))
	})
}

// failedSince reports whether an attempt at a job failed after a time.
func failedSince(j *fsm.Job, at fsm.Time) bool {
	n := len(j.Attempts)
	return n > 0 && j.Attempts[n-1].Ended > at
}

// Request returns the request that acts on what a query found in a partition, after Trim; nil if there is nothing
// to do. Its id is the same whenever the task is at this place, so that a repeat after a lost answer,
// by another node too, counts what was done. again numbers the attempts at other content under the
// same place.
func (t *Task) Request(partition uint32, found *fsm.Reading, again int) *fsm.Request {
	place := t.place(partition)
	r := &fsm.Request{
		Caller: fsm.NamespaceOf(t.Queue),
		ID:     fmt.Sprintf("task %s/%d.%d.%d+%d", t.ID, partition, place.Due, place.Serial, again),
	}
	var ids []string
	for i := range found.Jobs {
		switch j := &found.Jobs[i]; t.Act {
		case Redrive:
			ids = append(ids, j.ID)
		case Cancel:
			r.Commands = append(r.Commands, &fsm.Cancel{Queue: t.Queue, ID: j.ID, Force: t.Force})
		case Reschedule:
			r.Commands = append(r.Commands, t.reschedule(j.ID))
		case Count:
		}
	}
	if len(ids) > 0 {
		r.Commands = []fsm.Command{&fsm.Redrive{Queue: t.Queue, IDs: ids}}
	}
	if len(r.Commands) == 0 {
		return nil
	}
	return r
}

func (t *Task) reschedule(id string) *fsm.Reschedule {
	if t.Due == 0 {
		return &fsm.Reschedule{Queue: t.Queue, ID: id, Given: fsm.GivenDelay}
	}
	return &fsm.Reschedule{Queue: t.Queue, ID: id, Given: fsm.GivenDueAt, DueAt: t.Due}
}

// Advance notes what a query found in a partition, after Trim, and the results of the request that acted on it.
func (t *Task) Advance(partition uint32, found *fsm.Reading, results []fsm.Result) {
	p := &t.Progress
	for len(p.Places) <= int(partition) {
		p.Places = append(p.Places, Place{})
	}
	changed := uint64(0)
	for i := range results {
		switch r := &results[i]; {
		case r.Code != fsm.OK:
		case t.Act == Redrive:
			changed += r.Count
		default:
			changed++
		}
	}
	p.Searched += found.Scanned
	p.Matched += uint64(len(found.Jobs))
	p.Changed += changed
	if t.Act != Count {
		p.Skipped += uint64(len(found.Jobs)) - min(changed, uint64(len(found.Jobs)))
	}
	if found.Last != (fsm.Cursor{}) {
		p.Places[partition] = Place{Due: found.Last.Due, Serial: found.Last.Serial}
	}
	p.Places[partition].Done = !found.More
	p.Trouble = ""
}
