package mirrortrial

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/redistest"
)

var entries = flag.Int("trial.entries", 20_000, "how many entries wait in Redis when the imports of TestSize begin")

const (
	// sizeLong is how many entries make the trial one that measures.
	sizeLong = 1_000_000
	// blockedMax is for how long one script may hold up Redis.
	blockedMax = 50 * time.Millisecond
	fillBatch  = 1000
	// readers is how many jobs are read at a time in the end.
	readers = 128
	// Of that many entries that wait one falls due while the trial runs, and of that many that are
	// offered then: Redisson searches its list for each.
	soonOfWaiting = 10_000
	soonOfOffered = 20
	soonMin       = 5 * time.Second
	// perEntry is longer than one takes to come over.
	perEntry = 60 * time.Microsecond
)

// sizeDelay is the delay of an entry: but for one of so many it outlasts the trial.
func sizeDelay(soonOf int, soon time.Duration) time.Duration {
	if rand.IntN(soonOf) == 0 {
		return rand.N(soon)
	}
	return longDelay + rand.N(24*time.Hour)
}

// TestSize imports many entries while producers and workers go on, leaving Redis most of its time,
// and again without leaving it any.
func TestSize(t *testing.T) {
	for _, share := range []string{"0.25", "1"} {
		t.Run("share "+share, func(t *testing.T) {
			s := newStage(t, "everysec", 1)
			s.fill(s.queues[0], *entries)
			producing := s.produce(func() time.Duration { return sizeDelay(soonOfOffered, soonMin) }, 40*time.Millisecond)
			transferring, consuming := s.transfer(), s.consume()
			s.await("Redisson to have delivered some", func(ctx context.Context) (bool, error) {
				sizes, err := s.sizes(ctx, s.queues[0])
				return sizes["ready"] > 0, err
			})
			s.importWatched(s.queues[0], share, producing.stop)
			producing.end()
			s.importAll(s.queues[0])
			transferring.end()
			s.takeReady()
			s.await("what falls due soon to be consumed", func(ctx context.Context) (bool, error) {
				return s.quiet(ctx, s.queues[0])
			})
			consuming.end()
			s.list(s.queues[0])
			s.wantEmpty()
			t.Logf("%+v", s.ledger.close(t, true))
			s.blocked()
		})
	}
}

// fill puts entries into Redis as Redisson has them, faster than it would.
func (s *stage) fill(q *queue, total int) {
	s.t.Helper()
	now, span := time.Now(), max(soonMin, time.Duration(total)*perEntry)
	for first := 0; first < total; first += fillBatch {
		scored, members := make([]redis.Z, 0, fillBatch), make([]any, 0, fillBatch)
		for range min(fillBatch, total-first) {
			n, payload := s.ledger.begin()
			member := binary.BigEndian.AppendUint64([]byte{8}, rand.Uint64())
			member = append(binary.LittleEndian.AppendUint64(member, uint64(len(payload))), payload...)
			scored = append(scored, redis.Z{Score: float64(now.Add(sizeDelay(soonOfWaiting, span)).UnixMilli()), Member: member})
			members = append(members, member)
			s.ledger.offered(n)
		}
		_, err := s.rdb.TxPipelined(s.t.Context(), func(p redis.Pipeliner) error {
			p.ZAdd(s.t.Context(), q.key("redisson_delay_queue_timeout"), scored...)
			p.RPush(s.t.Context(), q.key("redisson_delay_queue"), members...)
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// importWatched imports, and says how fast it was and how much memory it took on its way. When
// little is left it calls enough: an import ends when nothing is left, and producers may keep it
// from that.
func (s *stage) importWatched(q *queue, share string, enough func()) {
	s.t.Helper()
	sizes, err := s.sizes(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	total, began := sizes["timer"], time.Now()
	p := s.run(s.mirrorArgs(q, "import", "--share", share, "-o", "json")...)
	marks, at := []int64{10, 50}, map[int64]string{}
	var first time.Time
	last := ""
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-p.ended:
			running = false
			continue
		case <-tick.C:
		}
		if memory := memoryOf(p.command.Process.Pid); memory != "" {
			last = memory
		}
		if sizes, err = s.sizes(s.t.Context(), q); err != nil {
			s.t.Fatal(err)
		}
		done := total - sizes["timer"]
		if done*100 >= total*99 {
			enough()
		}
		if first.IsZero() && sizes["handover"] > 0 {
			first = time.Now()
		}
		for len(marks) > 0 && done*100 >= marks[0]*total {
			at[marks[0]], marks = last, marks[1:]
		}
	}
	took, claiming := time.Since(began), time.Since(first)
	if p.err != nil {
		s.t.Fatalf("the import ended with %v:\n%s", p.err, p.tail())
	}
	at[100] = last
	s.t.Logf("share %s: %d entries in %.1f s, %.0f/s, or %.0f/s since the first claim: %s", share, total, took.Seconds(),
		float64(total)/took.Seconds(),
		float64(total)/claiming.Seconds(), strings.Join(strings.Fields(p.out.String()), " "))
	s.t.Logf("memory of the importer (VmHWM, VmRSS) at 10 %%: %s, 50 %%: %s, 100 %%: %s", at[10], at[50], at[100])
	if *entries >= sizeLong && highest(at[100]) > highest(at[10])+highest(at[10])/4 {
		s.t.Error("the memory of the importer grew with the entries")
	}
}

// memoryOf is the largest and the present size of a process, such as "31000 kB, 30500 kB"; empty if
// it has ended.
func memoryOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		for _, name := range []string{"VmHWM:", "VmRSS:"} {
			if value, ok := strings.CutPrefix(line, name); ok {
				found = append(found, strings.TrimSpace(value))
			}
		}
	}
	return strings.Join(found, ", ")
}

// highest is the first number of what memoryOf returns.
func highest(memory string) int {
	text, _, _ := strings.Cut(memory, " ")
	n, _ := strconv.Atoi(text) // 0 if it was not measured in time
	return n
}

// quiet reports whether all jobs of a queue are due much later. It asks in the order in which a job
// goes, and not for counts: those are of the last change, and a job that has just fallen due is in
// neither answer.
func (s *stage) quiet(ctx context.Context, q *queue) (bool, error) {
	for _, o := range []client.ListOptions{
		{State: "DELAYED", DueBefore: time.Now().Add(longDelay / 2)},
		{State: "READY"},
		{State: "RESERVED"},
	} {
		for _, err := range s.sdk.List(ctx, q.name, o) {
			return false, err
		}
	}
	return true, nil
}

// list enters all jobs that Belfry has, none of which changes.
func (s *stage) list(q *queue) {
	s.t.Helper()
	var listing sync.WaitGroup
	ids := make(chan string, fillBatch)
	for range readers {
		listing.Go(func() {
			for id := range ids {
				job, err := s.sdk.Get(s.t.Context(), q.name, id)
				if err != nil {
					s.t.Errorf("job %s: %v", id, err)
					continue
				}
				s.ledger.byBelfry(string(job.Body))
			}
		})
	}
	for job, err := range s.sdk.List(s.t.Context(), q.name, client.ListOptions{State: "DELAYED", PageSize: 500}) {
		if err != nil {
			s.t.Error(err)
			break
		}
		ids <- job.ID
	}
	close(ids)
	listing.Wait()
}

// blocked says for how long Redis was held up.
func (s *stage) blocked() {
	s.t.Helper()
	for _, of := range []struct{ who, name string }{{"our commands", "belfry-mirror"}, {"those of Redisson", "redisson"}} {
		slowest, err := s.redis.Slowest(s.t.Context(), redistest.FromClient(of.name))
		if err != nil {
			s.t.Error(err)
			return
		}
		all, err := s.redis.Client().SlowLogGet(s.t.Context(), -1).Result()
		if err != nil {
			s.t.Error(err)
			return
		}
		over := 0
		for _, entry := range all {
			if entry.ClientName == of.name && entry.Duration > blockedMax/5 {
				over++
			}
		}
		command := ""
		if len(slowest.Args) > 0 {
			command = slowest.Args[0]
		}
		s.t.Logf("the longest that one of %s held up Redis: %v (%s); %d took more than %v", of.who, slowest.Duration, command,
			over, blockedMax/5)
		if *entries >= sizeLong && of.name == "belfry-mirror" && slowest.Duration > blockedMax {
			s.t.Errorf("that is more than %v", blockedMax)
		}
	}
}
