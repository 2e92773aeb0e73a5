package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// fakeHeap is a heap of which a test says how much is alive.
type fakeHeap struct{ live, cycles atomic.Uint64 }

func (h *fakeHeap) read() (live, cycles uint64) { return h.live.Load(), h.cycles.Load() }

// set changes what is alive in MiB, and has n look.
func (h *fakeHeap) set(n *Node, mib uint64) {
	h.live.Store(mib << 20)
	h.cycles.Add(1)
	n.sumMemory()
}

// fullMark and criticalMark return the marks of a node in bytes.
func fullMark(n *Node) uint64 {
	full, _ := admit.MemoryMarks(n.cfg.MemoryBytes)
	return full
}

func criticalMark(n *Node) uint64 {
	_, critical := admit.MemoryMarks(n.cfg.MemoryBytes)
	return critical
}

// openInMemory opens a node that may take so many MiB.
func openInMemory(t *testing.T, dir string, mib uint64) (*Node, *fakeHeap) {
	t.Helper()
	cfg, h := testConfig(t, dir), &fakeHeap{}
	cfg.MemoryBytes, cfg.HeapLive = mib<<20, h.read
	return openNode(t, cfg), h
}

func TestWhatAFullMemoryRefuses(t *testing.T) {
	n, h := openInMemory(t, t.TempDir(), 1024)
	do(t, n, 0, put("orders", "x", 0), put("orders", "y", 0), put("orders", "z", 0))
	g := reserve(t, n, 0, "orders", 0)[0]
	adds := []fsm.Command{put("orders", "new", 0), &fsm.Open{Queue: "other", Partitions: 1}}
	reserves := []fsm.Command{&fsm.Reserve{Queues: []string{"none"}, Max: 1}}
	frees := []fsm.Command{
		&fsm.Cancel{Queue: "orders", ID: "none"}, &fsm.Purge{Queue: "none"}, &fsm.DeleteQueue{Queue: "none"}, &fsm.Expire{},
		&fsm.Lead{},
		&fsm.Nack{Ref: refOf(g)}, &fsm.Release{Ref: refOf(g)}, &fsm.Extend{Ref: refOf(g)},
		&fsm.Reschedule{Queue: "orders", ID: "none"},
		&fsm.Redrive{Queue: "none"}, &fsm.Configure{Queue: "none", Partitions: 1}, &fsm.Ack{Ref: refOf(g)},
	}
	refused := uint64(0)
	check := func(when string, want error, commands ...fsm.Command) {
		t.Helper()
		for _, c := range commands {
			_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{&fsm.Cancel{Queue: "orders", ID: "none"}, c}})
			if !errors.Is(err, want) {
				t.Errorf("%s: %T ended with %v, want %v", when, c, err, want)
			}
			if want == nil {
				continue
			}
			refused++
			if full, ok := errors.AsType[*admit.MemoryError](err); !ok || full.Limit != 1<<30 || full.Used < fullMark(n)*15/16 {
				t.Errorf("%s: the error of %T says %+v", when, c, full)
			}
		}
	}
	full, critical := fullMark(n)>>20, criticalMark(n)>>20
	if 1024*7/10 > full || full >= critical || critical >= admit.SoftMemoryLimit(1<<30)>>20 {
		t.Errorf("of 1024 MiB the marks are %d and %d, the collector's limit %d", full, critical,
			admit.SoftMemoryLimit(1<<30)>>20)
	}
	h.set(n, full-8)
	check("below the mark", nil, put("orders", "a", 0))
	h.set(n, full+1)
	check("full", outcome.ErrMemoryFull, adds...)
	check("full", nil, append(reserves, frees[:len(frees)-1]...)...)
	h.set(n, critical+1)
	check("critical", outcome.ErrMemoryFull, adds...)
	check("critical", nil, append(reserves, frees...)...)
	if text := n.memory.Pressure(); !strings.Contains(text, "at most 64 jobs") {
		t.Errorf("the condition says %q", text)
	}
	if st := n.Status().Memory; !st.Full || !st.Critical || n.Stats().Shards[0].MemoryFull != refused {
		t.Errorf("status says %+v, %d requests were counted, want %d", st, n.Stats().Shards[0].MemoryFull, refused)
	}
	h.set(n, full-4)
	check("hardly less", outcome.ErrMemoryFull, adds...)
	h.set(n, full*9/10)
	check("enough", nil, append(adds, reserves...)...)
}

// memoryBody is the bytes of a job of fillMemory.
const memoryBody = 8 << 10

// fillMemory puts jobs into shard 0 until puts are refused, and returns how many it took.
func fillMemory(t *testing.T, n *Node) (jobs int) {
	t.Helper()
	body := make([]byte, memoryBody)
	for ; ; jobs += 50 {
		req := &fsm.Request{}
		for i := range 50 {
			req.Commands = append(req.Commands, &fsm.Put{Queue: "orders", ID: fmt.Sprint(jobs + i), Again: true, Partitions: 1,
				Body: body})
		}
		if _, err := n.Do(t.Context(), 0, req); err != nil {
			if !errors.Is(err, outcome.ErrMemoryFull) {
				t.Fatal(err)
			}
			return jobs
		}
	}
}

// onFirstRead is a reader that runs a function before it is read.
type onFirstRead struct {
	io.Reader
	once sync.Once
	f    func()
}

func (r *onFirstRead) Read(p []byte) (int, error) {
	r.once.Do(r.f)
	return r.Reader.Read(p)
}

// TestRestoreInAFullMemory: while a snapshot is restored in place of a state a full node remains
// full, though it holds next to nothing, and afterwards what the collector found of the new state
// on the way does not count twice.
func TestRestoreInAFullMemory(t *testing.T) {
	n, h := openInMemory(t, t.TempDir(), 96)
	h.set(n, 16)
	fillMemory(t, n)
	before := n.Status().Memory
	s := n.shards[0].Load()
	var state bytes.Buffer
	s.Replica().View(func(m Machine, _ raftgroup.Position) {
		if _, err := m.Snapshot().WriteTo(&state); err != nil {
			t.Error(err)
		}
	})
	source := &onFirstRead{Reader: &state, f: func() {
		h.set(n, 17)
		if st := n.Status().Memory; !st.Full || st.UsedBytes > before.UsedBytes/2 {
			t.Errorf("without its state the node says %+v", st)
		}
		h.set(n, before.HeldBytes>>20)
	}}
	if err := s.Replica().Restore(io.NopCloser(source)); err != nil {
		t.Fatal(err)
	}
	if st := n.Status().Memory; !st.Full || st.Critical || st.UsedBytes > before.UsedBytes*11/10 {
		t.Errorf("with the new state it says %+v, and with the one before %+v", st, before)
	}
}

// TestJobsFillTheMemory: without anything else alive the machines' own account refuses puts, at
// once, and draining them lets puts in again.
func TestJobsFillTheMemory(t *testing.T) {
	n, _ := openInMemory(t, t.TempDir(), 96)
	first := fillMemory(t, n)
	if held := uint64(first) * memoryBody; held < fullMark(n)/2 || held > fullMark(n) {
		t.Errorf("puts are refused with %d MiB of bodies, the mark is %d MiB", held>>20, fullMark(n)>>20)
	}
	for drained := 0; drained < first; {
		grants := do(t, n, 0, &fsm.Reserve{Queues: []string{"orders"}, Max: 100}).Results[0].Grants
		acks := make([]fsm.Command, len(grants))
		for i, g := range grants {
			acks[i] = &fsm.Ack{Ref: refOf(g)}
		}
		drained += len(do(t, n, 0, acks...).Results)
	}
	if st := n.Status().Memory; st.Full || st.UsedBytes > st.MarkBytes/2 {
		t.Errorf("drained, the status says %+v", st)
	}
	if again := fillMemory(t, n); again < first*9/10 {
		t.Errorf("%d jobs fit at first, %d after they were drained", first, again)
	}
}

// TestPollsWaitWhileMemoryIsCritical: a parked poll keeps waiting while enough jobs are reserved.
// It gets the job when one of those is acked, or when there is memory again.
func TestPollsWaitWhileMemoryIsCritical(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, h := openInMemory(t, dir, 1024)
		for range admit.CriticalLeases + 2 {
			do(t, n, 0, put("orders", "x", 0))
		}
		held := do(t, n, 0, &fsm.Reserve{Queues: []string{"orders"}, Max: admit.CriticalLeases,
			TTR: time.Hour}).Results[0].Grants
		h.set(n, 900)
		for _, relief := range []func(){
			func() { do(t, n, 0, &fsm.Ack{Ref: refOf(held[0])}) }, func() { h.set(n, 100) },
		} {
			poll := startPoll(t, n, time.Hour, 1, "orders")
			time.Sleep(10 * time.Second)
			if !poll.running() {
				t.Fatalf("the poll ended with %+v, %v", poll.reply, poll.err)
			}
			start := time.Now()
			relief()
			if got := poll.grants(t); len(got) != 1 || poll.at.Sub(start) > admit.ScarcePause {
				t.Errorf("granted %+v after %v", got, poll.at.Sub(start))
			}
		}
	})
}

// TestNoLimitRefusesNothing: a node that was not told of a limit has an account all the same.
func TestNoLimitRefusesNothing(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	do(t, n, 0, put("orders", "x", 0))
	n.sumMemory()
	if st := n.Status().Memory; st.LimitBytes != 0 || st.MarkBytes != 0 || st.HeldBytes == 0 || st.Full {
		t.Errorf("status says %+v", st)
	}
}

// TestFullVoterStopsPuts: a leader refuses puts while another voter of the shard says that its
// memory is full, and for a while when that voter falls silent.
func TestFullVoterStopsPuts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, _ := openInMemory(t, dir, 1024)
		voter := n.id.ServerID() // the only one there is
		puts := func(want error) {
			t.Helper()
			_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("orders", "", 0)}})
			if full, _ := errors.AsType[*admit.MemoryError](err); !errors.Is(err, want) || want != nil &&
				*full != (admit.MemoryError{Used: 90, Limit: 100}) {
				t.Errorf("a put ended with %v, want %v", err, want)
			}
		}
		n.NotePeerMemory("n9.1", &admit.MemoryError{Used: 99, Limit: 100}, nil) // no voter
		puts(nil)
		n.NotePeerMemory(voter, &admit.MemoryError{Used: 90, Limit: 100}, nil)
		puts(outcome.ErrMemoryFull)
		do(t, n, 0, &fsm.Reserve{Queues: []string{"orders"}, Max: 1})
		n.NotePeerMemory(voter, nil, outcome.ErrNoLeader)
		puts(outcome.ErrMemoryFull)
		time.Sleep(10 * time.Second)
		n.NotePeerMemory(voter, nil, outcome.ErrNoLeader)
		puts(nil)
		n.NotePeerMemory(voter, &admit.MemoryError{Used: 90, Limit: 100}, nil)
		puts(outcome.ErrMemoryFull)
		n.NotePeerMemory(voter, nil, nil)
		puts(nil)
	})
}

// TestFullVoterIsForgotten: a node's report of its memory stops counting even if no node asks it
// any more, as when it was removed, and on a leader without a limit of its own.
func TestFullVoterIsForgotten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		n.NotePeerMemory("n9.1", &admit.MemoryError{Used: 99, Limit: 100}, nil) // no voter
		n.NotePeerMemory(n.id.ServerID(), &admit.MemoryError{Used: 90, Limit: 100}, nil)
		time.Sleep(memoryInterval)
		synctest.Wait()
		_, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("orders", "", 0)}})
		if !errors.Is(err, outcome.ErrMemoryFull) {
			t.Errorf("a put ended with %v", err)
		}
		time.Sleep((10 * time.Second) + memoryInterval)
		synctest.Wait()
		do(t, n, 0, put("orders", "", 0))
	})
}
