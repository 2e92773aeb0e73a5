package oneway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Finding is what a queue of lmstfy and a topic of ouqiang/delay-queue have in common, as Redis
// has them.
type Finding struct {
	// Delayed jobs wait for their time, Reserved ones are held by consumers, Ready ones wait for a
	// consumer.
	Delayed  int64 `json:"delayed"`
	Reserved int64 `json:"reserved"`
	Ready    int64 `json:"ready"`
	// Ended are names of jobs whose value is gone: they were finished or cancelled, or have
	// expired. At ouqiang/delay-queue only those of the ready list show whose they were.
	Ended int64 `json:"ended"`
	// Unnamed are values that nothing names: the service has lost their jobs, or a server is just
	// moving them.
	Unnamed int64 `json:"unnamed"`
	// Bad cannot be brought over: names that cannot be read, values that are no text, bodies that
	// are too long. FirstBad says why of one.
	Bad      int64  `json:"bad"`
	FirstBad string `json:"firstBad,omitempty"`
	// Earliest and Latest are when the first and the last of Delayed and Reserved is due; zero if
	// there is none.
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

// ReadMirrored fills in what the mirror has of a source: HandedOver, Aside and Owner.
func (f *Finding) ReadMirrored(ctx context.Context, r redis.UniversalClient, source string) error {
	handed, aside, owner := r.HLen(ctx, HandoverKey(source)), r.HLen(ctx, AsideKey(source)),
		r.HGet(ctx, "belfry_mirror:"+source, "cluster")
	if err := errors.Join(handed.Err(), aside.Err()); err != nil {
		return err
	}
	f.HandedOver, f.Aside, f.Owner = handed.Val(), aside.Val(), owner.Val()
	if err := owner.Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// AddBad counts a job that cannot be brought over, and keeps the first reason.
func (f *Finding) AddBad(why string) {
	if f.Bad++; f.FirstBad == "" {
		f.FirstBad = why
	}
}

// AddTimed adds a job to one of the counts of f, and its due time to Earliest and Latest.
func (f *Finding) AddTimed(count *int64, due time.Time) {
	*count++
	if f.Earliest.IsZero() || due.Before(f.Earliest) {
		f.Earliest = due
	}
	if due.After(f.Latest) {
		f.Latest = due
	}
}

// Warn adds a warning if count is above 0. The format begins with the count; args follow it.
func (f *Finding) Warn(count int64, format string, args ...any) {
	if count > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf(format, append([]any{count}, args...)...))
	}
}

// WarnOfAll adds the warnings that all services share. Otherwise is a verb that says what
// --set-aside does with bad jobs, such as "sets them aside".
func (f *Finding) WarnOfAll(otherwise string) {
	f.Warn(f.Bad, "%d jobs cannot be brought over: the import refuses to begin, or %s with --set-aside; the first: "+
		"%s", otherwise, f.FirstBad)
	f.Warn(f.Reserved, "%d jobs are held by consumers: the import leaves them until they are let go, or takes them "+
		"with --stopped")
	f.Warn(f.Unnamed, "%d jobs are named by nothing: the service will not deliver them, unless a server is just "+
		"moving them; --stopped --unnamed takes them")
	f.Warn(f.HandedOver, "an import was interrupted: %d jobs are claimed; run it again")
}
