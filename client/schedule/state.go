package schedule

import (
	"time"

	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Schedule is a schedule as the servers have it.
type Schedule struct {
	// Queue and Name say which it is.
	Queue, Name string
	// Definition is its content. All choices are set, and Window is.
	Definition
	// Version grows with each other content. No schedule that had this queue and name before had it,
	// unless a restore from a backup, or a recovery that loses changes, made the servers forget it.
	Version uint64
	// CreatedAt is when it was created, ChangedAt when it was last given another content.
	CreatedAt, ChangedAt time.Time
	// Next is the nominal time of the next firing; zero if there is none. After a put through a node
	// whose clock is over a second ahead it is the time from which on the leader is about to find it,
	// unless a firing is pending: then its time.
	Next time.Time
	// NextLocal is Next as a clock in the time zone shows it, with its offset and abbreviation. Empty if
	// the server that answered does not know the zone.
	NextLocal string
	// Paused: it does not fire until it is resumed. Note says why it is paused, or was resumed.
	Paused bool
	Note   string
	// Counts are the totals since it was created.
	Counts Counts
	// Recent are its last firings, at most 10, oldest first.
	Recent []Firing
	// ZoneData is the version of the time-zone data that Next was found with.
	ZoneData string
}

// Counts are the totals of a schedule since it was created.
type Counts struct {
	// Fired counts jobs put in their time or later.
	Fired uint64
	// Missed counts firings without a job because they were too late, or a later one was put in their
	// place.
	Missed uint64
	// Skipped counts firings without a job because an earlier one had not ended.
	Skipped uint64
	// Backfilled counts jobs put by triggers and backfills.
	Backfilled uint64
}

// A Firing is one firing of a schedule, or several that were missed in a row.
type Firing struct {
	// Result is what came of it.
	Result FiringResult
	// Nominal is its nominal time; of several that of the last.
	Nominal time.Time
	// At is when it was dealt with.
	At time.Time
	// Count is how many it stands for: above 1 only for those missed in a row.
	Count uint64
}

// A FiringResult says what came of a firing. The zero value means that the server did not say.
type FiringResult int32

// What may come of a firing.
const (
	// Fired: its job was put.
	Fired FiringResult = iota + 1
	// Missed: it was too late, or a later one was put in its place.
	Missed
	// Skipped: an earlier job had not ended, or a job of its id was there.
	Skipped
	// Backfilled: its job was put by a trigger or a backfill.
	Backfilled
)

// String returns the word of the API, such as "FIRED", or the number of a result of a later version.
func (r FiringResult) String() string { return word(belfryv1.FiringResult(r), "FIRING_RESULT_") }

// scheduleOf reads a schedule off the wire.
func scheduleOf(s *belfryv1.Schedule) Schedule {
	counts := s.GetCounts()
	return Schedule{
		Queue: s.GetQueue(), Name: s.GetName(), Version: s.GetVersion(), Definition: Definition{
			Spec: specOf(s.GetSpec()), Policy: policyOf(s.GetPolicy()), Job: jobOf(s.GetJob()),
		},
		CreatedAt: values.TimeOf(s.GetCreatedAt()), ChangedAt: values.TimeOf(s.GetChangedAt()),
		Next: values.TimeOf(s.GetNext()), NextLocal: s.GetNextLocal(),
		Paused: s.GetPaused(), Note: s.GetNote(), ZoneData: s.GetZoneData(),
		Counts: Counts{
			Fired: counts.GetFired(), Missed: counts.GetMissed(), Skipped: counts.GetSkipped(),
			Backfilled: counts.GetBackfilled(),
		},
		Recent: values.Each(s.GetRecent(), firingOf),
	}
}

func firingOf(f *belfryv1.Firing) Firing {
	return Firing{
		Result: FiringResult(f.GetResult()), Nominal: values.TimeOf(f.GetNominal()), At: values.TimeOf(f.GetAt()),
		Count: f.GetCount(),
	}
}
