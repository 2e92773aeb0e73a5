package clustertrial

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

var (
	memoryMiB   = flag.Int("trial.memory", 112, "MiB of memory that each server of TestMemory may take")
	memoryNodes = flag.Int("trial.memory-nodes", 1, "servers of TestMemory")
	memoryBody  = flag.Int("trial.memory-body", 200, "bytes of a body of TestMemory")
	memoryGroup = flag.String("trial.memory-group", "",
		"a directory of control groups (version 1, memory) in which each server of TestMemory has its own, so that the "+
			"kernel enforces the limit; empty leaves it to the server's setting")
)

// memoryFillers is how many callers fill the memory, memoryBatch how many jobs a call puts or
// takes.
const (
	memoryFillers = 8
	memoryBatch   = 500
)

// TestMemory fills the memory of servers until puts are refused, drains it, fills it again, kills
// all at the fullest, and starts them again. No server may take more than its limit, no
// acknowledged job may be lost.
func TestMemory(t *testing.T) {
	m := newMemoryTrial(t)
	first := m.fill()
	m.look("full")
	if drained := m.drain(); drained != first {
		t.Errorf("%d jobs were put with ok, %d came back", first, drained)
	}
	second := m.fill()
	m.look("full again")
	if second < first/2 { // what is remembered of the others for a while takes some
		t.Errorf("%d jobs fit at first, %d after they were drained", first, second)
	}
	for _, member := range m.cluster.running() {
		m.cluster.killNode(member)
	}
	began := time.Now()
	for _, member := range m.cluster.members {
		m.cluster.start(member.name)
	}
	m.cluster.await("a whole cluster", func(s *admin.Cluster) bool { return complete(s, factor) })
	ready := time.Since(began)
	m.look("started again")
	drained := m.drain()
	m.figures.count("jobs in a full memory", first)
	m.figures.count("jobs in it after it was drained", second)
	m.figures.count("jobs lost", max(0, second-drained), 0)
	m.figures.milliseconds("from the start after the kill until every shard has its leader", ready)
	if drained != second {
		t.Errorf("%d jobs were put with ok before the kill, %d came back", second, drained)
	}
	m.figures.print(t)
}

// memoryTrial is servers with little memory.
type memoryTrial struct {
	t       *testing.T
	cluster *cluster
	sdk     *client.Client
	queues  []string
	figures *figures
}

func newMemoryTrial(t *testing.T) *memoryTrial {
	t.Helper()
	m := &memoryTrial{t: t, figures: &figures{trial: "memory"}}
	names := []string{"n1", "n2", "n3", "n4", "n5"}[:*memoryNodes]
	m.cluster = newCluster(t, names...)
	for _, member := range m.cluster.members {
		member.server.Add("--memory", fmt.Sprintf("%dMiB", *memoryMiB))
		if *memoryGroup != "" {
			member.server.Within(newMemoryGroup(t, member))
		}
	}
	m.cluster.start(names...)
	m.cluster.await("a whole cluster", func(s *admin.Cluster) bool { return complete(s, factor) })
	m.queues = m.cluster.queues("memory")
	m.sdk = m.cluster.client()
	return m
}

// newMemoryGroup makes a control group with the limit and returns its directory.
func newMemoryGroup(t *testing.T, of *member) string {
	t.Helper()
	dir := filepath.Join(*memoryGroup, "belfry-trial-"+of.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		of.kill() // or the group is in use
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(*memoryMiB<<20)),
		0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// fill puts jobs until every queue refuses them, and returns how many were acknowledged.
func (m *memoryTrial) fill() int {
	m.t.Helper()
	var acked atomic.Int64
	var filling sync.WaitGroup
	for i := range max(memoryFillers, len(m.queues)) {
		filling.Go(func() { acked.Add(int64(m.fillQueue(m.queues[i%len(m.queues)]))) })
	}
	filling.Wait()
	return int(acked.Load())
}

func (m *memoryTrial) fillQueue(queue string) (acked int) {
	puts := make([]client.Put, memoryBatch)
	for i := range puts {
		puts[i] = client.Put{Queue: queue, Body: make([]byte, *memoryBody)}
	}
	for {
		results, err := m.sdk.PutBatch(m.t.Context(), puts)
		for _, r := range results {
			if r.Err == nil {
				acked++
			}
		}
		switch {
		case errors.Is(err, client.ErrMemoryFull):
			return acked
		case err != nil && !errors.Is(err, client.Reason("OVERLOADED")):
			m.t.Errorf("putting: %v", err)
			return acked
		}
	}
}

// drain takes and acks all jobs, and returns how many there were. A job that comes twice counts
// once.
func (m *memoryTrial) drain() int {
	m.t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	var draining sync.WaitGroup
	for _, queue := range m.queues {
		draining.Go(func() {
			for {
				jobs, err := m.sdk.Reserve(m.t.Context(), client.ReserveOptions{
					Queues: []string{queue}, Max: memoryBatch, Wait: time.Second,
				})
				if err != nil {
					m.t.Errorf("reserving: %v", err)
					return
				}
				if len(jobs) == 0 {
					return
				}
				leases := make([]string, len(jobs))
				mu.Lock()
				for i, job := range jobs {
					leases[i] = job.Lease
					seen[queue+"/"+job.ID] = true
				}
				mu.Unlock()
				if _, err := m.sdk.AckBatch(m.t.Context(), leases); err != nil {
					m.t.Errorf("acking: %v", err)
					return
				}
			}
		})
	}
	draining.Wait()
	return len(seen)
}

// look notes the most that a server has taken since its start, and that the kernel killed none.
func (m *memoryTrial) look(when string) {
	m.t.Helper()
	most, kills := 0, 0
	for _, member := range m.cluster.running() {
		select {
		case <-member.server.Ended():
			m.t.Fatalf("%s has ended:\n%s", member.name, processtest.Tail(member.server.Log(), 20))
		default:
		}
		peak := numberAfter(m.t, fmt.Sprintf("/proc/%d/status", member.server.PID()), "VmHWM:") >> 10
		if peak > *memoryMiB {
			m.t.Errorf("%s: %s has taken %d MiB, the limit is %d MiB", when, member.name, peak, *memoryMiB)
		}
		most = max(most, peak)
		if *memoryGroup != "" {
			kills += numberAfter(m.t, filepath.Join(*memoryGroup, "belfry-trial-"+member.name, "memory.oom_control"), "oom_kill")
		}
	}
	m.figures.enter("most memory of a server, "+when, float64(most), "MiB", []float64{float64(*memoryMiB)})
	if *memoryGroup != "" {
		m.figures.count("servers that the kernel killed, "+when, kills, 0)
	}
	if kills > 0 {
		m.t.Errorf("%s: the kernel has killed %d servers", when, kills)
	}
}

// numberAfter returns the number after a word at the beginning of a line of a file.
func numberAfter(t *testing.T, file, word string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == word {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no line that begins with %q", file, word)
	return 0
}
