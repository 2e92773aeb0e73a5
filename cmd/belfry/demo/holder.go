package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
)

// consumers are the people who take the jobs of the story, in turn.
func consumers() []string { return []string{"ann", "bob", "cleo"} }

// consume takes jobs of the story and lets each be played beside the others.
func (s *stage) consume(ctx context.Context, run func(func(context.Context) error)) error {
	for ctx.Err() == nil {
		jobs, err := s.queues.Reserve(ctx, client.ReserveOptions{Queues: []string{storyQueue}, Max: 16, Wait: pollWait})
		if err != nil {
			return fmt.Errorf("reserving from the story: %w", err)
		}
		now := time.Now()
		for _, job := range jobs {
			p, err := partOf(job.ID)
			if err != nil {
				return err
			}
			names := consumers()
			h := &holder{stage: s, job: job, name: names[int(s.turn.Add(1)-1)%len(names)]}
			late := now.Sub(job.DueAt)
			text := ""
			if h.lapsed() {
				s.taken()
				// A job that comes back from a lapsed lease is as late as its holder was long silent; that is
				// no one's lateness.
				late, text = 0, "the old lease is worth nothing now"
			}
			s.board.note(event{
				at: s.board.since(now), job: job.ID, is: rang, late: late, by: h.name, attempt: job.Attempt, fence: job.Fence,
				text: text,
			})
			run(func(ctx context.Context) error {
				h.ctx = ctx
				return p.play(h)
			})
		}
	}
	return nil
}

// holder is a consumer with a job under a lease.
type holder struct {
	stage *stage
	job   *client.Job
	name  string
	ctx   context.Context //nolint:containedctx // a holder lives as long as its job is held
}

// lapsed reports whether the job comes back because a consumer crashed.
func (h *holder) lapsed() bool { return h.job.ID == "backup" && h.job.Attempt > 1 }

// work takes its time, and then does what ends it.
func (h *holder) work(d time.Duration, end func() error) error {
	if !pause(h.ctx, d) {
		return nil
	}
	return end()
}

func (h *holder) note(is kind, due time.Duration, text string) {
	h.stage.board.note(event{
		at: h.stage.now(), job: h.job.ID, is: is, due: due, by: h.name, attempt: h.job.Attempt, fence: h.job.Fence,
		text: text,
	})
}

// ack ends the job as done.
func (h *holder) ack() error {
	if err := h.stage.queues.Ack(h.ctx, h.job.Lease); err != nil {
		return fmt.Errorf("acking %s: %w", h.job.ID, err)
	}
	h.note(wasDone, 0, "")
	return nil
}

// nack says that the attempt failed.
func (h *holder) nack(why string) error {
	state, due, err := h.stage.queues.Nack(h.ctx, h.job.Lease, errors.New(why))
	if err != nil {
		return fmt.Errorf("nacking %s: %w", h.job.ID, err)
	}
	if state == "DEAD" {
		h.note(hasDied, 0, why)
		return nil
	}
	h.note(hasFailed, h.stage.board.since(due), why)
	return nil
}

// extend holds the job for longer.
func (h *holder) extend() error {
	until, err := h.stage.queues.Extend(h.ctx, h.job.Lease, 0)
	if err != nil {
		return fmt.Errorf("extending %s: %w", h.job.ID, err)
	}
	h.note(wasExtended, 0, fmt.Sprintf("held until %.1f s", h.stage.board.since(until).Seconds()))
	return nil
}

// vanish does nothing until the lease is over and another has the job, and then tries to ack with
// it all the same. A change of leader may make a lease longer than the holder knows.
func (h *holder) vanish() error {
	if !pause(h.ctx, time.Until(h.job.LeaseUntil)) {
		return nil
	}
	h.note(hasLapsed, 0, "its lease lapsed")
	select {
	case <-h.stage.takenOver:
	case <-h.ctx.Done():
		return nil
	}
	if !pause(h.ctx, 500*time.Millisecond) {
		return nil
	}
	err := h.stage.queues.Ack(h.ctx, h.job.Lease)
	if err == nil {
		return fmt.Errorf("acking %s with a lapsed lease: want it refused, and it was taken", h.job.ID)
	}
	if !errors.Is(err, client.ErrStaleLease) {
		return fmt.Errorf("acking %s with a lapsed lease: want it refused as stale, got %w", h.job.ID, err)
	}
	h.note(wasRefused, 0, "STALE_LEASE")
	return nil
}
