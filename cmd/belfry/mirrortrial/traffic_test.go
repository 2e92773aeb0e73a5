package mirrortrial

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belfrydb/belfry/client"
)

const (
	producers = 4
	workers   = 2
	// offerAgain is how long a producer waits when Redis does not answer.
	offerAgain = 20 * time.Millisecond
	takeMax    = 500
	// consumeWait is how long a consumer's Reserve waits.
	consumeWait = time.Second
)

// traffic is what runs until it is stopped.
type traffic struct {
	stop    context.CancelFunc
	running sync.WaitGroup
}

func (w *traffic) end() {
	w.stop()
	w.running.Wait()
}

// begin starts something so many times. It is stopped with the test at the latest.
func (s *stage) begin(times int, run func(context.Context)) *traffic {
	ctx, stop := context.WithCancel(s.t.Context())
	w := &traffic{stop: stop}
	for range times {
		w.running.Go(func() { run(ctx) })
	}
	s.t.Cleanup(w.end)
	return w
}

// produce starts the producers, processes of Redisson that offer to all queues in turn what is due
// after a delay. Each waits as told after each offer.
func (s *stage) produce(delay func() time.Duration, pause time.Duration) *traffic {
	return s.begin(producers, func(ctx context.Context) {
		for n := rand.IntN(len(s.queues)); ctx.Err() == nil; n++ {
			wait := pause
			number, payload := s.ledger.begin()
			if s.queues[n%len(s.queues)].app.Offer(s.t.Context(), payload, time.Now().Add(delay())) == nil {
				s.ledger.offered(number)
			} else {
				wait = offerAgain
			}
			waitFor(ctx, wait)
		}
	})
}

// rest waits, or until ctx ends.
func waitFor(ctx context.Context, d time.Duration) {
	alarm := time.NewTimer(d)
	defer alarm.Stop()
	select {
	case <-alarm.C:
	case <-ctx.Done():
	}
}

// transfer starts the workers, processes of Redisson that put what is due on the ready lists.
func (s *stage) transfer() *traffic {
	return s.begin(workers, func(ctx context.Context) {
		var running sync.WaitGroup
		for _, q := range s.queues {
			running.Go(func() { q.app.Run(ctx) })
		}
		running.Wait()
	})
}

// put starts a producer that puts jobs into Belfry, into all queues in turn.
func (s *stage) put(delay func() time.Duration, pause time.Duration) *traffic {
	return s.begin(1, func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			s.putOne(s.queues[n%len(s.queues)], delay())
			waitFor(ctx, pause)
		}
	})
}

func (s *stage) putOne(q *queue, delay time.Duration) {
	number, payload := s.ledger.begin()
	if _, err := s.sdk.Put(s.t.Context(), q.name, payload, client.In(delay)); err != nil {
		s.t.Errorf("putting: %v", err)
		return
	}
	s.ledger.offered(number)
}

// consume starts a consumer of Belfry for each queue. What it has acked is Belfry's.
func (s *stage) consume() *traffic {
	next := make(chan *queue, len(s.queues))
	for _, q := range s.queues {
		next <- q
	}
	return s.begin(len(s.queues), func(ctx context.Context) {
		for q := <-next; ctx.Err() == nil; {
			jobs, err := s.sdk.Reserve(ctx, client.ReserveOptions{
				Queues: append([]string{q.name}, q.also...), Max: takeMax, Wait: consumeWait,
			})
			if err != nil && ctx.Err() == nil && !errors.Is(err, client.Reason("QUEUE_NOT_FOUND")) {
				s.t.Errorf("reserving: %v", err)
				return
			}
			s.ledger.granted(jobs)
			s.ack(jobs)
		}
	})
}

// ack acks jobs and enters them.
func (s *stage) ack(jobs []*client.Job) {
	if len(jobs) == 0 {
		return
	}
	leases := make([]string, len(jobs))
	for n, job := range jobs {
		leases[n] = job.Lease
	}
	errs, _ := s.sdk.AckBatch(s.t.Context(), leases) // each has its error
	for n, err := range errs {
		switch {
		case err == nil:
			s.ledger.byBelfry(string(jobs[n].Body))
		case !errors.Is(err, client.ErrStaleLease): // then it comes again
			s.t.Errorf("acking: %v", err)
		}
	}
}

// takeReady has the consumers of Redisson empty the ready lists. Nothing else may befall Redis
// meanwhile: what is popped is gone.
func (s *stage) takeReady() {
	s.t.Helper()
	for _, q := range s.queues {
		payloads, err := q.app.TakeAll(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, payload := range payloads {
			s.ledger.byRedis(string(payload))
		}
	}
}
