package clustertrial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

var (
	foundingsCalm = flag.Int("trial.foundings-calm", 1,
		"foundings of TestFounding that nothing disturbs, one after the other")
	foundingsKilled = flag.Int("trial.foundings-killed", 2,
		"foundings of TestFounding whose founder is killed, -parallel at a time")
	foundingsWiped = flag.Int("trial.foundings-wiped", 2,
		"foundings of TestFounding whose founder is killed and loses its disk, -parallel at a time")
	foundingSeed = flag.Uint64("trial.founding-seed", 0,
		"the seed of the first founding of each kind, which the next have one higher each; 0 picks one")
)

const (
	// foundingGap is the longest time between two starts of founders, foundingSpan that from the
	// founder's start within which it is killed, foundingAway the longest for which it is away.
	foundingGap  = time.Second
	foundingSpan = 15 * time.Second
	foundingAway = 5 * time.Second
	// foundingWhole is an aim: from the start of the last of three until every shard and the catalog
	// has its voters and a leader.
	foundingWhole = 3 * time.Second
)

// TestFounding founds clusters of three while clients put jobs through every node, kills the
// founder at a random moment, wipes its disk or leaves it, and starts it again. Each must be whole
// in the end, without a command, and have every job that was acknowledged.
func TestFounding(t *testing.T) {
	seed := *foundingSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	r := &foundings{}
	run := func(kind string, n int, alone bool, each func(*founding)) {
		t.Run(kind, func(t *testing.T) {
			for i := range uint64(n) { //nolint:gosec // a count
				t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
					if !alone {
						t.Parallel()
					}
					each(newFounding(t, seed+i, r))
				})
			}
		})
	}
	run("calm", *foundingsCalm, true, (*founding).calm)
	run("killed", *foundingsKilled, false, func(f *founding) { f.lose(false) })
	run("wiped", *foundingsWiped, false, func(f *founding) { f.lose(true) })
	f := &figures{trial: "founding"}
	f.durations("from the third start until whole, undisturbed and alone", r.calm, foundingWhole)
	f.durations("from the third start until whole, where that was before the kill", r.before)
	f.durations("from the founder's next start until whole", r.after)
	f.count("founders killed before a job was acknowledged", r.early)
	f.count("founders killed later", r.late)
	f.count("jobs put with ok", r.acked)
	f.count("jobs lost", r.lost, 0)
	f.print(t)
}

// foundings is what was seen of all foundings.
type foundings struct {
	mu                  sync.Mutex
	calm, before, after processtest.Durations
	early, late         int
	acked, lost         int
}

// founding is three servers that found a cluster, the first of which is the founder, and clients
// that put jobs through each from the first moment on.
type founding struct {
	*foundings
	t       *testing.T
	cluster *cluster
	dirs    map[string]string
	rand    *rand.Rand

	stop    context.CancelFunc
	putting sync.WaitGroup
	ackedMu sync.Mutex
	acked   map[string]bool // queues and ids
	through map[string]int  // how many of them, by the name of the node
	saw     []string
}

func newFounding(t *testing.T, seed uint64, all *foundings) *founding {
	t.Helper()
	f := &founding{
		foundings: all, t: t, cluster: &cluster{t: t}, dirs: map[string]string{}, acked: map[string]bool{},
		through: map[string]int{
			"n1": 0, "n2": 0, "n3": 0,
		},
		rand: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a trial
	}
	dir := t.TempDir()
	var gossip []string
	for _, name := range []string{"n1", "n2", "n3"} {
		f.dirs[name] = filepath.Join(dir, name)
		server := program.New(t, f.dirs[name], "--node-id", name, "--shards", fmt.Sprint(*shards), "--bootstrap-expect", "3")
		gossip = append(gossip, server.Gossip())
		f.cluster.add(&member{name: name, url: server.URL(), server: server, kill: server.Kill})
	}
	for _, m := range f.cluster.members {
		m.server.Add("--join", strings.Join(gossip, ","))
	}
	t.Cleanup(f.cluster.explain)
	return f
}

// begin launches the three in any order, and the clients. It returns the moments of the founder's
// and of the last start.
func (f *founding) begin() (founder, last time.Time) {
	ctx, stop := context.WithCancel(f.t.Context())
	f.stop = stop
	f.t.Cleanup(func() { stop(); f.putting.Wait() })
	for _, m := range f.cluster.members {
		f.putting.Go(func() { f.put(ctx, m) })
	}
	for i, at := range f.rand.Perm(len(f.cluster.members)) {
		if i > 0 {
			pause(time.Duration(f.rand.Int64N(int64(foundingGap))))
		}
		m := f.cluster.members[at]
		m.server.Launch()
		m.up, last = true, time.Now()
		if at == 0 {
			founder = last
		}
	}
	return founder, last
}

// put puts one job after the other through a node, into a queue of each shard in turn, and
// remembers those that were acknowledged.
func (f *founding) put(ctx context.Context, m *member) {
	to := plain(m)
	for i := 0; ctx.Err() == nil; i++ {
		id, queue := fmt.Sprintf("%s/%d", m.name, i), fmt.Sprintf("founding-%d", i%8)
		call, cancel := context.WithTimeout(ctx, probeWait)
		_, err := to.Put(call, &belfryv1.PutRequest{Queue: queue, Id: id})
		cancel()
		if err == nil {
			f.ackedMu.Lock()
			f.acked[queue+" "+id] = true
			f.through[m.name]++
			f.ackedMu.Unlock()
		}
		pause(probePause)
	}
}

// whole waits until a node that runs says that all three are there and every shard has its voters,
// and returns for how long after a moment that was not so. Then it waits until puts through each
// are acknowledged. What a founding that takes long says meanwhile is logged.
func (f *founding) whole(after time.Time) time.Duration {
	f.t.Helper()
	said, before := map[string]bool{}, time.Now()
	f.cluster.await("a whole cluster", func(s *admin.Cluster) bool {
		for _, problem := range s.Problems {
			if !said[problem] {
				said[problem] = true
				f.saw = append(f.saw, fmt.Sprintf("after %v: %s", time.Since(after).Round(time.Millisecond), problem))
			}
		}
		return isWhole(s)
	})
	took := time.Since(after)
	if time.Since(before) > 10*time.Second {
		f.t.Logf("it took %v:\n%s", took, strings.Join(f.saw, "\n"))
	}
	counts := f.counts()
	f.cluster.awaitThat("puts through each node", func(context.Context) bool {
		for name, n := range f.counts() {
			if n <= counts[name] {
				return false
			}
		}
		return true
	}, func() {})
	return took
}

func isWhole(s *admin.Cluster) bool {
	return len(s.Nodes) == 3 && len(s.Problems) == 0 && complete(s, factor)
}

// calm lets a founding be.
func (f *founding) calm() {
	_, last := f.begin()
	took := f.whole(last)
	f.mu.Lock()
	f.foundings.calm = append(f.foundings.calm, took)
	f.mu.Unlock()
	f.judge()
}

// lose kills the founder, wipes its disk if that is wanted, and starts it again.
func (f *founding) lose(wipe bool) {
	moment := time.Duration(f.rand.Int64N(int64(foundingSpan)))
	away := time.Duration(f.rand.Int64N(int64(foundingAway)))
	began, last := f.begin()
	founder := f.cluster.members[0]
	took, was := f.wholeBefore(last, began.Add(moment))
	f.cluster.killNode(founder)
	acked := 0
	for _, n := range f.counts() {
		acked += n
	}
	if wipe {
		if err := os.RemoveAll(f.dirs[founder.name]); err != nil {
			f.t.Fatal(err)
		}
	}
	pause(away)
	again := time.Now()
	founder.server.Launch()
	founder.up = true
	back := f.whole(again)
	f.mu.Lock()
	if was {
		f.before = append(f.before, took)
	}
	f.after = append(f.after, back)
	if acked == 0 {
		f.early++
	} else {
		f.late++
	}
	f.mu.Unlock()
	f.judge()
}

// wholeBefore waits until a moment, and returns how long after another the cluster was whole, if it
// was.
func (f *founding) wholeBefore(after, until time.Time) (took time.Duration, was bool) {
	through := f.cluster.members[1]
	for time.Now().Before(until) {
		ctx, cancel := context.WithTimeout(f.t.Context(), min(probeWait, time.Until(until)))
		s, err := through.client.Admin().Cluster(ctx)
		cancel()
		if !was && err == nil && isWhole(&s) {
			took, was = time.Since(after), true
		}
		pause(min(lookPause, max(0, time.Until(until))))
	}
	return took, was
}

// counts returns how many jobs were acknowledged through each node so far.
func (f *founding) counts() map[string]int {
	f.ackedMu.Lock()
	defer f.ackedMu.Unlock()
	return maps.Clone(f.through)
}

// judge ends the clients, takes all jobs out of the queues, and compares.
func (f *founding) judge() {
	f.stop()
	f.putting.Wait()
	got := f.drain()
	lost := 0
	for job := range f.acked {
		if !got[job] {
			if lost++; lost <= 10 {
				f.t.Errorf("%s was acknowledged and is lost", job)
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foundings.acked += len(f.acked)
	f.lost += lost
}

// drain reserves and acks until every queue is empty, and returns what it got.
func (f *founding) drain() (got map[string]bool) {
	f.t.Helper()
	got = map[string]bool{}
	sdk := f.cluster.client()
	ctx, cancel := context.WithTimeout(f.t.Context(), waitMax)
	defer cancel()
	for i := 0; i < 8; {
		queue := fmt.Sprintf("founding-%d", i)
		jobs, err := sdk.Reserve(ctx, client.ReserveOptions{Queues: []string{queue}, Max: 1000})
		if err != nil && !errors.Is(err, client.ErrUnknownOutcome) {
			f.t.Fatalf("reserving: %v", err)
		}
		if err == nil && len(jobs) == 0 {
			i++
			continue
		}
		leases := make([]string, len(jobs))
		for at, job := range jobs {
			leases[at], got[queue+" "+job.ID] = job.Lease, true
		}
		if _, err := sdk.AckBatch(ctx, leases); err != nil {
			f.t.Fatalf("acking: %v", err)
		}
	}
	return got
}
