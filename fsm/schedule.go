package fsm

import (
	"strings"
	"time"
)

// ScheduleSpec says when a schedule fires. What it means is the matter of package cron: a machine
// stores it and compares it, and never reads a calendar.
type ScheduleSpec struct {
	// Cron is an expression, or empty; then the schedule fires Every so often, from the epoch and Phase
	// on.
	Cron         string
	Every, Phase time.Duration
	// TimeZone is the IANA name for Cron; empty means UTC.
	TimeZone string
	// DST is a cron.DST.
	DST uint8
	// Start and End bound the firings: start <= nominal <= end; 0 means no bound.
	Start, End Time
	// Jitter bounds how long after its nominal time a firing is due.
	Jitter time.Duration
	// Exclude are expressions of times without a firing.
	Exclude []string
}

// CatchUp says what becomes of firings whose time passed while none could happen.
type CatchUp uint8

// The choices. Firings that are not put count as missed.
const (
	// CatchUpLatest puts the latest one.
	CatchUpLatest CatchUp = 0
	// CatchUpAll puts all, in order.
	CatchUpAll CatchUp = 1
	// CatchUpNone puts the latest one only if it is at most CatchUpSlack late.
	CatchUpNone CatchUp = 2
)

// CatchUpSlack is how late a firing may be with CatchUpNone.
const CatchUpSlack = time.Minute

// Overlap says what becomes of a firing while an earlier job of the schedule has not ended. A DEAD
// job has ended.
type Overlap uint8

// The choices. Firings that are not put count as skipped.
const (
	OverlapAllow Overlap = 0
	// OverlapSkip puts no job while one is DELAYED, READY or RESERVED.
	OverlapSkip Overlap = 1
	// OverlapOneWaiting puts no job while one is DELAYED or READY.
	OverlapOneWaiting Overlap = 2
)

// DefaultScheduleWindow is the window of a schedule that names none.
const DefaultScheduleWindow = 24 * time.Hour

// SchedulePolicy says what becomes of firings that cannot happen as planned.
type SchedulePolicy struct {
	CatchUp CatchUp
	// Window is how late a firing may be put; one that is later is missed. 0 means
	// DefaultScheduleWindow.
	Window  time.Duration
	Overlap Overlap
	// MaxFires ends the schedule after so many jobs of its own time; 0 means no limit.
	MaxFires uint64
	// PauseOnDead pauses the schedule when one of its jobs becomes DEAD.
	PauseOnDead bool
}

// Schedule is what a shard keeps of a schedule.
type Schedule struct {
	Queue, Name string
	// Serial identifies the schedule in its shard. Version is FirstVersion of it at first, and grows by
	// one with each other content. So no name of a queue has a version a second time.
	Serial, Version uint64
	// RuleVersion is the version since which it has had its rule: Spec, and the time-zone data that it
	// was put with.
	RuleVersion uint64
	Spec        ScheduleSpec
	Policy      SchedulePolicy
	// Job has the options, headers, body and key of the jobs.
	Job Put
	// Created and Changed are when it was first put and last given another content.
	Created, Changed Time
	// Next is the nominal time of the next firing, 0 if there is none. With Replan it is not one of
	// the Spec: the leader finds the first one from it on.
	Next   Time
	Replan bool
	// Pending says that Next had come when the rule was changed: it is a time of an earlier rule and
	// fires nevertheless. Then is the first nominal time of the rule, 0 if there is none or without
	// Pending. With Pending, Replan is about Then.
	Pending bool
	Then    Time
	// ZoneData is the version of the time-zone data that Next was found with; with Pending, Then was.
	ZoneData string
	// Paused keeps it from firing; Note says why.
	Paused bool
	Note   string
	// Last is the latest nominal time that has fired or was passed over. None before it fires again.
	Last   Time
	Counts ScheduleCounts
	// Jobs are serials of the last jobs that had not ended at the last firing, at most
	// ScheduleJobsKept.
	Jobs []uint64
	// Recent are the last firings, oldest first, at most FiringsKept.
	Recent []Firing
}

// serialBits is how many bits of a version have a serial. A partition is above them.
const serialBits = 48

// FirstVersion returns the version of a schedule when it is created, with the next serial of its shard.
// A name that is in another partition by now, because its queue was made again, may be in another shard,
// with serials of its own: the versions of two partitions differ.
func FirstVersion(partition uint32, serial uint64) uint64 {
	return uint64(partition)<<serialBits | serial
}

// VersionSerial returns the serial that a version is made of. The shard gives out none up to it.
func VersionSerial(version uint64) uint64 { return version & (1<<serialBits - 1) }

// ScheduleCounts are the totals of a schedule since it was created.
type ScheduleCounts struct{ Fired, Missed, Skipped, Backfilled uint64 }

// The bounds of what a schedule remembers.
const (
	ScheduleJobsKept = 8
	FiringsKept      = 10
	// ScheduleNoteBytes is the most of a note, RunMax the most jobs of a RunSchedule.
	ScheduleNoteBytes = 256
	RunMax            = 1000
	// FiringsBytesMax is about the most bytes that the jobs of one RunSchedule, or of the schedules of
	// one PauseSchedules or of the Fires of one request, may have: each copies the body of its schedule.
	FiringsBytesMax = 4 << 20
)

// RunJobs returns how many jobs of a content one RunSchedule puts at most.
func RunJobs(job *Put) uint64 {
	return max(1, min(RunMax, FiringsBytesMax/max(1, PutBytes(job))))
}

// FiringResult says what came of a firing.
type FiringResult uint8

// The results.
const (
	Fired      FiringResult = 1
	Missed     FiringResult = 2
	Skipped    FiringResult = 3
	Backfilled FiringResult = 4
)

// Firing is one firing of a schedule, or several that were missed in a row.
type Firing struct {
	Result FiringResult
	// Nominal is the time that it was planned for; of missed ones that of the last.
	Nominal Time
	// At is when the shard dealt with it.
	At Time
	// Count is the number of missed ones, else 1.
	Count uint64
}

// PutSchedule creates a schedule, or gives it another content. The same content changes nothing. A
// firing that has come, by the shard's clock or by NextAfter, and was not dealt with stays pending, and so
// do all while the rule is the same.
// Results: Created, Replaced, Serial, Version, Due (Next of the schedule). Codes: QueueChanged, Quota,
// VersionChanged; QueueFull if the schedule would grow beyond the bytes of its queue (ScheduleBytes).
type PutSchedule struct {
	Queue                 string
	Partition, Partitions uint32
	Name                  string
	Spec                  ScheduleSpec
	Policy                SchedulePolicy
	// Job is as in Schedule.
	Job Put
	// IfVersion, if not 0, must be the present version.
	IfVersion uint64
	// Next is the first nominal time of the Spec after NextAfter, 0 for none: NextAfter is the present by
	// the clock of the caller. If that is more than CallerAheadMax ahead of the shard's, the leader finds
	// another Next. ZoneData is the version of the time-zone data that Next was found with.
	Next, NextAfter Time
	ZoneData        string
}

// CallerAheadMax is how far ahead of the shard's clock a right clock of a caller can be: twice the
// bound of clock.DefaultBound. No rule has two firings within less.
const CallerAheadMax = time.Second

// DeleteSchedule removes a schedule. Result: Count, the jobs cancelled. Codes: QueueNotFound,
// ScheduleNotFound, VersionChanged.
type DeleteSchedule struct {
	Queue, Name string
	// CancelWaiting ends its last jobs that are DELAYED or READY, as many as it remembers.
	CancelWaiting bool
	IfVersion     uint64
}

// PauseSchedules pauses or resumes schedules of a queue. Names that it does not know are passed over. It
// changes no more once those changed have FiringsBytesMax. Results: Count, those changed; More, if some are
// left. Code: QueueNotFound.
type PauseSchedules struct {
	Queue  string
	Names  []string
	Resume bool
	Note   string
}

// Fire deals with firings whose time has come: it passes over Missed of them, puts the job of another,
// and sets the next. Results: Created if a job was put, Serial. Codes: QueueNotFound,
// ScheduleNotFound; VersionChanged if it does not go on from the schedule as it is; QueueFull, which
// changes nothing. Only the leader proposes it.
type Fire struct {
	Queue, Name string
	// Serial and Nominal must be the schedule's Serial and Next. Version is the one that the command was
	// planned with: if the rule has changed since, the schedule must be Pending.
	Serial, Version uint64
	Nominal         Time
	// Missed counts the nominal times from Nominal on that are passed over, and LastMissed is the last
	// of them.
	Missed     uint64
	LastMissed Time
	// Put is the nominal time whose job is put, 0 for none; Due is when that job is due.
	Put, Due Time
	// Next is the nominal time after all of these, 0 for none. ZoneData is the version of the time-zone
	// data that it was found with. A Pending schedule goes on at its Then instead.
	Next     Time
	ZoneData string
}

// RunSchedule puts jobs of a schedule for the given nominal times, at most RunMax, whatever its policy
// says and also if it is paused. A job that is held or remembered is not put again. Results: Count,
// the jobs put; More, if times are left, because the queue is full or there were RunJobs: Due is the first
// of them then. Codes: QueueNotFound, ScheduleNotFound, QueueFull if no job was put for that reason.
type RunSchedule struct {
	Queue, Name string
	Times       []Time
}

// Kind returns KindPutSchedule.
func (*PutSchedule) Kind() Kind { return KindPutSchedule }

// Kind returns KindDeleteSchedule.
func (*DeleteSchedule) Kind() Kind { return KindDeleteSchedule }

// Kind returns KindPauseSchedules.
func (*PauseSchedules) Kind() Kind { return KindPauseSchedules }

// Kind returns KindFire.
func (*Fire) Kind() Kind { return KindFire }

// Kind returns KindRunSchedule.
func (*RunSchedule) Kind() Kind { return KindRunSchedule }

// SchedulePrefix begins the ids of the jobs of schedules.
const SchedulePrefix = "cron:"

// ScheduleJobID returns the id of the job of a firing: `cron:<name>@<time>`, in RFC 3339.
func ScheduleJobID(name string, nominal Time) string {
	return SchedulePrefix + name + "@" + FormatTime(nominal)
}

// ScheduleOf returns the name of the schedule that a job with a client-chosen id belongs to; false if
// its id is not that of a firing.
func ScheduleOf(id string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(id, SchedulePrefix)
	at := strings.LastIndexByte(rest, '@')
	if !ok || at < 0 {
		return "", false
	}
	return rest[:at], true
}

// The headers that the jobs of a schedule have besides those of its Job.
const (
	HeaderSchedule = "belfry-schedule"
	HeaderNominal  = "belfry-nominal"
)
