package processtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
)

const (
	bodyBytes = 100
	// problemsMax is how many problems are kept word for word; the others are counted.
	problemsMax = 20
	// reserveWait is how long a consumer's Reserve waits.
	reserveWait = 2 * time.Second
)

// Ledger is what a test knows of its jobs: what it was told of each put, and each delivery. From it
// follows whether the promises were kept. Its methods may be called from any goroutine.
type Ledger struct {
	mu       sync.Mutex
	jobs     []entry
	open     int // jobs put and not acked
	problems []error
	account  Account
	settled  chan struct{} // closed and replaced when open becomes 0
}

// entry is one job.
type entry struct {
	put        bool // the put returned ok
	invoked    time.Time
	took       time.Duration // the put
	delay      time.Duration
	due        time.Time // by the server; zero until it is delivered
	deliveries []delivery
	acked      bool
	ackedFence uint64 // of the delivery that was acked
}

type delivery struct {
	at, until time.Time
	fence     uint64
	attempt   int
}

// overtakenBy says what is wrong with a delivery that was granted after this one; nothing is if the
// fences and attempts go up and the lease before was over.
func (d delivery) overtakenBy(next delivery) (problems []string) {
	if next.at.Before(d.until) {
		problems = append(problems,
			fmt.Sprintf("was delivered at %s, while the lease of fence %d ran until %s", next.at, d.fence, d.until))
	}
	if next.fence <= d.fence {
		problems = append(problems, fmt.Sprintf("fence %d came after fence %d", next.fence, d.fence))
	}
	if next.attempt <= d.attempt {
		problems = append(problems, fmt.Sprintf("attempt %d came after attempt %d", next.attempt, d.attempt))
	}
	return problems
}

// Account is what a ledger adds up to. Of a server that keeps its promises Lost, Early and Problems
// are zero.
type Account struct {
	// Put counts jobs whose put returned ok, Acked those of them that were delivered and acked.
	Put   int `json:"put"`
	Acked int `json:"acked"`
	// Lost are jobs put and not acked. Early counts deliveries before the due time.
	Lost  int `json:"lost"`
	Early int `json:"early"`
	// Twice are jobs that were delivered more than once, each time after the lease before had lapsed.
	// Unseen counts grants that reached no consumer, as the gaps in the attempts tell: their leader
	// died before it could hand them over.
	Twice  int `json:"twice"`
	Unseen int `json:"unseen"`
	// StaleAcks counts acks that came after their lease had lapsed, which is no error of the server.
	StaleAcks int `json:"staleAcks"`
	// FailedCalls counts calls of the SDK that ended with an error. Problems counts all that should
	// not have been, these included.
	FailedCalls int `json:"failedCalls"`
	Problems    int `json:"problems"`
}

// NewLedger returns a ledger without jobs.
func NewLedger() *Ledger { return &Ledger{settled: make(chan struct{})} }

// problem notes what should not have been. The caller holds the lock.
func (l *Ledger) problem(format string, args ...any) {
	if l.account.Problems++; len(l.problems) < problemsMax {
		l.problems = append(l.problems, fmt.Errorf(format, args...))
	}
}

// failed notes a call of the SDK that ended with an error. The caller holds the lock.
func (l *Ledger) failed(format string, args ...any) {
	l.account.FailedCalls++
	l.problem(format, args...)
}

// PutJob puts one job that is due after a delay, and enters it.
func (l *Ledger) PutJob(ctx context.Context, c *client.Client, queue string, delay time.Duration,
	more ...client.PutOption) {
	n, body := l.beginPut(time.Now(), delay)
	began := time.Now()
	_, err := c.Put(ctx, queue, body, append(more, client.In(delay))...)
	l.wasPut(n, time.Since(began), err)
}

// beginPut enters a job that is about to be put, and returns its number and body.
func (l *Ledger) beginPut(now time.Time, delay time.Duration) (n uint64, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = uint64(len(l.jobs))
	l.jobs = append(l.jobs, entry{invoked: now, delay: delay})
	body = make([]byte, bodyBytes)
	binary.LittleEndian.PutUint64(body, n)
	return n, body
}

// wasPut enters how a put ended.
func (l *Ledger) wasPut(n uint64, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.jobs[n]
	e.took = took
	if err != nil {
		l.failed("putting job %d: %w", n, err)
		return
	}
	e.put = true
	if l.account.Put++; e.acked { // the consumer was faster than the answer
		l.account.Acked++
		return
	}
	l.open++
}

// Consume takes jobs of a queue one by one and acks them until ctx ends.
func (l *Ledger) Consume(ctx context.Context, c *client.Client, queue string) {
	for ctx.Err() == nil {
		jobs, err := c.Reserve(ctx, client.ReserveOptions{Queues: []string{queue}, Wait: reserveWait})
		at := time.Now()
		if err != nil && ctx.Err() == nil {
			l.mu.Lock()
			l.failed("reserving from %s: %w", queue, err)
			l.mu.Unlock()
		}
		for _, job := range jobs {
			if n, ok := l.delivered(job, at); ok {
				if err := job.Ack(ctx); ctx.Err() == nil {
					l.wasAcked(n, job.Fence, err)
				}
			}
		}
	}
}

// delivered checks one delivery against what is known of the job, and returns its number.
func (l *Ledger) delivered(job *client.Job, at time.Time) (n uint64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(job.Body) == bodyBytes {
		n = binary.LittleEndian.Uint64(job.Body)
	}
	if len(job.Body) != bodyBytes || n >= uint64(len(l.jobs)) {
		l.problem("job %s of %s was delivered, which nobody put", job.ID, job.Queue)
		return 0, false
	}
	e := &l.jobs[n]
	if early := max(e.invoked.Add(e.delay).Sub(at), job.FirstDueAt.Sub(at)); early > 0 {
		l.account.Early++
		l.problem("job %d was delivered %s early", n, early)
	}
	if e.acked && job.Fence > e.ackedFence {
		l.problem("job %d was delivered after its ack", n)
	}
	now := delivery{at, job.LeaseUntil, job.Fence, job.Attempt}
	attempts := 0
	for _, d := range e.deliveries {
		older, younger := d, now
		if now.fence < d.fence { // its answer was held up on the way, by a server that was stopped or a machine that is busy
			older, younger = now, d
		}
		for _, problem := range older.overtakenBy(younger) {
			l.problem("job %d: %s", n, problem)
		}
		attempts = max(attempts, d.attempt)
	}
	if len(e.deliveries) == 1 {
		l.account.Twice++
	}
	if now.attempt < attempts {
		l.account.Unseen-- // it was taken for lost
	}
	l.account.Unseen += max(0, now.attempt-attempts-1)
	e.due = job.FirstDueAt
	e.deliveries = append(e.deliveries, now)
	return n, true
}

// wasAcked enters how the ack of the delivery with a fence ended.
func (l *Ledger) wasAcked(n, fence uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.jobs[n]
	switch {
	case err == nil && !e.acked:
		e.acked, e.ackedFence = true, fence
		if !e.put { // its put is still to return
			return
		}
		l.account.Acked++
		if l.open--; l.open == 0 {
			close(l.settled)
			l.settled = make(chan struct{})
		}
	case errors.Is(err, client.ErrStaleLease):
		l.account.StaleAcks++
	case err != nil:
		l.failed("acking job %d: %w", n, err)
	}
}

// Await returns when every job that was put has been acked, or ctx has ended. All puts must have
// returned.
func (l *Ledger) Await(ctx context.Context) error {
	for {
		l.mu.Lock()
		open, settled := l.open, l.settled
		l.mu.Unlock()
		if open == 0 {
			return nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("%d jobs whose put returned ok were not delivered and acked: %w", open, context.Cause(ctx))
		}
	}
}

// Puts returns how many puts returned ok so far.
func (l *Ledger) Puts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account.Put
}

// Close adds everything up. The error has what should not have been, up to a number of problems,
// and what is lost.
func (l *Ledger) Close() (Account, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	account, problems := l.account, slices.Clone(l.problems)
	for n := range l.jobs {
		if e := &l.jobs[n]; e.put && !e.acked {
			if account.Lost++; account.Lost <= problemsMax {
				problems = append(problems,
					fmt.Errorf("job %d was put and never delivered and acked; it has %d deliveries", n, len(e.deliveries)))
			}
		}
	}
	if more := account.Problems - len(l.problems); more > 0 {
		problems = append(problems, fmt.Errorf("and %d problems more", more))
	}
	account.Problems += account.Lost
	return account, errors.Join(problems...)
}

// A Span is a time from its beginning until its end.
type Span struct{ From, Until time.Time }

func (s Span) has(t time.Time) bool { return !t.Before(s.From) && t.Before(s.Until) }

// Lateness returns how long after their due times jobs were first delivered, for those that were
// due within a span.
func (l *Ledger) Lateness(within Span) Durations {
	var all Durations
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.jobs {
		if e := &l.jobs[n]; len(e.deliveries) > 0 && within.has(e.due) {
			all = append(all, e.deliveries[0].at.Sub(e.due))
		}
	}
	return all
}

// Unseen returns the number of jobs that were due within a span and whose first known delivery was
// a later attempt, so an earlier grant was not seen.
func (l *Ledger) Unseen(within Span) int {
	n := 0
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.jobs {
		if e := &l.jobs[i]; len(e.deliveries) > 0 && e.deliveries[0].attempt > 1 && within.has(e.due) {
			n++
		}
	}
	return n
}

// PutTimes returns how long puts took that began within a span.
func (l *Ledger) PutTimes(within Span) Durations {
	var all Durations
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.jobs {
		if e := &l.jobs[n]; e.put && within.has(e.invoked) {
			all = append(all, e.took)
		}
	}
	return all
}

// Durations are measured durations, in any order.
type Durations []time.Duration

// At returns the least of the durations that is not exceeded by the given share of them; 0.5 is the
// median, 1 the longest. It is 0 if there are none.
func (d Durations) At(share float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	i := int(float64(len(sorted))*share+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
