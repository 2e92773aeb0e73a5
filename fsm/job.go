package fsm

import (
	"strconv"
	"strings"
	"time"
)

// Job is one held job as a reader sees it. Of the methods of Machine that return jobs only Answer
// gives Headers, RetryDelays and Body that are the reader's own; else they may alias the machine's
// memory: they are valid until the next Apply or Restore and must not be changed. LastError and the
// names are always the reader's own.
type Job struct {
	// The small fields stand together, see TestJobIsSmall.

	Partition uint32
	// BodyBytes is the size of the body, also where the body is left out.
	BodyBytes uint32
	// Attempt is the running number of attempts that count; Fence and Until are of the last lease.
	Attempt, MaxAttempts, Redrives uint32
	State                          State
	// FIFO is that of the put.
	FIFO bool
	// Given says which of TTR, MaxAttempts, RetryDelays the put named. In a Reading the others have
	// the value that applies instead: the queue's, else the default; elsewhere they are zero.
	Given     Given
	Generated bool
	Priority  int64
	Queue     string
	Serial    uint64
	// ID is the client's id, or the generated one if Generated.
	ID string
	// Key is the one that the put named, empty if none.
	Key string
	// Due is when the job is, was or last became ready; FirstDue is what its put answered.
	Due, FirstDue, Created Time
	TTR                    time.Duration
	RetryDelays            []time.Duration
	// TTL is the time at which an unreserved job expires; 0 means never (none given, or cleared by a
	// redrive).
	TTL     Time
	Headers []Header
	Body    []byte
	Fence   uint64
	Until   Time
	// LeaseTTR is the length of the last lease.
	LeaseTTR  time.Duration
	LastError string
	// Client holds the job since Leased. Both are zero unless the job is RESERVED, and if the lease
	// was granted before format 3.
	Client string
	Leased Time
	// Attempts are the last failed ones, oldest first, at most AttemptsKept.
	Attempts []Attempt
	// Died is when the job last became dead; 0 if never.
	Died Time
	// Version counts the contents that the job has had. 0 means 1: it was never replaced.
	Version uint64
	// Place, if not 0, replaces Serial in the order of the key's jobs: the job was redriven.
	Place uint64
	// Uses counts what happened to a FIFO job, nil if nothing did.
	Uses *Uses
	// Next is the successor that a put stored for the end of this job, nil if there is none.
	Next *Successor
	// End is that of a job that has ended, nil of a held one.
	End *End
}

// End is what is remembered of the end of a job, besides its state and its attempts.
type End struct {
	At Time
	// AttemptUnknown says that the end was remembered without the attempts.
	AttemptUnknown bool
}

// Successor is the job that takes over an id when the present job ends: a put came while that was
// RESERVED. Queue, Partition, ID and Key are those of the present job and not in it. Serial and State
// are not known yet. Its Version goes on from the job's.
type Successor struct {
	Job
	Content [16]byte
}

// An Attempt is an attempt at a job that failed.
type Attempt struct {
	// Number counts from 1, anew after a redrive.
	Number uint32
	// Began is when the job was leased, 0 if the lease was granted before format 3; Ended is when it
	// was nacked or its lease lapsed.
	Began, Ended Time
	// Lapsed says that the lease lapsed: the consumer said nothing.
	Lapsed bool
	// Client had the job; Error is what it said, at most AttemptErrorBytes.
	Client, Error string
}

// Tombstone is what a shard remembers of an ended job with a client-chosen id.
type Tombstone struct {
	Queue, ID string
	// Key is that of the job, empty if it had none.
	Key      string
	Serial   uint64
	Content  [16]byte
	FirstDue Time
	State    State
	Ended    Time
}

// Answer is what a shard remembers of a request: the results without bodies.
type Answer struct {
	Caller, ID string
	Content    [16]byte
	At         Time
	Results    []Result
}

// Duration is time.Duration under the name that the stored records use.
type Duration = time.Duration

// An Ending reports that a job was acked or died. It serves measurements of how long jobs take, and
// is no part of the state: an entry that is answered from memory ends nothing.
type Ending struct {
	Queue string
	// State is Acked or Dead.
	State State
	// Attempts are those that the job had taken, the last among them; 0 if it died without any.
	Attempts uint32
	// Took runs from the put to the end, in shard time.
	Took time.Duration
}

// JobBytes is the size of a job as limits count it: its body, its id if the client chose it, its
// key, and its headers.
func JobBytes(j *Job) uint64 {
	n := len(j.Body) + len(j.Key)
	if !j.Generated {
		n += len(j.ID)
	}
	for _, h := range j.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return uint64(n)
}

// PutBytes returns the bytes that the job of a put counts as.
func PutBytes(c *Put) uint64 {
	return JobBytes(&Job{ID: c.ID, Generated: c.ID == "", Key: c.Key, Headers: c.Headers, Body: c.Body})
}

// ScheduleBytes is the size of a schedule as limits count it: its name, and what each of its jobs has
// from it.
func ScheduleBytes(name string, job *Put) uint64 {
	return uint64(len(name)) + PutBytes(&Put{Key: job.Key, Headers: job.Headers, Body: job.Body})
}

// FormatID returns the id that a job without a client-chosen one goes by.
func FormatID(partition uint32, serial uint64) string {
	return strconv.FormatUint(uint64(partition), 10) + "-" + strconv.FormatUint(serial, 10)
}

// ParseID reads a generated id back. It accepts exactly what FormatID returns.
func ParseID(id string) (partition uint32, serial uint64, ok bool) {
	left, right, found := strings.Cut(id, "-")
	if !found {
		return 0, 0, false
	}
	p, err1 := strconv.ParseUint(left, 10, 32)
	n, err2 := strconv.ParseUint(right, 10, 64)
	if err1 != nil || err2 != nil || FormatID(uint32(p), n) != id {
		return 0, 0, false
	}
	return uint32(p), n, true
}
