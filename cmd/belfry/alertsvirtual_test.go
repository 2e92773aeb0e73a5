package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/nodetest"
	"github.com/belfrydb/belfry/node/storage/diskfault"
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/backend"
)

// virtual is a cluster in memory whose nodes show their metrics. Its disks do what a hook says, and
// its network what the cluster is told.
type virtual struct {
	*nodetest.Cluster
	t     *testing.T
	pages map[*nodetest.Member]http.Handler
	disks map[string]*diskfault.Disk // by node
	hook  atomic.Pointer[diskfault.Hook]
}

// noQueues is a catalog that no call asks for anything but whether it knows a queue.
type noQueues struct{ backend.Catalog }

func (noQueues) Queue(string) (backend.QueueConfig, bool) { return backend.QueueConfig{}, false }

// measuredNode is a node that only shows its metrics.
type measuredNode struct {
	backend.Node
	node *node.Node
}

func (n measuredNode) ShardCount() int     { return n.node.ShardCount() }
func (n measuredNode) Status() node.Status { return n.node.Status() }
func (n measuredNode) Stats() node.Stats   { return n.node.Stats() }

func (n measuredNode) Peek(shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error) {
	return n.node.Peek(shard, q)
}

// noCluster is a cluster that is asked only for what metrics show.
type noCluster struct{ backend.Cluster }

func (noCluster) VotersWanted() int               { return 1 }
func (noCluster) Namespaces() []backend.Namespace { return nil }

// AnswerAudit implements backend.Cluster: no node asks.
func (noCluster) AnswerAudit(func(query []byte) ([]byte, error)) {}

func newVirtual(t *testing.T, options nodetest.Options) *virtual {
	t.Helper()
	zones, err := cron.BuiltInZones()
	if err != nil {
		t.Fatal(err)
	}
	calendars := calendar.New(zones)
	v := &virtual{t: t, pages: map[*nodetest.Member]http.Handler{}, disks: map[string]*diskfault.Disk{}}
	configure := options.Configure
	options.Dir = "/data"
	options.Configure = func(cfg *node.Config) {
		cfg.Calendar = calendars.OfSchedule
		if configure != nil {
			configure(cfg)
		}
		disk := diskfault.New()
		disk.SetHook(func(o diskfault.Op) error {
			if hook := v.hook.Load(); hook != nil {
				return (*hook)(o)
			}
			return nil
		})
		v.disks[cfg.Name], cfg.FS = disk, disk
	}
	v.Cluster = nodetest.New(t, options)
	for _, m := range v.Members() {
		server, err := rpc.NewServer(rpc.Config{
			Node: measuredNode{node: m.Node}, Catalog: noQueues{}, Cluster: noCluster{}, Logger: slog.New(slog.DiscardHandler),
			Registry: prometheus.NewRegistry(), Calendars: calendars,
		})
		if err != nil {
			t.Fatal(err)
		}
		v.pages[m] = server.Handler()
	}
	return v
}

// look is scrapeOf for these nodes.
func (v *virtual) look() scrape {
	v.t.Helper()
	s := scrape{at: time.Now(), pages: map[string][]sample{}}
	for m, page := range v.pages {
		out := httptest.NewRecorder()
		page.ServeHTTP(out, httptest.NewRequestWithContext(v.t.Context(), http.MethodGet, "/metrics", nil))
		s.pages[m.Name()] = samplesOf(v.t, out.Body.String())
	}
	return s
}

// do sends commands to the leader and returns what became of them.
func (v *virtual) do(commands ...fsm.Command) error {
	ctx, cancel := context.WithTimeout(v.t.Context(), 10*time.Second)
	defer cancel()
	_, err := v.Leader(0).Node.Do(ctx, 0, &fsm.Request{Commands: commands})
	return err
}

func virtualPut(body int) *fsm.Put {
	return &fsm.Put{Queue: "orders", Partitions: 1, Body: make([]byte, body)}
}

// slowDisks has each sync of a log take so long.
func (v *virtual) slowDisks(by time.Duration) {
	hook := diskfault.Hook(func(o diskfault.Op) error {
		if o.Kind == diskfault.OpSync && strings.HasSuffix(o.Path, ".wal") {
			elapse(by)
		}
		return nil
	})
	v.hook.Store(&hook)
}

// noSnapshots has the disks refuse what a snapshot writes.
func (v *virtual) noSnapshots() {
	hook := diskfault.Hook(func(o diskfault.Op) error {
		if strings.Contains(o.Path, "/snapshots/") && (o.Kind == diskfault.OpWrite || o.Kind == diskfault.OpSync) {
			return syscall.ENOSPC
		}
		return nil
	})
	v.hook.Store(&hook)
}

// elapse lets virtual time pass.
func elapse(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// machineTrouble is what happens to a cluster, and the alerts that name it.
type machineTrouble struct {
	options nodetest.Options
	trouble func(v *virtual)
	fire    []string
}

func machineTroubles() map[string]machineTrouble {
	alone := nodetest.Options{Nodes: 1}
	oftenCut := nodetest.Options{Nodes: 1, Configure: func(cfg *node.Config) {
		cfg.SnapshotBytes, cfg.TrailingBytes = 64<<10, 1
	}}
	var live, cycles atomic.Uint64
	heap := func() (uint64, uint64) { return live.Load(), cycles.Add(1) }
	smallMemory := nodetest.Options{Nodes: 1, Configure: func(cfg *node.Config) {
		cfg.MemoryBytes, cfg.HeapLive = 1<<30, heap
	}}
	fillMemory := func(v *virtual) {
		live.Store(1 << 30)
		v.refuseForMemory()
	}
	oneInFlight := nodetest.Options{Nodes: 1, Configure: func(cfg *node.Config) { cfg.EntriesInFlight = 1 }}
	return map[string]machineTrouble{
		"a disk that is slow": {alone, (*virtual).writeSlowly,
			[]string{"BelfrySlowSync", "BelfrySlowCommit"}},
		"a disk that is full": {alone, (*virtual).fillDisk,
			[]string{"BelfryDiskLow", "BelfryDiskFull", "BelfryNodeCondition", "BelfryRequestsFail"}},
		"a memory that is full": {smallMemory, fillMemory,
			[]string{"BelfryMemoryLow", "BelfryMemoryFull", "BelfryNodeCondition", "BelfryRequestsFail"}},
		"snapshots that cannot be written": {oftenCut, (*virtual).failSnapshots,
			[]string{"BelfrySnapshotFails", "BelfrySnapshotStale"}},
		"a log that takes nothing while a worker waits": {oneInFlight, (*virtual).fallDueLate, []string{"BelfryServerLate"}},
		"a replica that differs": {nodetest.Options{}, (*virtual).quarantine,
			[]string{"BelfryReplicaQuarantined"}},
		"a network that flips bits": {nodetest.Options{}, (*virtual).garble, []string{"BelfryPeerBytesChanged"}},
		"a clock that is wrong":     {nodetest.Options{}, (*virtual).skewFollower, []string{"BelfryClockSkew"}},
		"schedules that catch up":   {alone, (*virtual).missFirings, []string{"BelfryScheduleMissed"}},
		"a schedule of a queue that is full": {alone, (*virtual).fireIntoFullQueue,
			[]string{"BelfryScheduleLate"}},
		"a time that is wrong": {nodetest.Options{}, (*virtual).runAhead, []string{"BelfryClockAhead"}},
	}
}

// schedule puts a schedule of the queue reports that was to fire half an hour ago for the first time.
func (v *virtual) schedule() {
	v.t.Helper()
	for _, m := range v.Members() {
		if err := m.Node.Speak(fsm.KeysFormat); err != nil {
			v.t.Fatal(err)
		}
	}
	first := time.Now().Truncate(time.Minute).Add(-30 * time.Minute)
	v.must(&fsm.PutSchedule{
		Queue: "reports", Partitions: 1, Name: "often", Spec: fsm.ScheduleSpec{Every: time.Minute},
		Next: fsm.Time(first.UnixNano()),
	})
}

// missFirings has a schedule put the last job of half an hour only.
func (v *virtual) missFirings() {
	v.schedule()
	elapse(time.Second)
}

// fireIntoFullQueue has the firings of a schedule wait for room.
func (v *virtual) fireIntoFullQueue() {
	v.must(&fsm.Configure{Queue: "reports", Partitions: 1, Version: 1, Settings: fsm.Settings{MaxJobs: 1}},
		&fsm.Put{Queue: "reports", Partitions: 1})
	v.schedule()
	elapse(time.Minute)
}

// must sends commands that nothing may refuse.
func (v *virtual) must(commands ...fsm.Command) {
	v.t.Helper()
	if err := v.do(commands...); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) writeSlowly() {
	v.slowDisks(1500 * time.Millisecond)
	for range 5 {
		v.must(virtualPut(1))
	}
}

func (v *virtual) fillDisk() {
	v.disks["n1"].SetFree(1 << 20)
	elapse(time.Minute) // it is looked at now and then
	for range 10 {
		if err := v.do(virtualPut(1)); !errors.Is(err, node.ErrDiskFull) {
			v.t.Fatalf("a put on a full disk: %v", err)
		}
	}
}

func (v *virtual) refuseForMemory() {
	elapse(time.Minute)
	for range 10 {
		if err := v.do(virtualPut(1)); !errors.Is(err, node.ErrMemoryFull) {
			v.t.Fatalf("a put into a full memory: %v", err)
		}
	}
}

func (v *virtual) failSnapshots() {
	v.noSnapshots()
	for range 40 {
		v.must(virtualPut(16 << 10))
		elapse(10 * time.Second)
	}
}

// fallDueLate has a job fall due while the log takes nothing.
func (v *virtual) fallDueLate() {
	job := virtualPut(1)
	job.Delay, job.Given = time.Second, fsm.GivenDelay
	v.must(job)
	handed := make(chan error, 1)
	go func() {
		reply, err := v.Leader(0).Node.Reserve(v.t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
			Queues: []string{"orders"}, Max: 1, TTR: time.Minute,
		}}}, node.Wait{For: time.Minute})
		if err == nil && len(reply.Results[0].Grants) != 1 {
			err = fmt.Errorf("%+v was handed out", reply.Results)
		}
		handed <- err
	}()
	elapse(time.Second / 2)
	v.slowDisks(4 * time.Second)
	v.must(virtualPut(1)) // the job falls due meanwhile
	if err := <-handed; err != nil {
		v.t.Fatal(err)
	}
}

// quarantine tells a follower that most others have a different state.
func (v *virtual) quarantine() {
	v.must(virtualPut(1))
	m := v.Followers(0)[0]
	v.Await("a digest to compare", func() bool { return len(m.Node.Status().Shards[0].Digests) > 0 })
	most := m.Node.Status().Shards[0].Digests[0]
	most.Digest++
	if err := m.Node.Quarantine(v.t.Context(), m.Node.Status().Shards[0].Group, most); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) garble() {
	for range 5 {
		v.FlipBits(0.05)
		elapse(4 * time.Second)
		v.FlipBits(0)
		elapse(2 * time.Second)
	}
}

func (v *virtual) skewFollower() {
	v.Followers(0)[0].Clock.Step(200 * time.Millisecond)
	v.changeLeader("a leader that has asked for the time")
}

// runAhead has every clock an hour ahead while a put is logged, and then right.
func (v *virtual) runAhead() {
	for _, m := range v.Members() {
		m.Clock.Step(time.Hour)
	}
	elapse(time.Minute)
	v.must(virtualPut(1))
	for _, m := range v.Members() {
		m.Clock.Step(0)
	}
	v.changeLeader("a leader that is told the time")
}

// changeLeader cuts the leader off until there is another, and waits until both have compared
// clocks.
func (v *virtual) changeLeader(what string) {
	leader := v.Leader(0)
	v.Isolate(leader)
	v.Await(what, func() bool { return v.LeaderExcept(0, leader) != nil })
	v.Heal(leader)
	elapse(20 * time.Second)
}

// TestAlertsOfMachinesFire: what goes wrong with disks, clocks and networks, which a test cannot do
// to those it runs on, is done to nodes in virtual time; before, the same nodes are quiet.
func TestAlertsOfMachinesFire(t *testing.T) {
	t.Parallel()
	for name, test := range machineTroubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all drill
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t, test.options)
				all.before = v.look()
				test.trouble(v)
				all.after = v.look()
			})
			(&drill{before: all.before, after: all.before}).expect(t, false, test.fire...)
			all.expect(t, true, test.fire...)
		})
	}
}
