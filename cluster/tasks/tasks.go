// Package tasks carries out the tasks of the catalog: acts on all jobs of a queue that match. The
// catalog's leader runs it.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
)

const (
	// atOnce is how many tasks run at one time. The others wait, oldest first. ofNamespace is how many of
	// them count, and how many act, for one namespace: slow ones do not hold up those of others, nor a
	// person who waits for a count.
	atOnce      = 32
	ofNamespace = 4
	// saveEvery is how often progress is recorded. What was done since is repeated after a change of
	// leader, under the same request ids.
	saveEvery = time.Second
	// lookEvery is how often the records are looked at without a wake-up.
	lookEvery = time.Second
	// retryMin and retryMax bound the time until a failed step is tried again.
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
	// othersMax bounds the attempts at other content under one place, see bulk.Task.Request.
	othersMax = 10
	// foundFor is how long an act is tried again with the same jobs.
	foundFor = fsm.RequestWindow - time.Minute
)

// Records has the methods that the runner needs of the catalog.
type Records interface {
	// Tasks returns all tasks, oldest first.
	Tasks() []bulk.Task
	// Task returns a task, if there is one with this id.
	Task(id string) (bulk.Task, bool)
	// AdvanceTask records the progress of a task.
	AdvanceTask(ctx context.Context, id string, p bulk.Progress) error
	// Partitions returns the number of partitions of a queue.
	Partitions(queue string) uint32
}

// Shards has the methods that the runner needs of the shards.
type Shards interface {
	// ShardCount returns the number of shards.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// Query answers q. The answer reflects everything that was answered before.
	Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
}

// Runner carries out tasks. All fields are required.
type Runner struct {
	Records Records
	Shards  Shards
	// Changed wakes the runner when a task begins or is asked to end.
	Changed <-chan struct{}
	Logger  *slog.Logger
}

// Run carries out tasks until ctx ends. It returns when all steps under way have ended.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	var mu sync.Mutex
	under := map[string]slot{}      // of the tasks under way
	ended := make(chan struct{}, 1) // signals sent before it is received are one
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		for _, t := range r.Records.Tasks() {
			mu.Lock()
			start := mayStart(&t, under)
			if start {
				under[t.ID] = slotOf(&t)
			}
			mu.Unlock()
			if !start {
				continue
			}
			running.Go(func() {
				r.run(ctx, t)
				mu.Lock()
				delete(under, t.ID)
				mu.Unlock()
				select {
				case ended <- struct{}{}:
				default:
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-r.Changed:
		case <-ended:
		case <-tick.C:
		}
	}
}

// slot is what the tasks have in common of which ofNamespace run at one time.
type slot struct {
	namespace string
	counts    bool
}

func slotOf(t *bulk.Task) slot { return slot{fsm.NamespaceOf(t.Queue), t.Act == bulk.Count} }

// mayStart reports whether a task is to be carried out now beside those under way. One that was asked
// to stop always is: it ends at once.
func mayStart(t *bulk.Task, under map[string]slot) bool {
	if _, runs := under[t.ID]; runs || !t.Running() {
		return false
	}
	same := 0
	for _, other := range under {
		if other == slotOf(t) {
			same++
		}
	}
	return t.Stop || len(under) < atOnce && same < ofNamespace
}

// run carries out one task until it ends or ctx does.
func (r *Runner) run(ctx context.Context, t bulk.Task) {
	w := &work{Runner: r, task: t} // the first step is recorded at once: this leader may be a short one
	again := retryMin
	for ctx.Err() == nil {
		finished, err := w.step(ctx)
		switch {
		case errors.Is(err, errGone):
			return
		case err != nil && w.task.Stop:
			finished, err = true, nil
			w.task.Progress.Trouble = "it was stopped while an answer was missing: more jobs may have been acted on"
			w.end()
		case err != nil:
			w.task.Progress.Trouble = w.trouble(err)
			w.saved = time.Time{}
		case finished:
			w.end()
		default:
			again = retryMin
		}
		if time.Since(w.saved) >= saveEvery && !w.save(ctx) || err == nil && finished {
			return
		}
		if err != nil {
			pause(ctx, again)
			again = min(2*again, retryMax)
		}
	}
}

// end notes that the task has ended.
func (w *work) end() {
	w.task.Progress.Ended = time.Now().UnixNano()
	w.saved = time.Time{}
}

// trouble logs why a step failed, and says it in words that tell a caller nothing about the cluster
// that it may not know.
func (w *work) trouble(err error) string {
	w.Logger.Warn("a step of a task failed; it is tried again", "task", w.task.ID, "error", err)
	switch {
	case errors.Is(err, node.ErrNoLeader), errors.Is(err, node.ErrNotLeader):
		return "a shard of the queue has no leader"
	case errors.Is(err, node.ErrUnknownOutcome):
		return "a shard of the queue has not said yet what came of a step"
	default:
		return "a step failed, which the log of the catalog's leader explains"
	}
}

// work is one task under way.
type work struct {
	*Runner
	task  bulk.Task
	saved time.Time // when the progress was last recorded
	// found is what the act that failed was to act on: it is tried again with the same jobs, so that the
	// shard tells what came of the first attempt.
	// The shard remembers it for fsm.RequestWindow; after foundFor the jobs are looked up anew.
	found   *fsm.Reading
	foundAt time.Time
}

// errGone says that the task is not recorded any more, or has ended.
var errGone = errors.New("the task is gone")

// save records the progress. It reports false if there is nothing more to do for the task.
func (w *work) save(ctx context.Context) bool {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := w.Records.AdvanceTask(ctx, w.task.ID, w.task.Progress)
		if err == nil {
			w.saved = time.Now()
			return true
		}
		if !w.recorded() || ctx.Err() != nil {
			return false
		}
		w.Logger.Warn("recording the progress of a task", "task", w.task.ID, "error", err)
		pause(ctx, wait)
	}
}

// recorded reports whether the task is recorded and has not ended. It takes over a request to stop.
func (w *work) recorded() bool {
	t, known := w.Records.Task(w.task.ID)
	w.task.Stop = t.Stop
	return known && t.Running()
}

// step searches and acts once. It reports whether the task is through, or was asked to stop.
func (w *work) step(ctx context.Context) (finished bool, err error) {
	if !w.recorded() {
		return false, errGone
	}
	partitions := w.Records.Partitions(w.task.Queue)
	next := uint32(0)
	for next < partitions && w.task.Done(next) {
		next++
	}
	if w.found == nil && (w.task.Stop || next == partitions || w.task.Full()) {
		return true, nil
	}
	most := w.atOnce()
	began := time.Now()
	shard := node.ShardOf(w.task.Queue, next, w.Shards.ShardCount())
	if w.found == nil || time.Since(w.foundAt) > foundFor {
		found, _, err := w.Shards.Query(ctx, shard, w.task.Query(next, most))
		if err != nil {
			return false, fmt.Errorf("searching shard %d: %w", shard, err)
		}
		w.task.Trim(&found)
		w.found, w.foundAt = &found, time.Now()
	}
	results, err := w.act(ctx, shard, next, w.found)
	if err != nil {
		return false, err
	}
	w.task.Advance(next, w.found, results)
	jobs := len(w.found.Jobs)
	w.found = nil
	if rate := time.Duration(w.task.PerSecond); rate > 0 {
		pause(ctx, time.Duration(jobs)*time.Second/rate-time.Since(began))
	}
	return false, nil
}

// atOnce is how many jobs a step acts on: with a rate, those of a tenth of a second.
func (w *work) atOnce() int {
	if w.task.PerSecond == 0 {
		return 1000
	}
	return int(max(1, w.task.PerSecond/10))
}

// act acts on what was found. A request that was remembered with other content is of an earlier
// attempt at this place, whose answer was lost and whose jobs have changed since.
func (w *work) act(ctx context.Context, shard, partition uint32, found *fsm.Reading) ([]fsm.Result, error) {
	for again := range othersMax {
		req := w.task.Request(partition, found, again)
		if req == nil {
			return nil, nil
		}
		reply, err := w.Shards.Do(ctx, shard, req)
		if err != nil {
			return nil, fmt.Errorf("acting in shard %d: %w", shard, err)
		}
		if reply.Results[0].Code != fsm.Invalid {
			return reply.Results, refused(reply.Results)
		}
	}
	return nil, fmt.Errorf("shard %d remembers other requests of this task; it goes on when they are forgotten", shard)
}

// refused returns an error if a command was not carried out although its job may be as it was, as while
// a restore is open.
func refused(results []fsm.Result) error {
	for i := range results {
		switch code := results[i].Code; code {
		case fsm.OK, fsm.JobNotFound, fsm.JobReserved, fsm.QueueNotFound:
		default:
			return fmt.Errorf("the shard answered with code %d", code)
		}
	}
	return nil
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
