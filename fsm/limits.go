package fsm

import "time"

// The bounds of one step.
const (
	// StepMax bounds the jobs of one kind that one settling touches, and the jobs of all kinds that
	// one Expire, Purge or DeleteQueue touches.
	StepMax = 4096
	// SweepMax is the number of remembered records of each kind that the end of one entry forgets.
	SweepMax = 1024
	// AttemptsKept is how many failed attempts a job remembers.
	AttemptsKept = 3
	// AttemptErrorBytes is the most that an attempt keeps of its error.
	AttemptErrorBytes = 256
	// RequestWindow is how long a request is remembered.
	RequestWindow = 5 * time.Minute
	// FinishedWindow is how long a finished lease is remembered after its end.
	FinishedWindow = time.Minute
)

// Config bounds what a machine remembers. All replicas of a shard must have the same values. Zero
// values mean the defaults.
type Config struct {
	// TombstonesMax bounds the ended ids; default 10,000,000.
	TombstonesMax int
	// FinishedMax bounds the finished leases; default 1,000,000.
	FinishedMax int
	// AnswersBytesMax bounds the remembered requests; default 64 MiB.
	AnswersBytesMax int64
	// QueuesMax bounds the queues of a shard, which take about 1 KiB each; default 100,000.
	QueuesMax int
	// SchedulesMax bounds the schedules of a shard; default 1,000,000.
	SchedulesMax int
	// WakeMax bounds the keys of a queue that got a token and that the first Reserve of an entry wakes;
	// default StepMax.
	WakeMax int
	// Seed keys the tables of ids. It has no effect on results and may, and should, differ between
	// processes.
	Seed uint64
}

// WithDefaults returns a configuration with every zero replaced by its default.
func (c Config) WithDefaults() Config {
	if c.TombstonesMax == 0 {
		c.TombstonesMax = 10_000_000
	}
	if c.FinishedMax == 0 {
		c.FinishedMax = 1_000_000
	}
	if c.AnswersBytesMax == 0 {
		c.AnswersBytesMax = 64 << 20
	}
	if c.SchedulesMax == 0 {
		c.SchedulesMax = 1_000_000
	}
	if c.WakeMax == 0 {
		c.WakeMax = StepMax
	}
	if c.QueuesMax == 0 {
		c.QueuesMax = 100_000
	}
	return c
}

// Stats are the sizes of a machine.
type Stats struct {
	Queues     int
	Jobs       int
	Tombstones int
	Finished   int
	Answers    int
	// AnswersBytes counts against Config.AnswersBytesMax; BlobBytes are all pages that hold bodies and
	// other blobs.
	AnswersBytes int64
	BlobBytes    int64
	// Schedules counts all schedules, SchedulesPaused those of them that are paused.
	Schedules, SchedulesPaused int
	// Keys counts the keys that have jobs or that the machine remembers, for a pause or a rate. The jobs
	// without a key of a fair queue count as one.
	Keys int
	// KeysBlocked counts the keys with READY jobs of which none may be handed out, by the reason. A key
	// that has a token, but that no Reserve has woken yet, still counts as BlockedByRate.
	KeysBlocked [KeyBlocks]int
}

// Memory is what a machine takes of the heap, in bytes. Each change updates it, so that reading it
// costs the same however many jobs there are. It is no part of the state: replicas that hold the
// same may differ in it.
type Memory struct {
	// Held is what the machine has now: records, bodies, tables, orders, and what an open snapshot
	// keeps alive beside them.
	Held uint64
	// Promised is what the held jobs may come to take without another put: the lease record of
	// each, and the tombstone of a job with a client-chosen id. Memory of ended jobs is not
	// subtracted, since it comes back only by whole pages.
	Promised uint64
	// CopyOnWrite is what changes may have to copy while a snapshot is open, besides what is copied
	// already.
	CopyOnWrite uint64
}
