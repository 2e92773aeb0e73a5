package guard_test

import (
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/cmd/belfry/bench"
	"github.com/belfrydb/belfry/cmd/belfry/server"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
)

var record = flag.Bool("guard.record", false, "write the ratios that are measured to ratios.txt")

// A guard measures one path.
type guard struct {
	name string
	// prepare makes what a path needs, and returns what does a part of its work and what does the
	// reference's.
	prepare func(b *testing.B) (path, reference func())
	// clock measures both: the wall for what waits for a disk, this process's time on processors for
	// everything else.
	clock func(b *testing.B) time.Duration
	// rounds is how often a path and its reference take turns; the medians count.
	rounds int
}

func guards() []guard {
	return []guard{
		{"log-64x1KiB", func(b *testing.B) (path, reference func()) { return logPath(b, 64, 1<<10) }, wall, 150},
		{"log-1x64KiB", func(b *testing.B) (path, reference func()) { return logPath(b, 1, 64<<10) }, wall, 150},
		{"machine-put", machinePut, processor, 15},
		{"machine-life", machineLife, processor, 15},
		{"call-batch", func(b *testing.B) (path, reference func()) { return calls(b, "batch", 20_000) }, processor, 15},
		{"call-put", func(b *testing.B) (path, reference func()) { return calls(b, "put", 1_000) }, processor, 15},
		{"call-sdk", func(b *testing.B) (path, reference func()) { return calls(b, "sdk", 1_500) }, processor, 15},
	}
}

// attempts is how often a path is measured before it is believed that it got worse.
const attempts = 3

// BenchmarkGuard fails for each path whose ratio is above the recorded one.
func BenchmarkGuard(b *testing.B) {
	text, err := os.ReadFile("ratios.txt")
	if err != nil && !*record {
		b.Fatal(err)
	}
	recorded, err := parseRatios(string(text))
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range guards() {
		b.Run(g.name, func(b *testing.B) {
			path, reference := g.prepare(b)
			b.ResetTimer()
			ratio, err := g.believed(b, recorded, path, reference)
			b.ReportMetric(ratio, "x-reference")
			switch {
			case *record:
				recorded[g.name] = ratio
			case err != nil:
				b.Error(err)
			}
		})
	}
	if *record {
		if err := os.WriteFile("ratios.txt", []byte(recorded.String()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

// believed returns the middle ratio of all attempts, or the first that is within its record.
func (g guard) believed(b *testing.B, recorded ratios, path, reference func()) (ratio float64, err error) {
	var all []float64
	for range attempts {
		ratio := g.ratio(b, path, reference)
		if err = recorded.check(g.name, ratio); err == nil && !*record {
			return ratio, nil
		}
		all = append(all, ratio)
	}
	return median(all), err
}

// ratio is by how much a path costs more than its reference.
func (g guard) ratio(b *testing.B, path, reference func()) float64 {
	var paths, references []float64
	for range max(g.rounds, b.N) {
		began := g.clock(b)
		path()
		between := g.clock(b)
		reference()
		paths, references = append(paths, float64(between-began)), append(references, float64(g.clock(b)-between))
	}
	return median(paths) / median(references)
}

// median returns the middle of some figures, the upper one of two.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func wall(*testing.B) time.Duration { return time.Duration(time.Now().UnixNano()) }

func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// logPath appends synced batches of entries to a log; the reference appends as many bytes to a
// plain file and syncs them.
func logPath(b *testing.B, count, size int) (path, reference func()) {
	const rounds = 2
	dir := b.TempDir()
	s, err := storage.Open(filepath.Join(dir, "group"), storage.Config{
		Group: "guard", Engine: storage.EngineWAL, FS: disk.OSFS{},
	})
	if err != nil {
		b.Fatal(err)
	}
	plain, err := disk.OSFS{}.OpenFile(filepath.Join(dir, "plain"), os.O_CREATE|os.O_RDWR)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		if err := plain.Close(); err != nil {
			b.Error(err)
		}
	})
	batch := make([]*raft.Log, count)
	for i := range batch {
		batch[i] = &raft.Log{Type: raft.LogCommand, Term: 1, Data: make([]byte, size)}
	}
	raw := make([]byte, count*size)
	index, off := uint64(0), int64(0)
	path = func() {
		for range rounds {
			for _, l := range batch {
				index++
				l.Index = index
			}
			if err := s.Log.StoreLogs(batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	return path, func() {
		for range rounds {
			if _, err := plain.WriteAt(raw, off); err != nil {
				b.Fatal(err)
			}
			if err := plain.SyncData(); err != nil {
				b.Fatal(err)
			}
			off += int64(len(raw))
		}
	}
}

// agenda is the reference of the machine: as many bodies, made one by one, in the standard
// library's map by number and heap by time, and taken out again.
func agenda() func() {
	return func() {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same for ever
		due, bodies := &times{}, map[int64][]byte{}
		for range machineJobs {
			at := random.Int64()
			bodies[at] = make([]byte, 100)
			heap.Push(due, at)
		}
		for due.Len() > 0 {
			at, _ := heap.Pop(due).(int64)
			delete(bodies, at)
		}
	}
}

// times is a heap of times, the earliest on top.
type times []int64

func (t *times) Len() int           { return len(*t) }
func (t *times) Less(i, j int) bool { return (*t)[i] < (*t)[j] }
func (t *times) Swap(i, j int)      { (*t)[i], (*t)[j] = (*t)[j], (*t)[i] }
func (t *times) Push(x any)         { at, _ := x.(int64); *t = append(*t, at) }
func (t *times) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

const (
	machineJobs  = 20_000
	machineBatch = 100
	machineStart = fsm.Time(1_800_000_000_000_000_000)
)

// putEntries are entries that put jobs of 100 bytes with delays up to an hour.
func putEntries() [][]byte {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same for ever
	entries := make([][]byte, machineJobs/machineBatch)
	for n := range entries {
		commands := make([]fsm.Command, machineBatch)
		for i := range commands {
			commands[i] = &fsm.Put{
				Queue: "guard", Partitions: 1, Given: fsm.GivenDelay, Delay: time.Duration(random.Int64N(int64(time.Hour))),
				Body: make([]byte, 100),
			}
		}
		entries[n] = codec.AppendEntry(nil, machineStart+fsm.Time(n),
			[][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})
	}
	return entries
}

// machinePut has a new machine apply puts.
func machinePut(b *testing.B) (path, reference func()) {
	entries := putEntries()
	return func() { fill(b, entries) }, agenda()
}

// fill returns a machine that has applied entries, and the index of the last.
func fill(b *testing.B, entries [][]byte) (*machine.Machine, uint64) {
	m := machine.New(fsm.Config{})
	for n, entry := range entries {
		if _, err := m.Apply(uint64(n+1), entry); err != nil { //nolint:gosec // few
			b.Fatal(err)
		}
	}
	return m, uint64(len(entries))
}

// machineLife has a new machine apply puts, reserves and acks.
func machineLife(b *testing.B) (path, reference func()) {
	entries := putEntries()
	now := machineStart + fsm.Time(2*time.Hour)
	return func() {
		m, index := fill(b, entries)
		apply := func(commands []fsm.Command) []fsm.Result {
			index++
			results, err := m.Apply(index,
				codec.AppendEntry(nil, now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})}))
			if err != nil {
				b.Fatal(err)
			}
			return results
		}
		for taken := 0; taken < machineJobs; {
			grants := apply([]fsm.Command{&fsm.Reserve{Queues: []string{"guard"}, Max: machineBatch}})[0].Grants
			if len(grants) == 0 {
				b.Fatalf("of %d jobs %d were there", machineJobs, taken)
			}
			acks := make([]fsm.Command, len(grants))
			for i, g := range grants {
				acks[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
			}
			apply(acks)
			taken += len(grants)
		}
	}, agenda()
}

// calls has callers at a server in this process, over loopback and with its log on disk; clients
// are counted with it.
func calls(b *testing.B, workload string, jobs uint64) (path, reference func()) {
	s, err := server.Start(b.Context(), server.Config{
		Dir: b.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
			b.Error(err)
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
		runtime.GC()
	})
	cfg := bench.Config{
		URL: s.URL(), Workload: workload, Connections: 16, Callers: 64, Batch: 100, Jobs: jobs, RatePerSecond: 1,
		BodyBytes: 100, Queues: 1, Keep: true,
	}
	return func() {
		if _, err := bench.Run(b.Context(), cfg); err != nil {
			b.Fatal(fmt.Errorf("%s: %w", workload, err))
		}
	}, echoes(b, cfg.Connections, cfg.Callers)
}

// echoes is the reference of calls: the standard library's client and server pass small JSON to and
// fro over as many connections, and nothing is done with it.
func echoes(b *testing.B, connections, callers int) func() {
	const requests = 4_000
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			b.Error(err)
		}
		if err := json.NewEncoder(w).Encode(in); err != nil {
			b.Error(err)
		}
	}))
	b.Cleanup(echo.Close)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}}
	b.Cleanup(client.CloseIdleConnections)
	body := `{"queue":"guard","delay":"1s","body":"` + strings.Repeat("A", 136) + `"}`
	post := func() {
		answer, err := client.Post(echo.URL, "application/json", //nolint:noctx // it ends with its server
			strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			b.Error(err)
		}
	}
	return func() {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range requests / callers {
					post()
				}
			})
		}
		all.Wait()
	}
}
