package crashtest

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
)

var (
	crashJobs  = flag.Int("crash.jobs", 20_000, "jobs that TestKill puts")
	crashKills = flag.Int("crash.kills", 3, "times that TestKill kills the server while they are put and delivered")
)

const (
	// leaseLength is short, so that the jobs whose grant was lost with a killed server come back within the test.
	leaseLength = 3 * time.Second
	delayMax    = 2 * time.Second
	putters     = 256
	consumers   = 64
)

// ledger is what the test knows: what it was told of each put, and each delivery.
type ledger struct {
	mu   sync.Mutex
	jobs []entry
	done int // jobs acked for good
	open int // jobs put and not acked
	errs []error
}

type entry struct {
	put        bool // the put returned ok
	invoked    time.Time
	delay      time.Duration
	deliveries []delivery
	acked      bool
}

type delivery struct {
	at, until time.Time
	fence     uint64
	attempt   int
}

func (l *ledger) fail(format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

// delivered checks one delivery against what is known of the job.
func (l *ledger) delivered(n uint64, job *client.Job, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.jobs[n]
	if early := e.invoked.Add(e.delay).Sub(at); early > 0 {
		l.fail("job %d was delivered %s early", n, early)
	}
	if e.acked {
		l.fail("job %d was delivered after its ack", n)
	}
	for _, d := range e.deliveries {
		if at.Before(d.until) {
			l.fail("job %d was delivered at %s, while the lease of fence %d ran until %s", n, at, d.fence, d.until)
		}
		if job.Fence <= d.fence {
			l.fail("job %d: fence %d came after fence %d", n, job.Fence, d.fence)
		}
		if job.Attempt <= d.attempt {
			l.fail("job %d: attempt %d came after attempt %d", n, job.Attempt, d.attempt)
		}
	}
	e.deliveries = append(e.deliveries, delivery{at, job.LeaseUntil, job.Fence, job.Attempt})
}

// TestKill puts jobs through the SDK and takes them out while the server is killed with SIGKILL. Every put that returned ok
// must be delivered, none twice except after a lease had lapsed, none early, and none after its ack.
func TestKill(t *testing.T) {
	p := startProcess(t)
	c, err := client.New(p.url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &ledger{jobs: make([]entry, *crashJobs)}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()

	var puts atomic.Int64
	milestones := make(chan struct{}, *crashKills)
	var putting, consuming sync.WaitGroup
	for w := range putters {
		putting.Go(func() { putJobs(ctx, c, l, w, &puts, milestones) })
	}
	consumeCtx, stopConsuming := context.WithCancel(ctx)
	for range consumers {
		consuming.Go(func() { consume(consumeCtx, c, l) })
	}
	for range *crashKills {
		select {
		case <-milestones:
		case <-ctx.Done():
			t.Fatal("the jobs were not put in time")
		}
		p.restart()
	}
	putting.Wait()
	awaitAcks(ctx, t, l)
	stopConsuming()
	consuming.Wait()
	report(t, l)
}

// putJobs puts every putters-th job, starting with the first-th, and tells the milestones at which the server is to be killed.
func putJobs(ctx context.Context, c *client.Client, l *ledger, first int, puts *atomic.Int64, milestones chan<- struct{}) {
	rng := rand.New(rand.NewPCG(1, uint64(first)))
	for n := first; n < len(l.jobs); n += putters {
		delay := time.Duration(rng.Int64N(int64(delayMax)))
		body := make([]byte, 100)
		binary.LittleEndian.PutUint64(body, uint64(n))
		l.mu.Lock()
		l.jobs[n].invoked, l.jobs[n].delay = time.Now(), delay
		l.mu.Unlock()
		_, err := c.Put(ctx, "kill", body, client.In(delay), client.TTR(leaseLength))
		l.mu.Lock()
		if err != nil {
			l.fail("putting job %d: %w", n, err)
		} else {
			l.jobs[n].put = true
			l.open++
		}
		l.mu.Unlock()
		if every := int64(len(l.jobs)/(*crashKills+1) + 1); puts.Add(1)%every == 0 {
			milestones <- struct{}{}
		}
	}
}

// consume takes jobs and acks them until ctx ends.
func consume(ctx context.Context, c *client.Client, l *ledger) {
	for ctx.Err() == nil {
		jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{"kill"}, Wait: 2 * time.Second})
		at := time.Now()
		if err != nil {
			continue // the client has retried as long as it makes sense; what it says is checked by the deliveries
		}
		for _, job := range jobs {
			n := binary.LittleEndian.Uint64(job.Body)
			l.delivered(n, job, at)
			err := job.Ack(ctx)
			l.mu.Lock()
			switch {
			case err == nil && !l.jobs[n].acked:
				l.jobs[n].acked = true
				l.done++
			case err != nil && !errors.Is(err, client.ErrStaleLease) && ctx.Err() == nil:
				l.fail("acking job %d: %w", n, err)
			}
			l.mu.Unlock()
		}
	}
}

// awaitAcks returns when every job that was put has been acked.
func awaitAcks(ctx context.Context, t *testing.T, l *ledger) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		l.mu.Lock()
		missing := l.open - l.done
		l.mu.Unlock()
		if missing <= 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%d jobs whose put returned ok were not delivered and acked in time", missing)
			return
		}
	}
}

func report(t *testing.T, l *ledger) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, err := range l.errs {
		if i == 20 {
			t.Errorf("and %d more", len(l.errs)-i)
			break
		}
		t.Error(err)
	}
	put, lost, twice := 0, 0, 0
	for n := range l.jobs {
		e := &l.jobs[n]
		if !e.put {
			continue
		}
		put++
		if !e.acked {
			lost++
			t.Errorf("job %d was put and never delivered and acked; it has %d deliveries", n, len(e.deliveries))
		}
		if len(e.deliveries) > 1 {
			twice++
		}
	}
	t.Logf("%d jobs put with ok, %d kills, %d lost, %d delivered again after their lease had lapsed", put, *crashKills, lost, twice)
}

// TestLeaseSurvivesKill takes a lease, kills the server, and expects the lease to be held until its end and not after, and the
// next holder to have a higher fence.
func TestLeaseSurvivesKill(t *testing.T) {
	p := startProcess(t)
	c, err := client.New(p.url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if _, err := c.Put(ctx, "lease", []byte("x")); err != nil {
		t.Fatal(err)
	}
	options := client.ReserveOptions{Queues: []string{"lease"}, Wait: 30 * time.Second, TTR: 6 * time.Second}
	first := reserveOne(ctx, t, c, options)
	p.restart()

	held, err := c.Get(ctx, "lease", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if held.State != "RESERVED" || held.Fence != first.Fence || held.LeaseUntil.Before(first.LeaseUntil) {
		t.Errorf("after the kill the job is %s with fence %d until %s; it was reserved with fence %d until %s",
			held.State, held.Fence, held.LeaseUntil, first.Fence, first.LeaseUntil)
	}
	second := reserveOne(ctx, t, c, options)
	if now := time.Now(); now.Before(first.LeaseUntil) {
		t.Errorf("the job went to another holder %s before the end of the lease", first.LeaseUntil.Sub(now))
	}
	if second.Fence <= first.Fence || second.Attempt != 2 {
		t.Errorf("fence %d, attempt %d came after fence %d, attempt 1", second.Fence, second.Attempt, first.Fence)
	}
	if err := first.Ack(ctx); !errors.Is(err, client.ErrStaleLease) {
		t.Errorf("the ack of the first holder: %v, should be stale", err)
	}
	p.restart()
	if err := second.Ack(ctx); err != nil {
		t.Errorf("the ack of the second holder after another kill: %v", err)
	}
	p.restart()
	if err := second.Ack(ctx); err != nil {
		t.Errorf("the same ack once more after a third kill: %v", err)
	}
}

func reserveOne(ctx context.Context, t *testing.T, c *client.Client, o client.ReserveOptions) *client.Job {
	t.Helper()
	jobs, err := c.Reserve(ctx, o)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("reserving: %d jobs, %v", len(jobs), err)
	}
	return jobs[0]
}
