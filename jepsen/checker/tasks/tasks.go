// Package tasks judges acts on all jobs that match, by what clients were told of them and by what the
// log says that they did.
package tasks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The invariants that Check looks at.
const (
	Scope    finding.Invariant = 40
	Complete finding.Invariant = 41
	Ends     finding.Invariant = 42
)

const (
	// slack is by how much the moments of an entry, of an answer and of an election may seem to be in
	// another order than they were.
	slack = time.Second
	// saveEvery is the work, in time, that the counts of a task may lack after a change of the catalog's
	// leader, beside the step under way: a second, and what a step takes to be answered.
	saveEvery = 1100 * time.Millisecond
	// keptMost is fewer than the tasks that the cluster remembers after their end.
	keptMost = 200
)

// Run is what is judged. Times are since its start, unless they are shard times.
type Run struct {
	Ops []*history.Op
	// Shards have the commands and the changes of each shard.
	Shards []Shard
	// Leaders are when nodes won an election of the catalog, in this order.
	Leaders []time.Duration
	// Since turns a true time into one since the start, At does the opposite.
	Since func(fsm.Time) time.Duration
	At    func(time.Duration) fsm.Time
	// Bound is how far the clocks of two shards may be apart.
	Bound time.Duration
}

// Shard is what the log of a shard says of the queues on which tasks act. Moves are in the order of
// the log.
type Shard struct {
	Number   uint32
	Commands []*ledger.Command
	Moves    []Move
}

// Move is a job as it was after a change. By caused the change, or was the first to notice it.
type Move struct {
	Job   *ledger.Job
	By    *ledger.Command
	State fsm.State
	Due   fsm.Time
	Until fsm.Time
	Error string
}

// prefix begins the request ids of tasks.
const prefix = "task "

// IsStep reports whether a request is of a task.
func IsStep(r *fsm.Request) bool { return strings.HasPrefix(r.ID, prefix) }

// taskOf returns the id of the task that a request is of.
func taskOf(r *fsm.Request) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.ID, prefix), "/")
	return id
}

// Queues returns the queues on which clients started tasks.
func Queues(ops []*history.Op) map[string]bool {
	queues := map[string]bool{}
	for _, o := range ops {
		if r, ok := o.Request.(*belfryv1.StartTaskRequest); ok {
			queues[r.GetQueue()] = true
		}
	}
	return queues
}

// task is one task, by what clients were told and by the log.
type task struct {
	id  string
	req *belfryv1.StartTaskRequest
	// asked is when the first call was sent that may have started it, acked when the first was
	// answered; 0 if none was.
	asked, acked time.Duration
	// told is what was read of it last, nil if it was never read. Of readings after its end the first
	// counts.
	told *belfryv1.Task
	// ended is when a client first heard that it had ended, stopped that its stop was accepted; 0 if
	// none did.
	ended, stopped time.Duration
	steps          []*step
	byRequest      map[string]*step
}

// step is a request of a task, with what the log says of all its attempts.
type step struct {
	at time.Duration // when it was carried out first
	// named is how many jobs it names, moved how many of them it changed.
	named, moved int
	jobs         []stay
	// names is how many jobs the attempt names that is looked at.
	names   int
	attempt *fsm.Request
}

// stay is a job in the state in which an act found it: the move that brought it there is at position
// place among the job's moves.
type stay struct {
	job   *ledger.Job
	place int
}

// judge looks at the tasks of a run.
type judge struct {
	*Run
	found *finding.Set
	tasks map[string]*task
	order []*task
	moves map[*ledger.Job][]Move
	jobs  []*ledger.Job // that have moves, in the order of their first
}

// Check holds tasks against their promises.
func Check(run *Run, found *finding.Set) {
	j := &judge{Run: run, found: found, tasks: map[string]*task{}, moves: map[*ledger.Job][]Move{}}
	for _, o := range run.Ops {
		j.start(o)
	}
	if len(j.order) == 0 {
		return
	}
	for _, o := range run.Ops {
		j.hear(o)
	}
	for i := range run.Shards {
		j.shard(&run.Shards[i])
	}
	found.Count("tasks", int64(len(j.order)))
	for _, t := range j.order {
		slices.SortStableFunc(t.steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
		j.scope(t)
		j.complete(t)
		j.counts(t)
		j.ends(t)
	}
	j.lasting()
}

// idOf returns the id that the server makes of a request id, so that a task is known whose start was
// never answered.
func idOf(r *belfryv1.StartTaskRequest) string {
	sum := sha256.Sum256([]byte(fsm.NamespaceOf(r.GetQueue()) + "/" + r.GetRequestId()))
	return hex.EncodeToString(sum[:13])
}

// start takes note of a call that may have started a task.
func (j *judge) start(o *history.Op) {
	r, ok := o.Request.(*belfryv1.StartTaskRequest)
	if !ok || !o.OK() && o.Outcome == belfryv1.Outcome_OUTCOME_NOT_APPLIED {
		return
	}
	id := idOf(r)
	answer, _ := o.Response.(*belfryv1.StartTaskResponse)
	if answer != nil {
		id = answer.GetTask().GetId()
	}
	t := j.tasks[id]
	if t == nil {
		t = &task{id: id, req: r, asked: o.Invoked, byRequest: map[string]*step{}}
		j.tasks[id] = t
		j.order = append(j.order, t)
	}
	if answer != nil && (t.acked == 0 || o.Returned < t.acked) {
		t.acked = o.Returned
	}
}

// hear takes note of what a call was told of tasks.
func (j *judge) hear(o *history.Op) {
	switch resp := o.Response.(type) {
	case *belfryv1.StartTaskResponse:
		j.read(o, resp.GetTask())
	case *belfryv1.GetTaskResponse:
		j.read(o, resp.GetTask())
	case *belfryv1.StopTaskResponse:
		if t := j.read(o, resp.GetTask()); t != nil && (t.stopped == 0 || o.Returned < t.stopped) {
			t.stopped = o.Returned
		}
	case *belfryv1.ListTasksResponse:
		for _, told := range resp.GetTasks() {
			j.read(o, told)
		}
	}
}

// read takes note of what a call was told of one task.
func (j *judge) read(o *history.Op, told *belfryv1.Task) *task {
	t := j.tasks[told.GetId()]
	j.found.Look(Ends)
	switch {
	case t == nil:
		j.found.Violated(Scope, o.Returned, "%s: it names task %s of %s, which no client started", wire.Describe(o),
			told.GetId(), told.GetQueue())
		return nil
	case t.ended > 0 && told.GetEndedAt() != nil && !sameEnd(t.told, told):
		j.found.Violated(Ends, o.Returned, "%s: task %s ended with other counts than it had ended with: %v, before %v",
			wire.Describe(o), t.id, told, t.told)
	case t.ended > 0:
		if told.GetEndedAt() != nil {
			t.ended = min(t.ended, o.Returned)
		}
		return t // a node that lags
	}
	t.told = told
	if told.GetEndedAt() != nil {
		t.ended = o.Returned
	}
	return t
}

// sameEnd reports whether two readings of a task that has ended agree.
func sameEnd(a, b *belfryv1.Task) bool {
	return a.GetEndedAt().AsTime().Equal(b.GetEndedAt().AsTime()) && a.GetMatched() == b.GetMatched() &&
		a.GetChanged() == b.GetChanged() && a.GetSkipped() == b.GetSkipped()
}

// created is the shard time at which a task began; 0 if it was never read.
func (t *task) created() fsm.Time { return wire.TimeOf(t.told.GetStartedAt()) }

// leaders is how many times the catalog may have changed its leader in a span of time.
func (j *judge) leaders(from, to time.Duration) (n int) {
	for _, at := range j.Leaders {
		if at > from-slack && at < to+slack {
			n++
		}
	}
	return n
}
