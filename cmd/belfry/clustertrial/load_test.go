package clustertrial

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/cmd/belfry/processtest"
)

const (
	// consumersEach is how many consumers a queue has: enough for the load when each call takes a
	// tenth of a second.
	consumersEach = 64
	// loadPeriod is the time between two bursts of puts.
	loadPeriod = 5 * time.Millisecond
	// loadDelayMax is the longest delay of a job.
	loadDelayMax = time.Second
	// leaseLength is short, so that jobs whose grant was lost with its leader come back within the
	// trial.
	leaseLength = 5 * time.Second
)

// load puts jobs at a steady rate, on a schedule that waits for no answer, and takes and acks them,
// all through one client.
type load struct {
	t                  *testing.T
	ledger             *processtest.Ledger
	stopPuts, stopAll  context.CancelFunc
	putting, consuming sync.WaitGroup
	began              time.Time
	queues             []string
}

// startLoad starts a load of so many jobs a second, one queue for each shard. It must be finished.
func startLoad(c *cluster, perSecond float64) *load {
	t := c.t
	t.Helper()
	sdk := c.client()
	l := &load{t: t, ledger: processtest.NewLedger(), queues: c.queues("load"), began: time.Now()}
	putting, stopPuts := context.WithCancel(t.Context())
	consuming, stopAll := context.WithCancel(t.Context())
	l.stopPuts, l.stopAll = stopPuts, stopAll
	t.Cleanup(func() {
		stopPuts()
		stopAll()
		l.putting.Wait()
		l.consuming.Wait()
	})
	for _, queue := range l.queues {
		for range consumersEach {
			l.consuming.Go(func() { l.ledger.Consume(consuming, sdk, queue) })
		}
	}
	l.putting.Go(func() { l.schedule(putting, sdk, perSecond) })
	return l
}

// schedule puts jobs until ctx ends. What was begun is finished.
func (l *load) schedule(ctx context.Context, sdk *client.Client, perSecond float64) {
	tick := time.NewTicker(loadPeriod)
	defer tick.Stop()
	for put := 0; ; {
		for ; float64(put) < time.Since(l.began).Seconds()*perSecond; put++ {
			delay, queue := rand.N(loadDelayMax), l.queues[put%len(l.queues)]
			l.putting.Go(func() {
				ctx, cancel := context.WithTimeout(l.t.Context(), waitMax)
				defer cancel()
				l.ledger.PutJob(ctx, sdk, queue, delay, client.TTR(leaseLength))
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// finish stops putting, waits until everything that was put has been delivered and acked, and says
// what became of it. It reports what should not have been.
func (l *load) finish() processtest.Account {
	l.t.Helper()
	l.stopPuts()
	l.putting.Wait()
	ctx, cancel := context.WithTimeout(l.t.Context(), waitMax)
	defer cancel()
	if err := l.ledger.Await(ctx); err != nil {
		l.t.Error(err)
	}
	l.stopAll()
	l.consuming.Wait()
	account, err := l.ledger.Close()
	if err != nil {
		l.t.Error(err)
	}
	if account.Put == 0 {
		l.t.Error("nothing was put")
	}
	return account
}
