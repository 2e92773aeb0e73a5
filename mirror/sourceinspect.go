package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A SourceFinding is what a queue of lmstfy and a topic of ouqiang/delay-queue have in common, as Redis has them.
type SourceFinding struct {
	// Delayed jobs wait for their time, Reserved ones are held by consumers, Ready ones wait for a consumer.
	Delayed  int64 `json:"delayed"`
	Reserved int64 `json:"reserved"`
	Ready    int64 `json:"ready"`
	// Ended are names of jobs whose value is gone: they were finished or cancelled, or have expired. At ouqiang/delay-queue only those of the ready list show whose they were.
	Ended int64 `json:"ended"`
	// Unnamed are values that nothing names: the service has lost their jobs, or a server is just moving them.
	Unnamed int64 `json:"unnamed"`
	// Bad cannot be brought over: names that cannot be read, values that are no text, bodies that are too long. FirstBad says why of one.
	Bad      int64  `json:"bad"`
	FirstBad string `json:"firstBad,omitempty"`
	// Earliest and Latest are when the first and the last of Delayed and Reserved is due; zero if there is none.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// HandedOver are jobs that an import has claimed and not put yet, Aside those that it set aside.
	HandedOver int64 `json:"handedOver"`
	Aside      int64 `json:"aside"`
	// Owner is the cluster that the queue is brought to; empty if to none.
	Owner string `json:"owner,omitempty"`
	// Warnings say what an import should know.
	Warnings []string `json:"warnings,omitempty"`
}

// mirrored reads what the mirror has of a source.
func (f *SourceFinding) mirrored(ctx context.Context, r redis.UniversalClient, source string) error {
	handed, aside, owner := r.HLen(ctx, "belfry_handover:"+source), r.HLen(ctx, "belfry_aside:"+source), r.HGet(ctx, "belfry_mirror:"+source, "cluster")
	if err := errors.Join(handed.Err(), aside.Err()); err != nil {
		return err
	}
	f.HandedOver, f.Aside, f.Owner = handed.Val(), aside.Val(), owner.Val()
	if err := owner.Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// bad notes a job that cannot be brought over.
func (f *SourceFinding) bad(why string) {
	if f.Bad++; f.FirstBad == "" {
		f.FirstBad = why
	}
}

// timed counts a job that is due at a time.
func (f *SourceFinding) timed(count *int64, due time.Time) {
	*count++
	if f.Earliest.IsZero() || due.Before(f.Earliest) {
		f.Earliest = due
	}
	if due.After(f.Latest) {
		f.Latest = due
	}
}

// warn adds a warning if there is a reason.
func (f *SourceFinding) warn(when bool, format string, args ...any) {
	if when {
		f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
	}
}

// warnings says what an import should know. Otherwise is what it does with bad jobs if it does not refuse to begin.
func (f *SourceFinding) warnings(otherwise string) {
	f.warn(f.Bad > 0, "%d jobs cannot be brought over: the import refuses to begin, or %s with --set-aside; the first: %s", f.Bad, otherwise, f.FirstBad)
	f.warn(f.Reserved > 0, "%d jobs are held by consumers: the import leaves them until they are let go, or takes them with --stopped", f.Reserved)
	f.warn(f.Unnamed > 0, "%d jobs are named by nothing: the service will not deliver them, unless a server is just moving them; --stopped --unnamed takes them", f.Unnamed)
	f.warn(f.HandedOver > 0, "an import was interrupted: %d jobs are claimed; run it again", f.HandedOver)
}
