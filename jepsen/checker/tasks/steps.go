package tasks

import (
	"bytes"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// shard takes note of what tasks did in a shard, and holds each command against what was asked for.
func (j *judge) shard(s *Shard) {
	for i := range s.Moves {
		m := &s.Moves[i]
		if j.moves[m.Job] == nil {
			j.jobs = append(j.jobs, m.Job)
		}
		j.moves[m.Job] = append(j.moves[m.Job], *m)
		j.note(s, m, len(j.moves[m.Job])-1)
	}
	for _, c := range s.Commands {
		j.command(s, c)
	}
}

// stepOf returns the step that a command is of; nil if its task is unknown.
func (j *judge) stepOf(c *ledger.Command) *step {
	t := j.tasks[taskOf(c.Request)]
	if t == nil {
		return nil
	}
	s := t.byRequest[c.Request.ID]
	if s == nil {
		s = &step{at: j.Since(c.Entry.At)}
		t.byRequest[c.Request.ID] = s
		t.steps = append(t.steps, s)
	}
	return s
}

// note takes note of a move that a task made.
func (j *judge) note(s *Shard, m *Move, place int) {
	if !IsStep(m.By.Request) || place == 0 {
		return
	}
	before := &j.moves[m.Job][place-1]
	switch m.By.Command.(type) {
	case *fsm.Redrive:
		if before.State != fsm.Dead {
			return // what was due, and was settled before
		}
	case *fsm.Cancel:
		if m.State != fsm.Cancelled {
			return
		}
	default:
		settled := m.State == fsm.Ready && before.State == fsm.Delayed && m.Due == before.Due
		if m.By.Job != m.Job || before.State == fsm.Reserved || settled {
			return
		}
	}
	if step := j.stepOf(m.By); step != nil {
		step.moved++
		step.jobs = append(step.jobs, stay{m.Job, place - 1})
	}
	j.found.Count("jobs that tasks acted on", 1)
}

// command holds a command of a task against what was asked for, whatever came of it.
func (j *judge) command(s *Shard, c *ledger.Command) {
	at := j.Since(c.Entry.At)
	j.found.Look(Scope)
	t := j.tasks[taskOf(c.Request)]
	if t == nil {
		j.found.Violated(Scope, at, "shard %d, entry %d.%d: %s is of no task that a client started", s.Number, c.Entry.Index,
			c.Number, c.Request.ID)
		return
	}
	if c.Result.Code == fsm.Invalid || c.Result.Code == fsm.RequestExpired || c.Result.Replayed {
		return
	}
	ids, ok := t.asks(c.Command)
	for _, id := range ids {
		ok = ok && strings.HasPrefix(id, t.req.GetIdPrefix())
	}
	if !ok {
		j.found.Violated(Scope, at, "shard %d, entry %d.%d: task %s did what it was not asked for: %+v", s.Number,
			c.Entry.Index, c.Number, t.id, c.Command)
	}
	step := j.stepOf(c)
	if step.attempt != c.Request {
		step.attempt, step.names = c.Request, 0
	}
	step.names += len(ids)
	step.named = max(step.named, step.names)
}

// asks reports whether a command is what a task is to do, and returns the ids that it names.
func (t *task) asks(c fsm.Command) (ids []string, ok bool) {
	r := t.req
	switch c := c.(type) {
	case *fsm.Redrive:
		return c.IDs, r.GetAct() == belfryv1.TaskAct_TASK_ACT_REDRIVE && c.Queue == r.GetQueue() && len(c.IDs) > 0
	case *fsm.Cancel:
		return []string{c.ID}, r.GetAct() == belfryv1.TaskAct_TASK_ACT_CANCEL && c.Queue == r.GetQueue() &&
			c.Force == r.GetForce()
	case *fsm.Reschedule:
		at := t.told == nil || c.Given == fsm.GivenDueAt && wire.CeilTime(c.DueAt) == wire.TimeOf(t.told.GetDueAt())
		now := c.Given == fsm.GivenDelay && c.Delay == 0 && t.told.GetDueAt() == nil
		return []string{c.ID}, r.GetAct() == belfryv1.TaskAct_TASK_ACT_RESCHEDULE && c.Queue == r.GetQueue() && (at || now)
	default:
		return nil, false
	}
}

// fits reports whether a job matches a task as it is after a move, whatever its state.
func (t *task) fits(m *Move) bool {
	put := m.Job.Put
	r := t.req
	if !strings.HasPrefix(m.Job.Name(), r.GetIdPrefix()) ||
		r.GetCause() != "" && fsm.Fingerprint(m.Error) != r.GetCause() {
		return false
	}
	text := r.GetText()
	if text == "" || strings.Contains(m.Job.Name(), text) || strings.Contains(m.Error, text) ||
		bytes.Contains(put.Body, []byte(text)) {
		return true
	}
	for _, h := range put.Headers {
		if strings.Contains(h.Name, text) || strings.Contains(h.Value, text) {
			return true
		}
	}
	return false
}

// inTime reports whether a due time is within the bounds of a task.
func (t *task) inTime(due fsm.Time) bool {
	r := t.req
	return due >= wire.TimeOf(r.GetDueAfter()) && (r.GetDueBefore() == nil || due < wire.TimeOf(r.GetDueBefore()))
}

// matches reports whether a job matches a task after a move, when it was in that state until a shard
// time. A delayed job is ready from its due time on, and a lease ends, also before an entry says so.
func (t *task) matches(m *Move, until fsm.Time) bool {
	want := t.req.GetState()
	is := wire.StateOf(m.State) == want && t.inTime(m.Due)
	switch want {
	case belfryv1.JobState_JOB_STATE_READY:
		is = is || m.State == fsm.Delayed && m.Due <= until && t.inTime(m.Due) ||
			m.State == fsm.Reserved && m.Until <= until && t.inTime(m.Until)
	case belfryv1.JobState_JOB_STATE_DEAD:
		is = is || m.State == fsm.Reserved && m.Until <= until && t.inTime(m.Due)
	default:
	}
	return is && t.fits(m)
}

// scope checks that each job that a task changed matched since it began, and was changed once.
func (j *judge) scope(t *task) {
	type act struct {
		stay
		at time.Duration
	}
	last := map[*ledger.Job]act{}
	moved := 0
	for _, s := range t.steps {
		moved += s.moved
		for _, one := range s.jobs {
			j.found.Look(Scope)
			if !j.matched(t, one) {
				j.found.Violated(Scope, s.at, "task %s acted on job %q of %s, which did not match since it began: %+v, it was %+v",
					t.id, one.job.Name(), t.req.GetQueue(), t.req, j.moves[one.job][one.place])
			}
			if before, again := last[one.job]; again && j.leaders(before.at, s.at) == 0 && !j.given(t, one, before.place) {
				j.found.Violated(Scope, s.at, "task %s acted on job %q of %s twice, at %.3fs too", t.id, one.job.Name(),
					t.req.GetQueue(), before.at.Seconds())
			}
			last[one.job] = act{one, s.at}
		}
	}
	if most := t.req.GetMax(); most > 0 && moved > int(min(most, 1<<30))+j.missing(t, (*step).changes) {
		j.found.Violated(Scope, t.steps[len(t.steps)-1].at, "task %s acted on %d jobs, and was to act on %d at most", t.id,
			moved, most)
	}
}

// matched reports whether a job, or another one of its id before, matched a task at a moment after
// the task was asked for.
func (j *judge) matched(t *task, one stay) bool {
	if t.told == nil {
		return true // when it began is not known
	}
	all := j.moves[one.job]
	for i := one.place; i >= 0; i-- {
		m := &all[i]
		left := all[i+1].By.Entry
		if j.Since(left.At) < t.asked-slack {
			break
		}
		died := m.State != fsm.Dead || m.By.Entry.Clock <= t.created().Add(j.Bound)
		if one.job.Created <= t.created() && died && t.matches(m, left.Clock.Add(j.Bound)) {
			return true
		}
	}
	return j.namesake(t, one)
}

// namesake reports whether an earlier job of the same id was there after the task was asked for: acts
// name jobs by their ids.
func (j *judge) namesake(t *task, one stay) bool {
	if one.job.ID == "" || t.created() == 0 {
		return false
	}
	for _, other := range j.jobs {
		all := j.moves[other]
		if other != one.job && other.ID == one.job.ID && other.Queue.Name == one.job.Queue.Name &&
			other.Created <= t.created() && j.Since(all[len(all)-1].By.Entry.At) >= t.asked-slack {
			return true
		}
	}
	return false
}

// given reports whether others gave a job another due time since a task rescheduled it, when it was
// in another place: then the task may meet it again.
func (j *judge) given(t *task, one stay, since int) bool {
	if t.req.GetAct() != belfryv1.TaskAct_TASK_ACT_RESCHEDULE {
		return false
	}
	for _, m := range j.moves[one.job][since+2 : one.place+1] {
		switch m.By.Command.(type) {
		case *fsm.Release, *fsm.Reschedule:
			if !IsStep(m.By.Request) || taskOf(m.By.Request) != t.id {
				return true
			}
		}
	}
	return false
}
