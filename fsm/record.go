package fsm

import "time"

// Job is one held job as a reader sees it. Of the methods of Machine that return jobs only Answer gives Headers, RetryDelays and
// Body that are the reader's own; else they may alias the machine's memory: they are valid until the next Apply or Restore and
// must not be changed. LastError and the names are always the reader's own.
type Job struct {
	Queue     string
	Partition uint32
	Serial    uint64
	// ID is the client's id, or the generated one if Generated.
	ID        string
	Generated bool
	State     State
	Priority  int8
	// Due is when the job is, was or last became ready; FirstDue is what its put answered.
	Due, FirstDue, Created Time
	// Given says which of TTR, MaxAttempts, RetryDelays the put named. In a Reading the others have
	// the value that applies instead: the queue's, else the default; elsewhere they are zero.
	Given       Given
	TTR         time.Duration
	MaxAttempts uint32
	RetryDelays []time.Duration
	// TTL is the time at which an unreserved job expires; 0 means never (none given, or cleared by a redrive).
	TTL     Time
	Headers []Header
	Body    []byte
	// BodyBytes is the size of the body, also where the body is left out.
	BodyBytes uint32
	// Attempt is the running number of attempts that count; Fence and Until are of the last lease.
	Attempt   uint32
	Fence     uint64
	Until     Time
	LeaseTTR  time.Duration
	Redrives  uint32
	LastError string
	// Died is when the job last became dead; 0 if never.
	Died Time
	// Ended is when the job ended; 0 of a held job. AttemptUnknown says that its end was remembered without its attempts.
	Ended          Time
	AttemptUnknown bool
}

// Counters are the totals of one queue since its creation. Put = held + Acked + Cancelled + Expired
// + Purged at any time.
type Counters struct {
	Put, Duplicate, Granted, Acked, Nacked, Released, Lapsed, Extended uint64
	Cancelled, Expired, Died, Redriven, Rescheduled, Purged            uint64
}

// Counts are the held jobs of one queue by state, and their bytes. They are exact as of the last entry.
type Counts struct {
	Delayed, Ready, Reserved, Dead uint64
	Bytes                          uint64
}

// Jobs returns the number of held jobs.
func (c *Counts) Jobs() uint64 { return c.Delayed + c.Ready + c.Reserved + c.Dead }

// Queue is what a reader sees of a queue.
type Queue struct {
	Name                  string
	Partition, Partitions uint32
	Version               uint64
	Settings              Settings
	Counts                Counts
	Counters              Counters
	// OldestReady is the due time of the oldest ready job, NextDue the due time of the first delayed one; 0 if there is none.
	OldestReady, NextDue Time
	Created              Time
	// Format selects the defaults of the queue: see DefaultRetryDelays.
	Format Format
	Due    Due
	// Tombstones is the number of ended ids remembered, DedupSince the time since which all are: the window that really holds.
	Tombstones uint64
	DedupSince Time
	// Recent is what it did lately, nil where that is not known. Only readings have it.
	Recent *Recent
}

// Tombstone is what a shard remembers of an ended job with a client-chosen id.
type Tombstone struct {
	Queue, ID string
	Serial    uint64
	Content   [16]byte
	FirstDue  Time
	State     State
	Ended     Time
}

// Answer is what a shard remembers of a request: the results without bodies.
type Answer struct {
	Caller, ID string
	Content    [16]byte
	At         Time
	Results    []Result
}

// AnswerBytes is what an answer counts against Config.AnswersBytesMax: its encoded size and 64
// bytes of overhead.
func AnswerBytes(a *Answer) int64 { return int64(len(appendAnswer(nil, a))) + answerOverheadBytes }

// QueueRecord is everything a shard keeps of a queue besides its jobs and tombstones.
type QueueRecord struct {
	Name                  string
	Partition, Partitions uint32
	// CreateSeq is the creation number of the queue: it numbers the queues of the shard in the
	// order of their creation, from 1.
	CreateSeq uint64
	Created   Time
	Version   uint64
	Settings  Settings
	Counts    Counts
	Counters  Counters
	// Format is the format that the shard spoke when the queue was created. The queue keeps its defaults.
	Format Format
	// RateAt is the time at which the token bucket is full again; see Machine.takeToken.
	RateAt Time
	// OverdueFrom and OverdueTo bound the window (from, to] that the overdue policy applies to; both 0 if there is none.
	OverdueFrom, OverdueTo Time
	// Forgotten is the end of the youngest tombstone that was forgotten for want of room.
	Forgotten Time
}

// retryDelays returns the delays after failed attempts of jobs without a list of their own, and
// whether Jitter applies.
func (q *QueueRecord) retryDelays() (delays []time.Duration, jitter bool) {
	if len(q.Settings.RetryDelays) > 0 {
		return q.Settings.RetryDelays, false
	}
	return DefaultRetryDelays(q.Format), true
}

// Scalars are the shard's own values.
type Scalars struct {
	Clock  Time
	Serial uint64
	// QueuesCreated counts the queues ever created.
	QueuesCreated uint64
	// LowWater is the time of the youngest remembered request that was forgotten for want of room.
	LowWater Time
}

// Duration is time.Duration under the name that the stored records use.
type Duration = time.Duration
