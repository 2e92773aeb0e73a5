package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A State is a job's state: "DELAYED", "READY", "RESERVED" or "DEAD". For a job that has ended it
// says how: "ACKED", "CANCELLED" or "EXPIRED". Empty if unknown.
type State = values.State

// A Job is one job, as Reserve, Get and List return it. Several goroutines may read its fields.
type Job struct {
	// Queue and ID name the job.
	Queue, ID string
	// Key is the key of the job, empty if it has none; see [Key].
	Key string
	// Version counts the contents that the job has had, 1 for the first; see [OnExisting]. 0 if it
	// has ended.
	Version uint64
	// Next is what is known of the successor that a put with [NextExisting] stored, in reserved jobs
	// from Get and List; nil if there is none.
	Next *Successor
	// Body is the content, byte for byte as it was put; nil from List. BodyBytes is its size, also
	// from List.
	Body      []byte
	BodyBytes int
	// Headers are the headers that the job was put with.
	Headers map[string]string
	// State is READY, DELAYED, …; RESERVED for jobs from Reserve.
	State State
	// Attempt is the number of this reservation, 1 for the first. From Get and List it is the
	// number of attempts counted so far.
	Attempt int
	// MaxAttempts is how many failed attempts make the job dead, 0 for no limit.
	MaxAttempts int
	// Lease is the token for Ack, Nack, Release and Extend; set only in jobs from Reserve.
	Lease string
	// Fence grows from one reservation of the job to the next, and never shrinks. Pass it to the
	// systems that the work writes to. They can then refuse a holder whose lease another holder has
	// superseded.
	Fence uint64
	// LeaseUntil is the end of the lease as granted, on the server's clock. Zero if the job is not
	// reserved.
	LeaseUntil time.Time
	// LeaseSince is when the lease was granted or last extended, in reserved jobs from Get and
	// List. After an extension to less than the time that was left, it may be later than that.
	LeaseSince time.Time
	// DueAt is when the job is or was due. FirstDueAt is the due time that it was put with.
	DueAt, FirstDueAt time.Time
	// CreatedAt is when the job was put. ExpiresAt is the end of its TTL, zero if it has none.
	CreatedAt, ExpiresAt time.Time
	// EndedAt is when the job ended, from [Client.Find]; zero if it has not. AttemptUnknown is set
	// if the server does not remember Attempt.
	EndedAt        time.Time
	AttemptUnknown bool
	// Priority orders ready jobs; a lower one leaves first.
	Priority int64
	// TTR is the length of the job's leases, unless the consumer asks for another.
	TTR time.Duration
	// RetryDelays are the delays after the first, second, … failed attempt; the last one repeats.
	RetryDelays []time.Duration
	// LastError is the error of the last nack, at most 1 KiB of it. In dead jobs from Get and List,
	// Cause is what it has in common with other errors of its cause: its text with # for what
	// differs. [ListOptions] can select by it.
	LastError, Cause string
	// Client is who holds a reserved job, from Get and List: the name of the consumer, as from
	// [WithName], and its address. ReservedAt is when it was reserved.
	Client     string
	ReservedAt time.Time
	// Attempts are the last failed attempts, at most 3, oldest first; only from Get and List.
	Attempts []Attempt

	client   *Client
	received time.Time     // when the answer came, on this machine's clock
	age      time.Duration // how long before received the lease may have begun, beyond the margin of a lease.Renewer
	lease    time.Duration // its length
}

// A Successor is the job that takes over an id when the job that has it ends.
type Successor struct {
	// Version is the version that it will have.
	Version uint64
	// DueAt is when it is due.
	DueAt time.Time
}

// An Attempt is an attempt at a job that failed.
type Attempt struct {
	// Number is 1 for the first. A redrive begins anew.
	Number int
	// BeganAt is when the job was reserved, zero if that is not known. EndedAt is when it was
	// nacked, or when its lease lapsed, as Lapsed says.
	BeganAt, EndedAt time.Time
	Lapsed           bool
	// Client had the job, as in [Job]. Error is what it said, at most 256 bytes of it.
	Client, Error string
}

// attemptOf reads an attempt off the wire.
func attemptOf(a *belfryv1.Attempt) Attempt {
	return Attempt{
		Number: int(a.GetNumber()), BeganAt: values.TimeOf(a.GetBeganAt()), EndedAt: values.TimeOf(a.GetEndedAt()),
		Lapsed: a.GetLapsed(), Client: a.GetClient(), Error: a.GetError(),
	}
}

// jobOf reads a job off the wire. The job shares the body with the message, which has no other
// user.
func jobOf(c *Client, j *belfryv1.Job, received time.Time) *Job {
	job := &Job{
		Queue: j.GetQueue(), ID: j.GetId(), Body: j.GetData(), BodyBytes: int(j.GetBodyBytes()), Headers: j.GetHeaders(),
		State: values.StateOf(j.GetState()), Attempt: int(j.GetAttempt()), MaxAttempts: int(j.GetMaxAttempts()),
		Lease: j.GetLease(), Fence: j.GetFence(), Priority: j.GetPriority(), TTR: j.GetTtr().AsDuration(),
		LastError: j.GetLastError(), AttemptUnknown: j.GetAttemptUnknown(), client: c, received: received,
		LeaseUntil: values.TimeOf(j.GetLeaseUntil()), DueAt: values.TimeOf(j.GetDueAt()),
		FirstDueAt: values.TimeOf(j.GetFirstDueAt()), CreatedAt: values.TimeOf(j.GetCreatedAt()),
		ExpiresAt: values.TimeOf(j.GetExpiresAt()), EndedAt: values.TimeOf(j.GetEndedAt()),
		LeaseSince: values.TimeOf(j.GetLeaseSince()), ReservedAt: values.TimeOf(j.GetReservedAt()), Client: j.GetClient(),
		Cause: j.GetCause(), RetryDelays: values.Each(j.GetRetryDelays(), (*durationpb.Duration).AsDuration),
		Attempts: values.Each(j.GetAttempts(), attemptOf),
	}
	job.Key, job.Version = j.GetKey(), j.GetVersion()
	if next := j.GetNext(); next != nil {
		job.Next = &Successor{Version: next.GetVersion(), DueAt: values.TimeOf(next.GetDueAt())}
	}
	if text, ok := j.GetBody().(*belfryv1.Job_Text); ok {
		job.Body = []byte(text.Text)
	}
	if granted := j.GetWitness().GetTime(); granted.IsValid() && !job.LeaseUntil.IsZero() {
		job.lease = job.LeaseUntil.Sub(granted.AsTime())
	}
	return job
}

// ageBy returns the age, by the wall clocks, of a lease that was received at that time. ahead is
// how far the servers' clock is ahead of this one. The result is 0 if the clocks show no age.
// Either clock may be wrong: an age is a reason to ask the server, but no reason to give the lease
// up.
func (j *Job) ageBy(received time.Time, ahead time.Duration) time.Duration {
	if j.lease <= 0 || j.LeaseUntil.IsZero() {
		return 0
	}
	return max(0, received.Add(ahead).Sub(j.LeaseUntil)+j.lease)
}

// Ack ends the job as done; see [Client.Ack].
func (j *Job) Ack(ctx context.Context) error { return j.client.tracedAck(ctx, j.Lease, j) }

// Nack reports that the attempt failed; see [Client.Nack].
func (j *Job) Nack(ctx context.Context, cause error) error {
	_, _, err := j.client.tracedNack(ctx, j.Lease, cause, j)
	return err
}

// Release returns the job to its queue without counting the attempt; see [Client.Release].
func (j *Job) Release(ctx context.Context, delay time.Duration) error {
	_, _, err := j.client.tracedRelease(ctx, j.Lease, delay, j)
	return err
}

// Extend moves the end of the lease to ttr from now; see [Client.Extend].
func (j *Job) Extend(ctx context.Context, ttr time.Duration) (time.Time, error) {
	return j.client.Extend(ctx, j.Lease, ttr)
}
