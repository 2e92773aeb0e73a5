package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

const (
	// The choir: jobs whose only purpose is to ring, so that lateness is more than an anecdote.
	choirJobs    = 300
	choirSingers = 4
	choirFirst   = 500 * time.Millisecond
	choirLast    = 20 * time.Second
	pollWait     = 10 * time.Second
)

// stage carries the story out against a server and writes down what happens.
type stage struct {
	board  *board
	queues belfryv1connect.QueueServiceClient
	seed   uint64

	redriven atomic.Bool
	turn     atomic.Uint32
}

// webhookIsBack tells whether what the webhook calls works again.
func (s *stage) webhookIsBack() bool { return s.redriven.Load() }

// play puts the jobs, consumes them and does what the acts say. It returns when every job has come to its end.
func (s *stage) play(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for _, p := range parts() {
		s.board.cast(p.id, p.about)
		if err := s.put(ctx, p); err != nil {
			return err
		}
	}
	if err := s.putChoir(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	run := func(f func(context.Context) error) {
		group.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				stop(err)
			}
		})
	}
	run(s.act)
	for range choirSingers {
		run(s.sing)
	}
	run(func(ctx context.Context) error { return s.consume(ctx, run) })
	run(func(ctx context.Context) error {
		err := s.untilTheEnd(ctx)
		stop(errEnd)
		return err
	})
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnd) {
		return err
	}
	return nil
}

// errEnd ends a story that was played to its end.
var errEnd = errors.New("the story is over")

// untilTheEnd waits until every job has come to its end.
func (s *stage) untilTheEnd(ctx context.Context) error {
	ticker := time.NewTicker(framePeriod)
	defer ticker.Stop()
	for s.board.check() != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	return nil
}

// put puts a job of the story.
func (s *stage) put(ctx context.Context, p part) error {
	response, err := s.queues.Put(ctx, p.request())
	if err != nil {
		return fmt.Errorf("putting %s: %w", p.id, err)
	}
	s.board.note(event{at: s.now(), job: p.id, is: wasPut, due: s.board.since(response.DueAt.AsTime()), text: p.about})
	return nil
}

func (s *stage) now() time.Duration { return s.board.since(time.Now()) }

// putAgain repeats a put; the server answers as it did the first time.
func (s *stage) putAgain(ctx context.Context, id string) error {
	p, err := partOf(id)
	if err != nil {
		return err
	}
	response, err := s.queues.Put(ctx, p.request())
	if err != nil {
		return fmt.Errorf("putting %s again: %w", id, err)
	}
	if response.Created {
		return fmt.Errorf("%s was put twice and is there twice", id)
	}
	s.board.note(event{at: s.now(), job: id, is: wasPutAgain, text: "same id, same answer"})
	return nil
}

// putChoir puts the jobs of the choir in one call.
func (s *stage) putChoir(ctx context.Context) error {
	random := rand.New(rand.NewPCG(s.seed, 0)) //nolint:gosec // no secret
	batch := &belfryv1.PutBatchRequest{}
	for range choirJobs {
		delay := choirFirst + time.Duration(random.Int64N(int64(choirLast-choirFirst)))
		batch.Jobs = append(batch.Jobs, &belfryv1.PutRequest{
			Queue: choirQueue, When: &belfryv1.PutRequest_Delay{Delay: durationpb.New(delay)},
		})
	}
	response, err := s.queues.PutBatch(ctx, batch)
	if err != nil {
		return fmt.Errorf("putting the choir: %w", err)
	}
	for _, result := range response.Results {
		if failure := result.GetError(); failure != nil {
			return fmt.Errorf("putting the choir: %s", failure.Message)
		}
	}
	s.board.gather(choirJobs)
	return nil
}

// sing reserves jobs of the choir one at a time, notes how late they are, and acks them.
func (s *stage) sing(ctx context.Context) error {
	for ctx.Err() == nil {
		response, err := s.queues.Reserve(ctx, &belfryv1.ReserveRequest{Queues: []string{choirQueue}, Wait: durationpb.New(pollWait)})
		if err != nil {
			return fmt.Errorf("reserving from the choir: %w", err)
		}
		now := time.Now()
		for _, job := range response.Jobs {
			if _, err := s.queues.Ack(ctx, &belfryv1.AckRequest{Lease: job.Lease}); err != nil {
				return fmt.Errorf("acking a job of the choir: %w", err)
			}
			s.board.ring(s.board.since(now), now.Sub(job.DueAt.AsTime()))
		}
	}
	return nil
}

// act does what the acts say, at their times.
func (s *stage) act(ctx context.Context) error {
	for _, a := range acts() {
		if !pause(ctx, a.at-s.now()) {
			return nil
		}
		if err := a.do(s, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) reschedule(ctx context.Context, id string, delay time.Duration, why string) error {
	response, err := s.queues.Reschedule(ctx, &belfryv1.RescheduleRequest{
		Queue: storyQueue, Id: id, When: &belfryv1.RescheduleRequest_Delay{Delay: durationpb.New(delay)},
	})
	if err != nil {
		return fmt.Errorf("rescheduling %s: %w", id, err)
	}
	s.board.note(event{at: s.now(), job: id, is: wasRescheduled, due: s.board.since(response.DueAt.AsTime()), text: why})
	return nil
}

func (s *stage) cancel(ctx context.Context, id, why string) error {
	if _, err := s.queues.Cancel(ctx, &belfryv1.CancelRequest{Queue: storyQueue, Id: id}); err != nil {
		return fmt.Errorf("cancelling %s: %w", id, err)
	}
	s.board.note(event{at: s.now(), job: id, is: wasCancelled, text: why})
	return nil
}

func (s *stage) redrive(ctx context.Context, id string) error {
	s.redriven.Store(true)
	at := s.now()
	// Noted before it is done: the job rings before the answer is here.
	s.board.note(event{at: at, job: id, is: wasRedriven, due: at, text: "the other side works again"})
	response, err := s.queues.Redrive(ctx, &belfryv1.RedriveRequest{Queue: storyQueue, Ids: []string{id}})
	if err != nil {
		return fmt.Errorf("redriving %s: %w", id, err)
	}
	if response.Moved != 1 {
		return fmt.Errorf("redriving %s moved %d jobs", id, response.Moved)
	}
	return nil
}

// pause waits; it reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
