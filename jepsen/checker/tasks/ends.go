package tasks

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// onlyCounts reports whether a task changes nothing.
func (t *task) onlyCounts() bool { return t.req.GetAct() == belfryv1.TaskAct_TASK_ACT_COUNT }

// whole reports whether a task has ended because it was through.
func (t *task) whole() bool {
	most := t.req.GetMax()
	return t.ended > 0 && !t.told.GetStopping() && t.told.GetTrouble() == "" && (most == 0 || t.told.GetMatched() < most)
}

// complete checks that a task that is through has met every job that matched all the while, and that
// a count is as large as the number of these, and not larger than what matched at any moment.
func (j *judge) complete(t *task) {
	if !t.whole() {
		return
	}
	lasting, ever := uint64(0), uint64(0)
	for _, job := range j.jobs {
		if job.Queue.Name != t.req.GetQueue() || job.Created > t.created() {
			continue
		}
		all := j.moves[job]
		for i := range all {
			m := &all[i]
			from, to := j.Since(m.By.Entry.At), time.Duration(1<<62)
			until := j.At(t.ended).Add(j.Bound + slack)
			if i+1 < len(all) {
				to = j.Since(all[i+1].By.Entry.At)
				until = min(until, all[i+1].By.Entry.Clock.Add(j.Bound))
			}
			if to < t.asked-slack || from > t.ended+slack || !t.matches(m, until) {
				continue
			}
			ever++
			if from > t.asked-slack || to < t.ended+slack || !j.unmoved(t, m) {
				continue
			}
			j.found.Look(Complete)
			if lasting++; !t.onlyCounts() {
				j.found.Violated(Complete, t.ended, "task %s of %s has ended at %.3fs, and did not act on job %q, which "+
					"matched from %.3fs on: %+v", t.id, t.req.GetQueue(), t.ended.Seconds(), job.Name(), from.Seconds(), t.req)
			}
		}
	}
	if n := t.told.GetMatched(); t.onlyCounts() && (n < lasting || n > ever) {
		j.found.Violated(Complete, t.ended, "task %s counted %d jobs of %s, of which %d matched all the while, and %d at "+
			"some moment: %+v", t.id, n, t.req.GetQueue(), lasting, ever, t.req)
	}
}

// unmoved reports whether a job that did not move stayed what it was: a delayed one falls due, and a
// lease lapses, without an entry. A job with the new due time is left alone.
func (j *judge) unmoved(t *task, m *Move) bool {
	end := j.At(t.ended).Add(j.Bound + slack)
	switch m.State {
	case fsm.Delayed:
		due := wire.TimeOf(t.told.GetDueAt())
		return m.Due > end && (due == 0 || wire.CeilTime(m.Due) != due)
	case fsm.Reserved:
		return m.Until > end
	case fsm.Ready:
		due := wire.TimeOf(t.told.GetDueAt())
		return due == 0 || wire.CeilTime(m.Due) != due
	default:
		return true
	}
}

func (s *step) changes() int { return s.moved }

func (s *step) asks() int { return s.named }

// missing is how much the counts of a task may lack: for each change of the catalog's leader what was
// done in the second before and in the step under way, and one step of the leader that did not know
// yet; and the step whose answer a task did not wait for that was stopped.
func (j *judge) missing(t *task, amount func(*step) int) (sum int) {
	if len(t.steps) == 0 {
		return 0
	}
	largest := amount(slices.MaxFunc(t.steps, func(a, b *step) int { return amount(a) - amount(b) }))
	for _, at := range j.Leaders {
		if at < t.asked-slack || t.ended > 0 && at > t.ended+slack {
			continue
		}
		before := slices.Clone(t.steps)
		before = slices.DeleteFunc(before, func(s *step) bool { return s.at > at })
		for i, s := range before {
			if i+2 >= len(before) || s.at > before[len(before)-2].at-saveEvery {
				sum += amount(s)
			}
		}
		sum += largest
	}
	if t.told.GetTrouble() != "" {
		sum += largest
	}
	return sum
}

// counts checks the counts of a task that has ended against the log.
func (j *judge) counts(t *task) {
	if t.ended == 0 || t.onlyCounts() {
		return
	}
	j.found.Look(Complete)
	moved, named := 0, 0
	for _, s := range t.steps {
		moved, named = moved+s.moved, named+s.named
	}
	told := t.told
	check := func(what string, have uint64, want, missing int) {
		if have > uint64(want) || have+uint64(missing) < uint64(want) { //nolint:gosec // sums of lengths
			j.found.Violated(Complete, t.ended, "task %s of %s ended with %d jobs %s; by the log it should be %d, or up to %d "+
				"fewer after changes of the catalog's leader", t.id, t.req.GetQueue(), have, what, want, missing)
		}
	}
	check("changed", told.GetChanged(), moved, j.missing(t, (*step).changes))
	check("matched", told.GetMatched(), named, j.missing(t, (*step).asks))
	if told.GetMatched() != told.GetChanged()+told.GetSkipped() {
		j.found.Violated(Complete, t.ended, "task %s of %s ended with %d jobs matched, %d changed and %d skipped", t.id,
			t.req.GetQueue(), told.GetMatched(), told.GetChanged(), told.GetSkipped())
	}
	if most := t.req.GetMax(); most > 0 && told.GetMatched() > most {
		j.found.Violated(Scope, t.ended, "task %s matched %d jobs, and was to act on %d at most", t.id, told.GetMatched(),
			most)
	}
}

// ends checks that a task begins no step after its end, nor after a stop was answered. The step under
// way ends, and so does one of each leader that did not know yet that it leads no more.
func (j *judge) ends(t *task) {
	for _, end := range []struct {
		what    string
		at      time.Duration
		allowed int
	}{{"it had ended", t.ended, 0}, {"its stop was answered", t.stopped, 1}} {
		if end.at == 0 {
			continue
		}
		end.allowed += j.leaders(t.asked, end.at)
		if t.told.GetTrouble() != "" {
			end.allowed++ // it was stopped while an answer was missing
		}
		j.found.Look(Ends)
		after := slices.DeleteFunc(slices.Clone(t.steps), func(s *step) bool { return s.at <= end.at || s.moved == 0 })
		if len(after) > end.allowed {
			j.found.Violated(Ends, after[0].at, "task %s of %s began %d steps after %s at %.3fs, %d may have been under way",
				t.id, t.req.GetQueue(), len(after), end.what, end.at.Seconds(), end.allowed)
		}
	}
}

// lasting checks that each task that was answered is in the last list of each node, and has ended.
func (j *judge) lasting() {
	last := map[string]*history.Op{}
	for _, o := range j.Ops {
		r, ok := o.Request.(*belfryv1.ListTasksRequest)
		if ok && o.OK() && r.GetQueue() == "" {
			last[o.Node] = o
		}
	}
	for node, o := range last {
		listed := map[string]*belfryv1.Task{}
		for _, t := range o.Response.(*belfryv1.ListTasksResponse).GetTasks() { //nolint:forcetypeassert // what it answers
			listed[t.GetId()] = t
		}
		for _, t := range j.order {
			if t.acked == 0 || t.acked > o.Invoked {
				continue
			}
			j.found.Look(Ends)
			switch now := listed[t.id]; {
			case now == nil && len(listed) < keptMost:
				j.found.Violated(Ends, o.Returned, "task %s of %s was started at %.3fs, and %s does not know it", t.id,
					t.req.GetQueue(), t.acked.Seconds(), node)
			case now != nil && now.GetEndedAt() == nil:
				j.found.Violated(Ends, o.Returned, "task %s of %s was started at %.3fs, and has not ended, as %s says: %v", t.id,
					t.req.GetQueue(), t.acked.Seconds(), node, now)
			}
		}
	}
}
