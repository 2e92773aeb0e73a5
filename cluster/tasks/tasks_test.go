package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/wakeup"
)

// cluster is the records and the shards of a cluster, in memory.
type cluster struct {
	t       *testing.T
	mu      sync.Mutex
	shards  []*machine.Machine
	tasks   []bulk.Task
	changed wakeup.Signal
	// lose makes the answer to the n-th request of a task from here on get lost, refuse makes it fail.
	lose, refuse int
	requests     int // of tasks
	saves        int
	restoring    bool // the shards refuse what tasks ask
}

func newCluster(t *testing.T, shards int) *cluster {
	c := &cluster{t: t, changed: wakeup.New()}
	for range shards {
		c.shards = append(c.shards, machine.New(fsm.Config{}))
	}
	return c
}

func (c *cluster) ShardCount() int { return len(c.shards) }

func (c *cluster) Partitions(string) uint32 { return uint32(len(c.shards)) }

func (c *cluster) Do(_ context.Context, shard uint32, req *fsm.Request) (node.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.ID != "" {
		c.requests++
		c.refuse--
		c.lose--
		if c.refuse == 0 {
			return node.Reply{}, node.ErrNoLeader
		}
	}
	if req.ID != "" && c.restoring {
		results := make([]fsm.Result, len(req.Commands))
		for i := range results {
			results[i].Code = fsm.Restoring
		}
		return node.Reply{Results: results}, nil
	}
	m := c.shards[shard]
	const format = fsm.LatestFormat // tasks need it
	entry := codec.AppendEntryIn(nil, format, fsm.Time(time.Now().UnixNano()),
		[][]byte{codec.AppendRequestIn(nil, format, req)})
	results, err := m.Apply(m.Index()+1, entry)
	if err != nil {
		c.t.Error(err)
	}
	if req.ID != "" && c.lose == 0 {
		return node.Reply{}, node.ErrUnknownOutcome
	}
	return node.Reply{Results: results}, nil
}

func (c *cluster) Query(_ context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shards[shard].Answer(q, fsm.Time(time.Now().UnixNano())), node.Witness{}, nil
}

func (c *cluster) Tasks() (list []bulk.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.tasks {
		list = append(list, c.tasks[i].Clone())
	}
	return list
}

func (c *cluster) Task(id string) (bulk.Task, bool) {
	for _, t := range c.Tasks() {
		if t.ID == id {
			return t, true
		}
	}
	return bulk.Task{}, false
}

func (c *cluster) AdvanceTask(ctx context.Context, id string, p bulk.Progress) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saves++
	i := slices.IndexFunc(c.tasks, func(t bulk.Task) bool { return t.ID == id })
	if i < 0 || ctx.Err() != nil {
		return errors.New("not recorded")
	}
	p.Places = slices.Clone(p.Places) // the catalog records bytes
	c.tasks[i].Progress = p
	return nil
}

// put puts n jobs that are due in an hour into each partition. Their ids end with a running number.
func (c *cluster) put(n int) {
	c.t.Helper()
	for shard := range c.shards {
		commands := []fsm.Command{&fsm.Open{Queue: "q", Partition: uint32(shard), Partitions: uint32(len(c.shards))}}
		for i := range n {
			commands = append(commands, &fsm.Put{
				Queue: "q", Partition: uint32(shard), Partitions: uint32(len(c.shards)), ID: fmt.Sprintf("job-%d-%d", shard, i),
				Given: fsm.GivenDelay, Delay: time.Hour,
			})
		}
		if _, err := c.Do(c.t.Context(), c.shardOf(uint32(shard)), &fsm.Request{Commands: commands}); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) shardOf(partition uint32) uint32 {
	return node.ShardOf("q", partition, len(c.shards))
}

// start records a task and runs a leader until the task has ended.
func (c *cluster) start(t bulk.Task) bulk.Progress {
	c.t.Helper()
	t.Queue, t.Created = "q", time.Now().UnixNano()
	if err := t.Check(); err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.tasks = append(c.tasks, t)
	c.mu.Unlock()
	return c.lead(time.Minute)
}

// lead runs a leader for a time, or until all tasks have ended, and returns the progress of the last.
func (c *cluster) lead(most time.Duration) bulk.Progress {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), most)
	defer cancel()
	r := &Runner{Records: c, Shards: c, Changed: c.changed, Logger: slog.New(slog.DiscardHandler)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	for ctx.Err() == nil && slices.ContainsFunc(c.Tasks(), func(t bulk.Task) bool { return t.Running() }) {
		pause(ctx, time.Millisecond)
	}
	cancel()
	<-done
	all := c.Tasks()
	return all[len(all)-1].Progress
}

// counts returns the held jobs of all partitions.
func (c *cluster) counts() (sum fsm.Counts) {
	for p := range c.shards {
		q, _ := c.shards[c.shardOf(uint32(p))].Queue("q", fsm.Time(time.Now().UnixNano()))
		sum.Delayed, sum.Ready, sum.Dead = sum.Delayed+q.Counts.Delayed, sum.Ready+q.Counts.Ready, sum.Dead+q.Counts.Dead
	}
	return sum
}

// want checks what a task came to.
func want(t *testing.T, p bulk.Progress, matched, changed, skipped uint64) {
	t.Helper()
	if p.Matched != matched || p.Changed != changed || p.Skipped != skipped || p.Ended == 0 || p.Trouble != "" {
		t.Errorf("%d matched, %d changed, %d skipped, ended %v, trouble %q; want %d, %d, %d", p.Matched, p.Changed,
			p.Skipped, p.Ended != 0, p.Trouble, matched, changed, skipped)
	}
}

// TestTasks: each act is done to all that match, in all partitions, and no others.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.put(2500)
		want(t, c.start(bulk.Task{ID: "1", State: fsm.Delayed, Act: bulk.Count}), 5000, 0, 0)
		want(t, c.start(bulk.Task{ID: "2", State: fsm.Delayed, Act: bulk.Count, IDPrefix: "job-1-12"}), 111, 0, 0)
		want(t, c.start(bulk.Task{ID: "3", State: fsm.Delayed, Act: bulk.Cancel, IDPrefix: "job-1-12"}), 111, 111, 0)
		want(t, c.start(bulk.Task{ID: "4", State: fsm.Delayed, Act: bulk.Cancel, Most: 1500}), 1500, 1500, 0)
		if n := c.counts(); n.Delayed != 3389 {
			t.Errorf("%d jobs are left", n.Delayed)
		}
		later := fsm.Time(time.Now().Add(3 * time.Hour).UnixNano()).Ceil()
		want(t, c.start(bulk.Task{ID: "5", State: fsm.Delayed, Act: bulk.Reschedule, Due: later}), 3389, 3389, 0)
		want(t, c.start(bulk.Task{ID: "6", State: fsm.Delayed, Act: bulk.Count, DueAfter: later}), 3389, 0, 0)
		want(t, c.start(bulk.Task{ID: "7", State: fsm.Delayed, Act: bulk.Reschedule, Text: "-1-"}), 2389, 2389, 0)
		if n := c.counts(); n.Delayed != 1000 || n.Ready != 2389 {
			t.Errorf("%d jobs are delayed, and %d ready", n.Delayed, n.Ready)
		}
	})
}

// TestRedriveTask: dead jobs become ready, those that die again while the task runs only once.
func TestRedriveTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(100)
		kill := func() {
			c.start(bulk.Task{ID: fmt.Sprint("run now ", len(c.tasks)), State: fsm.Delayed, Act: bulk.Reschedule})
			reply, err := c.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{
				&fsm.Reserve{Queues: []string{"q"}, Max: 1000},
			}})
			if err != nil {
				t.Fatal(err)
			}
			var nacks []fsm.Command
			for _, g := range reply.Results[0].Grants {
				nacks = append(nacks, &fsm.Nack{
					Ref: fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}, Dead: true, Error: fmt.Sprintf("smtp %d", g.Serial),
				})
			}
			if _, err := c.Do(t.Context(), 0, &fsm.Request{Commands: nacks}); err != nil {
				t.Fatal(err)
			}
		}
		kill()
		pause(t.Context(), time.Millisecond)
		want(t, c.start(bulk.Task{ID: "a", State: fsm.Dead, Act: bulk.Redrive, Cause: "smtp #", Most: 40}), 40, 40, 0)
		task := bulk.Task{ID: "b", Queue: "q", State: fsm.Dead, Act: bulk.Redrive, Created: time.Now().UnixNano()}
		pause(t.Context(), time.Millisecond)
		kill() // the 40 are dead again, after the task began
		c.tasks = append(c.tasks, task)
		want(t, c.lead(time.Minute), 60, 60, 0)
	})
}

// TestTroubleOfATask: a task goes on after a shard that does not answer, and counts what was done before
// an answer was lost.
func TestTroubleOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.put(3000)
		c.lose, c.refuse = 2, 4
		p := c.start(bulk.Task{ID: "1", State: fsm.Delayed, Act: bulk.Cancel})
		want(t, p, 6000, 6000, 0)
		if c.lose > 0 || c.refuse > 0 {
			t.Error("nothing went wrong")
		}
	})
}

// TestTaskOutlivesItsLeader: another leader goes on from where the record says, and no job is acted on
// twice.
func TestTaskOutlivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.put(500)
		c.tasks = append(c.tasks, bulk.Task{
			ID: "1", Queue: "q", State: fsm.Delayed, Act: bulk.Cancel, PerSecond: 100, Created: time.Now().UnixNano(),
		})
		began := time.Now()
		leaders := 0
		for c.tasks[0].Running() {
			c.lead(1700 * time.Millisecond)
			leaders++
		}
		p := c.tasks[0].Progress
		if p.Changed+p.Skipped != p.Matched || p.Changed > 1000 || p.Changed < 1000-70*uint64(leaders) {
			t.Errorf("%d leaders: %+v", leaders, p)
		}
		if n := c.counts(); n.Delayed != 0 {
			t.Errorf("%d jobs are left", n.Delayed)
		}
		if took := time.Since(began); took < 9*time.Second || leaders < 4 {
			t.Errorf("1,000 jobs at 100 a second took %v and %d leaders", took, leaders)
		}
	})
}

// TestStopTask: a task that is asked to end does so, and says how far it came.
func TestStopTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(1000)
		c.tasks = append(c.tasks, bulk.Task{
			ID: "1", Queue: "q", State: fsm.Delayed, Act: bulk.Cancel, PerSecond: 100, Created: time.Now().UnixNano(),
		})
		c.lead(2500 * time.Millisecond)
		c.tasks[0].Stop = true
		p := c.lead(time.Minute)
		if n := c.counts(); p.Ended == 0 || p.Changed < 150 || p.Changed > 350 || n.Delayed > 1000-p.Changed {
			t.Errorf("%+v, and %d jobs are left", p, n.Delayed)
		}
	})
}

// TestManyTasks: four run at one time, and all come to their end. Progress is recorded rarely.
func TestManyTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(200)
		for i := range 10 {
			c.tasks = append(c.tasks, bulk.Task{
				ID: fmt.Sprint(i), Queue: "q", State: fsm.Delayed, Act: bulk.Cancel, IDPrefix: fmt.Sprintf("job-0-1%d", i),
				Created: time.Now().UnixNano(),
			})
		}
		c.lead(time.Minute)
		sum := uint64(0)
		for _, task := range c.Tasks() {
			sum += task.Progress.Changed
		}
		if n := c.counts(); sum != 110 || n.Delayed != 90 || c.saves > 20 {
			t.Errorf("%d jobs were cancelled, %d are left, progress was recorded %d times", sum, n.Delayed, c.saves)
		}
	})
}

// TestJobsThatFailMeanwhile: a task that makes jobs due at once leaves those alone that have failed
// since it began, or it would use up their attempts.
func TestJobsThatFailMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(100)
		c.start(bulk.Task{ID: "1", State: fsm.Delayed, Act: bulk.Reschedule, IDPrefix: "job-0-1", Most: 10})
		task := bulk.Task{ID: "2", Queue: "q", State: fsm.Delayed, Act: bulk.Reschedule, Created: time.Now().UnixNano()}
		pause(t.Context(), time.Millisecond)
		reply, err := c.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{
			&fsm.Reserve{Queues: []string{"q"}, Max: 1000},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var nacks []fsm.Command
		for _, g := range reply.Results[0].Grants {
			nacks = append(nacks, &fsm.Nack{
				Ref: fsm.Ref{Queue: "q", Serial: g.Serial, Fence: g.Fence}, DelayGiven: true, Delay: 2 * time.Hour,
			})
		}
		if _, err := c.Do(t.Context(), 0, &fsm.Request{Commands: nacks}); err != nil || len(nacks) != 10 {
			t.Fatal(len(nacks), err)
		}
		c.tasks = append(c.tasks, task)
		want(t, c.lead(time.Minute), 90, 90, 0)
		if n := c.counts(); n.Ready != 90 || n.Delayed != 10 {
			t.Errorf("%d jobs are ready and %d delayed", n.Ready, n.Delayed)
		}
	})
}

// TestJobsThatCameLater: what was put, or died, after a task began is left alone.
func TestJobsThatCameLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(100)
		c.tasks = append(c.tasks, bulk.Task{
			ID: "1", Queue: "q", State: fsm.Delayed, Act: bulk.Cancel, PerSecond: 10, Created: time.Now().UnixNano(),
		})
		for i := range 40 { // the task runs meanwhile
			c.lead(500 * time.Millisecond)
			if _, err := c.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Put{
				Queue: "q", Partitions: 1, ID: fmt.Sprint("later-", i), Given: fsm.GivenDelay, Delay: time.Hour,
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		p := c.lead(time.Minute)
		if n := c.counts(); n.Delayed != 40 || p.Ended == 0 || p.Matched > 100 {
			t.Errorf("%d jobs are left, %+v", n.Delayed, p)
		}
	})
}

// TestSlowTasks: slow tasks of one namespace hold up no other, and one that waits can be stopped.
func TestSlowTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(1000)
		add := func(id, queue string, perSecond uint32, stop bool) {
			c.tasks = append(c.tasks, bulk.Task{
				ID: id, Queue: queue, State: fsm.Delayed, Act: bulk.Cancel, PerSecond: perSecond, Stop: stop,
				Created: time.Now().UnixNano(),
			})
		}
		for i := range ofNamespace {
			add(fmt.Sprint("slow ", i), "q", 1, false)
		}
		add("waits", "q", 0, false)
		add("stopped", "q", 0, true)
		add("other", "shop/q", 0, false)
		c.lead(5 * time.Second)
		ended := map[string]bool{}
		for _, task := range c.Tasks() {
			ended[task.ID] = !task.Running()
		}
		if ended["slow 0"] || ended["waits"] || !ended["stopped"] || !ended["other"] {
			t.Errorf("ended: %v", ended)
		}
	})
}

// TestTaskWhileShardRefuses: jobs that the shard does not act on at the moment are not passed over.
func TestTaskWhileShardRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(50)
		c.restoring = true
		c.tasks = append(c.tasks, bulk.Task{
			ID: "1", Queue: "q", State: fsm.Delayed, Act: bulk.Cancel, Created: time.Now().UnixNano(),
		})
		if p := c.lead(3 * time.Second); p.Ended != 0 || p.Skipped != 0 || p.Trouble == "" {
			t.Errorf("while the shard refuses: %+v", p)
		}
		c.restoring = false
		want(t, c.lead(time.Minute), 50, 50, 0)
	})
}

// TestCountsDoNotWaitForActs: acts at a low rate take their time, and a count ends meanwhile.
func TestCountsDoNotWaitForActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.put(100)
		add := func(id string, act bulk.Act, perSecond uint32) {
			c.tasks = append(c.tasks, bulk.Task{
				ID: id, Queue: "q", State: fsm.Delayed, Act: act, PerSecond: perSecond, Created: time.Now().UnixNano(),
			})
		}
		for i := range 2 * ofNamespace {
			add(fmt.Sprint(i), bulk.Cancel, 1)
		}
		add("count", bulk.Count, 0)
		if p := c.lead(5 * time.Second); p.Ended == 0 || p.Matched < 70 {
			t.Errorf("the count: %+v", p)
		}
		begun := 0
		for _, task := range c.Tasks()[:2*ofNamespace] {
			if task.Progress.Matched > 0 {
				begun++
			}
		}
		if begun != ofNamespace {
			t.Errorf("%d acts run at one time, want %d", begun, ofNamespace)
		}
	})
}
