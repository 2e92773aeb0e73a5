package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/client"
)

const (
	// The choir: jobs whose only purpose is to ring, so that lateness is more than an anecdote.
	choirJobs    = 300
	choirSingers = 4
	choirFirst   = 500 * time.Millisecond
	choirLast    = 16 * time.Second
	pollWait     = 10 * time.Second
)

// queues are the verbs that the story needs. *client.Client implements it.
type queues interface {
	Put(ctx context.Context, queue string, body []byte, opts ...client.PutOption) (client.PutResult, error)
	PutBatch(ctx context.Context, puts []client.Put) ([]client.PutResult, error)
	Reserve(ctx context.Context, o client.ReserveOptions) ([]*client.Job, error)
	Ack(ctx context.Context, lease string) error
	Nack(ctx context.Context, lease string, cause error) (client.State, time.Time, error)
	Extend(ctx context.Context, lease string, ttr time.Duration) (time.Time, error)
	Cancel(ctx context.Context, queue, id string, options ...client.JobOption) (client.State, error)
	Reschedule(ctx context.Context, queue, id string, when client.PutOption,
		options ...client.JobOption) (time.Time, error)
	Redrive(ctx context.Context, queue string, ids ...string) (int, error)
}

// stage carries the story out against a cluster and writes down what happens.
type stage struct {
	board  *board
	queues queues
	nodes  Nodes // nil if no node is stopped
	seed   uint64

	redriven atomic.Bool
	turn     atomic.Uint32
	// takenOver is closed by taken, when the job whose holder crashed is handed out again.
	takenOver chan struct{}
	taken     func()
}

// webhookIsBack tells whether what the webhook calls works again.
func (s *stage) webhookIsBack() bool { return s.redriven.Load() }

// play puts the jobs, consumes them and does what the acts say. It returns when every job has come
// to its end.
func (s *stage) play(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.takenOver = make(chan struct{})
	s.taken = sync.OnceFunc(func() { close(s.takenOver) })
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
	result, err := s.queues.Put(ctx, storyQueue, []byte(p.about), p.options()...)
	if err != nil {
		return fmt.Errorf("putting %s: %w", p.id, err)
	}
	s.board.note(event{at: s.now(), job: p.id, is: wasPut, due: s.board.since(result.DueAt), text: p.about})
	return nil
}

func (s *stage) now() time.Duration { return s.board.since(time.Now()) }

// putAgain repeats a put; the server answers as it did the first time.
func (s *stage) putAgain(ctx context.Context, id string) error {
	p, err := partOf(id)
	if err != nil {
		return err
	}
	result, err := s.queues.Put(ctx, storyQueue, []byte(p.about), p.options()...)
	if err != nil {
		return fmt.Errorf("putting %s again: %w", id, err)
	}
	if result.Created {
		return fmt.Errorf("%s was put twice and is there twice", id)
	}
	s.board.note(event{at: s.now(), job: id, is: wasPutAgain, text: "same id, same answer"})
	return nil
}

// putChoir puts the jobs of the choir in one call.
func (s *stage) putChoir(ctx context.Context) error {
	random := rand.New(rand.NewPCG(s.seed, 0)) //nolint:gosec // no secret
	var puts []client.Put
	for range choirJobs {
		delay := choirFirst + time.Duration(random.Int64N(int64(choirLast-choirFirst)))
		puts = append(puts, client.Put{Queue: choirQueue, Options: []client.PutOption{client.In(delay)}})
	}
	results, err := s.queues.PutBatch(ctx, puts)
	if err != nil {
		return fmt.Errorf("putting the choir: %w", err)
	}
	for _, result := range results {
		if result.Err != nil {
			return fmt.Errorf("putting the choir: %w", result.Err)
		}
	}
	s.board.gather(choirJobs)
	return nil
}

// sing reserves jobs of the choir one at a time, notes how late they are, and acks them.
func (s *stage) sing(ctx context.Context) error {
	for ctx.Err() == nil {
		jobs, err := s.queues.Reserve(ctx, client.ReserveOptions{Queues: []string{choirQueue}, Wait: pollWait})
		if err != nil {
			return fmt.Errorf("reserving from the choir: %w", err)
		}
		now := time.Now()
		for _, job := range jobs {
			if err := s.queues.Ack(ctx, job.Lease); err != nil {
				return fmt.Errorf("acking a job of the choir: %w", err)
			}
			s.board.ring(s.board.since(now), now.Sub(job.DueAt))
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
	due, err := s.queues.Reschedule(ctx, storyQueue, id, client.In(delay))
	if err != nil {
		return fmt.Errorf("rescheduling %s: %w", id, err)
	}
	s.board.note(event{at: s.now(), job: id, is: wasRescheduled, due: s.board.since(due), text: why})
	return nil
}

func (s *stage) cancel(ctx context.Context, id, why string) error {
	if _, err := s.queues.Cancel(ctx, storyQueue, id); err != nil {
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
	moved, err := s.queues.Redrive(ctx, storyQueue, id)
	if err != nil {
		return fmt.Errorf("redriving %s: %w", id, err)
	}
	if moved != 1 {
		return fmt.Errorf("redriving %s moved %d jobs", id, moved)
	}
	return nil
}

// stopLeader stops the node that leads the story, and startAgain starts it.
func (s *stage) stopLeader(ctx context.Context) error {
	if s.nodes == nil {
		return nil
	}
	name, err := s.nodes.StopLeader(ctx, storyQueue)
	if err != nil {
		return fmt.Errorf("stopping a node: %w", err)
	}
	s.board.turn(turn{at: s.now(), node: name, stopped: true})
	return nil
}

func (s *stage) startAgain(ctx context.Context) error {
	if s.nodes == nil {
		return nil
	}
	name, err := s.nodes.StartAgain(ctx)
	if err != nil {
		return fmt.Errorf("starting a node again: %w", err)
	}
	s.board.turn(turn{at: s.now(), node: name})
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
