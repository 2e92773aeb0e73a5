package crashtest

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

var (
	crashJobs  = flag.Int("crash.jobs", 20_000, "jobs that TestKill puts")
	crashKills = flag.Int("crash.kills", 3, "times that TestKill kills the server while they are put and delivered")
)

const (
	// leaseLength is short, so that the jobs whose grant was lost with a killed server come back
	// within the test.
	leaseLength = 3 * time.Second
	delayMax    = 2 * time.Second
	putters     = 256
	consumers   = 64
)

var program processtest.Program

func TestMain(m *testing.M) {
	code := m.Run()
	if err := program.Remove(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// start starts a server on a new data directory.
func start(t *testing.T) *processtest.Server {
	t.Helper()
	p := program.New(t, filepath.Join(t.TempDir(), "data"), "--log-level", "warn")
	p.Start()
	return p
}

// TestKill puts jobs through the SDK and takes them out while the server is killed with SIGKILL.
// Every put that returned ok must be delivered, none twice except after a lease had lapsed, none
// early, and none after its ack.
func TestKill(t *testing.T) {
	p := start(t)
	c, err := client.New(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := processtest.NewLedger()
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
		consuming.Go(func() { l.Consume(consumeCtx, c, "kill") })
	}
	for range *crashKills {
		select {
		case <-milestones:
		case <-ctx.Done():
			t.Fatal("the jobs were not put in time")
		}
		p.Restart()
	}
	putting.Wait()
	if err := l.Await(ctx); err != nil {
		t.Error(err)
	}
	stopConsuming()
	consuming.Wait()
	account, err := l.Close()
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d kills: %+v", *crashKills, account)
}

// putJobs puts every putters-th job, starting with the first-th, and tells the milestones at which
// the server is to be killed.
func putJobs(ctx context.Context, c *client.Client, l *processtest.Ledger, first int, puts *atomic.Int64,
	milestones chan<- struct{}) {
	rng := rand.New(rand.NewPCG(1, uint64(first)))
	for n := first; n < *crashJobs; n += putters {
		l.PutJob(ctx, c, "kill", time.Duration(rng.Int64N(int64(delayMax))), client.TTR(leaseLength))
		if every := int64(*crashJobs/(*crashKills+1) + 1); puts.Add(1)%every == 0 {
			milestones <- struct{}{}
		}
	}
}

// TestLeaseSurvivesKill takes a lease, kills the server, and expects the lease to be held until its
// end and not after, and the next holder to have a higher fence.
func TestLeaseSurvivesKill(t *testing.T) {
	p := start(t)
	c, err := client.New(p.URL())
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
	p.Restart()

	held, err := c.Get(ctx, "lease", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine the lease may be over before the server is back.
	if inTime := time.Now().Before(first.LeaseUntil); inTime &&
		(held.State != "RESERVED" || held.Fence != first.Fence || held.LeaseUntil.Before(first.LeaseUntil)) {
		t.Errorf("after the kill the job is %s with fence %d until %s; it was reserved with fence %d until %s",
			held.State, held.Fence, held.LeaseUntil, first.Fence, first.LeaseUntil)
	}
	options.TTR = 10 * time.Minute // it must outlast two more kills
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
	p.Restart()
	if err := second.Ack(ctx); err != nil {
		t.Errorf("the ack of the second holder after another kill: %v", err)
	}
	p.Restart()
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
