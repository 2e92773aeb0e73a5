package flips

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/nodetest"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	shard     = 0
	shardName = "shard-0"
	queue     = "orders"
	// dueMax is the longest delay of a job.
	dueMax = 10 * time.Second
	// silence is longer than a leader that hears nothing takes to give up.
	silence = 10 * time.Second
	// stallMax is how long a world may take in real time.
	stallMax = time.Minute
	// perseverance is how often a call is tried again.
	perseverance = 50
)

// observer keeps what goes wrong, so that a planted mistake can be expected to.
type observer struct {
	testing.TB
	mu    sync.Mutex
	wrong []string
}

func (o *observer) note(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong = append(o.wrong, text)
}

// Errorf implements testing.TB.
func (o *observer) Errorf(format string, args ...any) { o.note(fmt.Sprintf(format, args...)) }

// Fatal implements testing.TB: it ends the goroutine, as that of the testing package does.
func (o *observer) Fatal(args ...any) {
	o.note(fmt.Sprint(args...))
	runtime.Goexit()
}

// Fatalf implements testing.TB: it ends the goroutine, as that of the testing package does.
func (o *observer) Fatalf(format string, args ...any) {
	o.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// world is a cluster on disks in memory, one of which is damaged again and again, and what its
// clients were promised.
type world struct {
	*observer
	options Options
	random  *rand.Rand
	cluster *nodetest.Cluster
	report  *Report
	trials  int // of this world so far

	jobs  map[string][]byte // acknowledged and not ended, by id
	calls int

	told []string // what was done, to find a cause

	mu     sync.Mutex
	disks  map[string]*diskfault.Disk // by the name of the member
	gaveUp map[string]error           // what a process ended itself for
	// starting is the member that is being started, in the goroutine of the world.
	starting string
}

// runWorld lets a cluster live through some trials and returns what was wrong.
func runWorld(t *testing.T, o Options, number uint64) (report *Report) {
	t.Helper()
	stalled := time.AfterFunc(stallMax, func() {
		panic(fmt.Sprintf("seed %d, world %d does not come to an end", o.Seed, number))
	})
	defer stalled.Stop()
	report = newReport()
	w := &world{
		options: o, random: rand.New(rand.NewPCG(o.Seed, number)), report: report, jobs: map[string][]byte{},
		disks: map[string]*diskfault.Disk{}, gaveUp: map[string]error{},
	}
	bubble(t, func(t *testing.T) {
		w.observer = &observer{TB: t}
		lived := make(chan struct{})
		go func() {
			defer close(lived)
			w.live()
		}()
		<-lived
		for _, m := range w.cluster.Members() {
			w.cluster.Stop(m)
		}
	})
	for _, wrong := range w.wrong {
		report.Violations = append(report.Violations,
			fmt.Sprintf("seed %d, world %d, trial %d: %s", o.Seed, number, w.trials, wrong))
	}
	if len(w.wrong) > 0 {
		report.Violations = append(report.Violations, strings.Join(w.told, "\n"))
	}
	return report
}

// bubble runs f in virtual time. Raft leaves goroutines behind when it is stopped, which the soak
// looks after.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
	}()
	synctest.Test(t, f)
}

func (w *world) live() {
	w.cluster = nodetest.New(w.observer, nodetest.Options{Dir: dataDir, Configure: w.configure})
	for w.trials = 1; w.trials <= trialsPerWorld && len(w.wrong) == 0; w.trials++ {
		w.put(3 + w.random.IntN(10))
		if w.random.IntN(3) == 0 {
			w.finish(w.cluster.Leader(shard), w.random.IntN(60))
		}
		if w.random.IntN(3) == 0 {
			w.snapshot(w.any())
		}
		if w.random.IntN(4) == 0 {
			w.inUse()
		} else {
			w.atRest()
		}
		w.whole()
	}
	w.drain()
	w.compareLogs()
}

func (w *world) configure(cfg *node.Config) {
	name := cfg.Name
	disk := w.disk(name)
	if w.options.repair != nil {
		w.options.repair(disk, shardDir(name))
	}
	cfg.FS, cfg.SegmentBytes, cfg.TrailingBytes, cfg.SnapshotBytes, cfg.DiskLowBytes = disk, 4*segmentBytes, 1, 64<<10,
		1<<20
	cfg.Machine = fsm.Config{Seed: 1}
	cfg.Fatal = func(err error) {
		w.mu.Lock()
		starting := w.starting == name
		if !starting {
			w.gaveUp[name] = err
		}
		w.mu.Unlock()
		if starting {
			return // the start fails as well
		}
		for _, m := range w.cluster.Members() {
			if m.Name() == name {
				w.cluster.Isolate(m)
			}
		}
		runtime.Goexit() // as a process that ends, it does not return to Raft, which would panic
	}
}

func shardDir(name string) string { return path.Join(dataDir, name, "shards", "0000") }

// disk returns the disk of a member, which it makes.
func (w *world) disk(name string) *diskfault.Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.disks[name] == nil {
		w.disks[name] = diskfault.New()
		w.disks[name].SetFree(32 << 20) // too little for a reserve, which would only be long
	}
	return w.disks[name]
}

func (w *world) setStarting(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starting = name
}

func (w *world) setDisk(name string, disk *diskfault.Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	disk.SetFree(32 << 20)
	w.disks[name] = disk
}

// end returns what a member gave up for, nil if it did not.
func (w *world) end(m *nodetest.Member) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gaveUp[m.Name()]
}

func (w *world) any() *nodetest.Member {
	all := w.cluster.Members()
	return all[w.random.IntN(len(all))]
}

// logf keeps a line of the log of the world.
func (w *world) logf(format string, args ...any) {
	w.told = append(w.told,
		fmt.Sprintf("trial %d, %v: ", w.trials, time.Now().Format("04:05.000"))+fmt.Sprintf(format, args...))
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	wait := time.NewTimer(d)
	<-wait.C
}

// call sends a request to the current leader until it is applied.
func (w *world) call(send func(n *node.Node, requestID string) (node.Reply, error)) node.Reply {
	w.Helper()
	w.calls++
	id := fmt.Sprintf("call-%d", w.calls)
	var last error
	for range perseverance {
		reply, err := send(w.cluster.Leader(shard).Node, id)
		if err == nil {
			return reply
		}
		last = err
		w.logf("call %s: %v", id, err)
		w.pass(100 * time.Millisecond)
	}
	w.Fatalf("a call was not applied in %d attempts: %v", perseverance, last)
	return node.Reply{}
}

func (w *world) do(c fsm.Command) fsm.Result {
	w.Helper()
	reply := w.call(func(n *node.Node, id string) (node.Reply, error) {
		return n.Do(w.Context(), shard, &fsm.Request{Caller: "flips", ID: id, Commands: []fsm.Command{c}})
	})
	w.logf("%T %v: %+v", c, w.calls, reply.Witness)
	return reply.Results[0]
}

// put puts jobs, some with a delay.
func (w *world) put(n int) {
	w.Helper()
	for range n {
		put := &fsm.Put{
			Queue: queue, Partitions: 1, ID: fmt.Sprintf("job-%d", w.calls), Body: make([]byte, 1+w.random.IntN(400)),
		}
		for i := range put.Body {
			put.Body[i] = byte(w.random.Uint32())
		}
		if w.random.IntN(2) == 0 {
			put.Given, put.Delay = fsm.GivenDelay, time.Duration(w.random.Int64N(int64(dueMax)))
		}
		if result := w.do(put); result.Code != fsm.OK {
			w.Fatalf("the put of %s gives %+v", put.ID, result)
		}
		w.jobs[put.ID] = put.Body
	}
}

// finish takes at least that many jobs, if there are, from a member that leads, and acks them.
func (w *world) finish(leader *nodetest.Member, most int) (finished int) {
	w.Helper()
	for finished < most {
		reply := w.call(func(n *node.Node, id string) (node.Reply, error) {
			reserve := &fsm.Reserve{Queues: []string{queue}, Max: 10, TTR: time.Minute}
			return n.Reserve(w.Context(), shard, &fsm.Request{
				Caller: "flips", ID: id, Commands: []fsm.Command{reserve},
			}, node.Wait{})
		})
		if len(reply.Jobs) == 0 {
			return finished
		}
		for _, job := range reply.Jobs {
			w.compare(leader, &job)
			ref := fsm.Ref{Queue: job.Queue, Partition: job.Partition, Serial: job.Serial, Fence: job.Fence}
			if result := w.do(&fsm.Ack{Ref: ref}); result.Code != fsm.OK {
				w.Fatalf("the ack of %s gives %+v", job.ID, result)
			}
			delete(w.jobs, job.ID)
			finished++
		}
	}
	return finished
}

// compare checks a job that a member showed.
func (w *world) compare(m *nodetest.Member, job *fsm.Job) {
	w.Helper()
	if want, ok := w.jobs[job.ID]; !ok || !bytes.Equal(want, job.Body) {
		w.Errorf("%s has %s with a body of %d bytes, acknowledged are %d (known: %v)", m.Name(), job.ID, len(job.Body),
			len(want), ok)
	}
}

// snapshot has a member that runs take a snapshot.
func (w *world) snapshot(m *nodetest.Member) {
	w.Helper()
	if err := m.Node.Snapshot(w.Context(), shard); err != nil && w.end(m) == nil {
		w.Errorf("a snapshot on %s: %v", m.Name(), err)
	}
}

// check compares what all members hold that run with what was acknowledged, and with one another.
func (w *world) check() {
	w.Helper()
	// one that serves has committed all that its predecessors acknowledged; before, all may lack the
	// same
	w.cluster.Leader(shard)
	w.cluster.Converge(shard)
	for _, m := range w.cluster.Members() {
		if m.Node == nil {
			continue
		}
		held := 0
		for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
			reading, _, err := m.Node.Peek(shard, &fsm.ListQuery{Queue: queue, State: state, Max: 100_000})
			if err != nil {
				w.Fatalf("looking at %s: %v", m.Name(), err)
			}
			for _, listed := range reading.Jobs { // without bodies
				one, _, err := m.Node.Peek(shard, &fsm.JobQuery{Queue: queue, ID: listed.ID})
				if err != nil || len(one.Jobs) != 1 {
					w.Fatalf("looking for %s on %s: %+v, %v", listed.ID, m.Name(), one, err)
				}
				w.compare(m, &one.Jobs[0])
			}
			held += len(reading.Jobs)
		}
		if held != len(w.jobs) {
			w.Errorf("%s holds %d jobs, acknowledged are %d", m.Name(), held, len(w.jobs))
		}
	}
}

// whole waits until the three members, and only they, are voters, and checks what they hold.
func (w *world) whole() {
	w.Helper()
	if len(w.wrong) > 0 {
		w.Fatal("the world ends")
	}
	w.cluster.Await("three voters", func() bool {
		for _, m := range w.cluster.Members() {
			st, ok := status(m)
			if !ok || len(st.Voters) != 3 || !slices.Contains(st.Voters, m.ServerID) {
				return false
			}
		}
		return true
	})
	w.check()
}

func status(m *nodetest.Member) (node.GroupStatus, bool) {
	if m.Node == nil {
		return node.GroupStatus{}, false
	}
	for _, st := range m.Node.Status().Shards {
		return st, true
	}
	return node.GroupStatus{}, false
}

// lead moves the leadership to a member.
func (w *world) lead(m *nodetest.Member) {
	w.Helper()
	for range perseverance {
		leader := w.cluster.Leader(shard)
		if leader == m {
			return
		}
		if err := leader.Node.TransferLeader(w.Context(), shardName, m.ServerID); err != nil {
			w.pass(200 * time.Millisecond)
		}
	}
	w.Fatalf("%s does not lead", m.Name())
}

// drain has each member hand out its part of the jobs.
func (w *world) drain() {
	w.Helper()
	w.pass(dueMax)
	for i, m := range w.cluster.Members() {
		w.lead(m)
		part := len(w.jobs)
		if i < 2 {
			part /= 3
		}
		w.finish(m, part)
	}
	w.check()
	if len(w.jobs) > 0 {
		w.Errorf("%d acknowledged jobs were not handed out", len(w.jobs))
	}
}

// compareLogs stops all members and compares their logs entry by entry.
func (w *world) compareLogs() {
	w.Helper()
	type placed struct {
		entry
		who string
	}
	all := map[uint64]placed{}
	for _, m := range w.cluster.Members() {
		w.cluster.Stop(m)
		_, held, err := w.reopened(w.disk(m.Name()), m.Name())
		if err != nil {
			w.Errorf("the files of %s in the end: %v", m.Name(), err)
			continue
		}
		for i, e := range held.Entries {
			index := held.First + uint64(i)
			if first, ok := all[index]; ok && first.entry != e {
				w.Errorf("entry %d is %v on %s and %v on %s", index, first.entry, first.who, e, m.Name())
			}
			all[index] = placed{e, m.Name()}
		}
	}
}
