package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/client"
)

// storyLength is how much time the picture shows; the last job rings shortly before.
const storyLength = 18 * time.Second

// The queues of the demo.
const (
	storyQueue = "demo/story"
	choirQueue = "demo/choir"
)

// part is a job of the story: how it is put, and what its consumer does with it.
type part struct {
	id, about string
	delay     time.Duration
	ttr       time.Duration
	attempts  uint32
	retry     []time.Duration
	// play is what the holder does at each attempt.
	play func(*holder) error
}

// act is something that happens to a job from outside, at its time.
type act struct {
	at time.Duration
	do func(*stage, context.Context) error
}

// parts returns the jobs of the story in the order of their lanes.
func parts() []part {
	const second = time.Second
	return []part{
		{id: "kettle", about: "soon", delay: 3 * second, play: func(h *holder) error {
			return h.work(700*time.Millisecond, h.ack)
		}},
		{
			id: "payment", about: "will fail twice", delay: 2 * second, retry: []time.Duration{2 * second, 4 * second},
			play: func(h *holder) error {
				if h.job.Attempt <= 2 {
					return h.work(600*time.Millisecond, func() error { return h.nack("declined") })
				}
				return h.work(600*time.Millisecond, h.ack)
			},
		},
		{
			id: "webhook", about: "will die", delay: second, attempts: 3, retry: []time.Duration{second},
			play: func(h *holder) error {
				if h.stage.webhookIsBack() {
					return h.work(500*time.Millisecond, h.ack)
				}
				return h.work(500*time.Millisecond, func() error { return h.nack("HTTP 503") })
			},
		},
		{id: "order-42", about: "will be paid", delay: 14 * second, play: func(h *holder) error { return h.ack() }},
		{id: "parcel", about: "comes sooner", delay: 19 * second, play: func(h *holder) error {
			return h.work(600*time.Millisecond, h.ack)
		}},
		{id: "report", about: "takes long", delay: 4 * second, ttr: 4 * second, play: func(h *holder) error {
			for range 3 {
				if err := h.work(1200*time.Millisecond, h.extend); err != nil {
					return err
				}
			}
			return h.work(1200*time.Millisecond, h.ack)
		}},
		{id: "backup", about: "holder crashes", delay: 6 * second, ttr: 3 * second, play: func(h *holder) error {
			if h.job.Attempt == 1 {
				return h.vanish()
			}
			return h.work(700*time.Millisecond, h.ack)
		}},
		{id: "invoice-7", about: "put twice", delay: 12 * second, play: func(h *holder) error {
			return h.work(500*time.Millisecond, h.ack)
		}},
		{id: "birthday", about: "later", delay: 14 * second, play: func(h *holder) error {
			return h.work(600*time.Millisecond, h.ack)
		}},
		{id: "goodnight", about: "the last", delay: 16 * second, play: func(h *holder) error {
			return h.work(700*time.Millisecond, h.ack)
		}},
	}
}

// acts returns what happens from outside, in order of time.
func acts() []act {
	return []act{
		{5 * time.Second, func(s *stage, ctx context.Context) error { return s.putAgain(ctx, "invoice-7") }},
		{7 * time.Second, func(s *stage, ctx context.Context) error {
			return s.reschedule(ctx, "parcel", 4*time.Second, "the customer is at home earlier")
		}},
		{9 * time.Second, func(s *stage, ctx context.Context) error { return s.cancel(ctx, "order-42", "it was paid") }},
		{10 * time.Second, (*stage).stopLeader},
		{13 * time.Second, func(s *stage, ctx context.Context) error { return s.redrive(ctx, "webhook") }},
		{14 * time.Second, (*stage).startAgain},
	}
}

// options say how the part is put. The same part gives the same content each time.
func (p part) options() []client.PutOption {
	options := []client.PutOption{client.ID(p.id), client.In(p.delay)}
	if p.ttr > 0 {
		options = append(options, client.TTR(p.ttr))
	}
	if p.attempts > 0 {
		options = append(options, client.MaxAttempts(p.attempts))
	}
	if len(p.retry) > 0 {
		options = append(options, client.RetryDelays(p.retry...))
	}
	return options
}

// partOf returns the part of a job.
func partOf(id string) (part, error) {
	for _, p := range parts() {
		if p.id == id {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("job %q has no part in the story", id)
}
