package mirror

import (
	"context"
	"fmt"
	"github.com/belfrydb/belfry/mirror/pair"
	"time"
)

// A Target is the queue of Belfry that an import would bring entries to.
type Target struct {
	Queue string `json:"queue"`
	// Exists says whether it is there; an import makes it. What follows is zero if it is not.
	Exists bool `json:"exists"`
	Paused bool `json:"paused"`
	// Delayed, Ready, Reserved and Dead are the jobs that it has.
	Delayed  int `json:"delayed"`
	Ready    int `json:"ready"`
	Reserved int `json:"reserved"`
	Dead     int `json:"dead"`
	// DedupForever says whether it remembers ids without end, which an import has it do, until
	// [Finalize].
	DedupForever bool `json:"dedupForever"`
	// Epoch counts how often the entries were imported, one more after each export. TakenBack says
	// that the last export took them back, and that no later decision imports them again.
	Epoch     int  `json:"epoch"`
	TakenBack bool `json:"takenBack"`
	// HeldUntil is the end of the lease of a process that mirrors the queue now; zero if none does.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
}

// target looks at the queue of Belfry. It changes nothing.
func (l *link) target(ctx context.Context) (*Target, error) {
	t := &Target{Queue: l.Queue}
	queue, err := l.Belfry.Admin().Queue(ctx, l.Queue)
	if err != nil && !pair.IsGone(err) {
		return nil, fmt.Errorf("reading the queue: %w", err)
	}
	t.Exists, t.Paused, t.DedupForever = err == nil, isSet(queue.Settings.Paused), isSet(queue.Settings.DedupForever)
	t.Delayed, t.Ready, t.Reserved, t.Dead = queue.Delayed, queue.Ready, queue.Reserved, queue.Dead
	if t.Epoch, err = l.CurrentEpoch(ctx); err != nil {
		return nil, err
	}
	if t.TakenBack, err = l.TakenBack(ctx, t.Epoch); err != nil {
		return nil, err
	}
	if _, t.HeldUntil, err = l.Holder(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// aim adds to a finding what it means that this queue is the target.
func (f *Finding) aim(t *Target) {
	f.Target = t
	add := func(when bool, format string, args ...any) {
		if when {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
		}
	}
	add(t.Paused, "the queue %s of Belfry is paused: nothing that is brought over is handed out until 'belfry queue "+
		"resume %[1]s'", t.Queue)
	add(t.TakenBack, "the jobs were taken back to Redisson: an import brings them over again, with --follow only if "+
		"--again is given")
	add(!t.HeldUntil.IsZero(), "another process mirrors this queue: an import waits until it ends")
}

// would says what an import would do.
func (f *Finding) would() (steps []string) {
	add := func(when bool, format string, args ...any) {
		if when {
			steps = append(steps, fmt.Sprintf(format, args...))
		}
	}
	fit := max(0, f.Timer+f.HandedOver-f.Bad)
	add(f.Bad == 0, "bring over %d entries", fit)
	add(f.Bad > 0, "refuse to begin; with --set-aside bring over %d entries and set %d aside", fit, f.Bad)
	add(f.Orphans > 0, "set %d orphans aside", f.Orphans)
	add(f.Ready > 0, "leave the %d on the ready list to Redisson's consumers; with --ready take them", f.Ready)
	return steps
}
