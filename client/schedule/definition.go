package schedule

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/client/internal/failure"
	"github.com/belfrydb/belfry/client/internal/values"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A Definition is the content of a schedule.
type Definition struct {
	// Spec says when it fires. Required.
	Spec Spec
	// Policy says what becomes of firings that cannot happen as planned.
	Policy Policy
	// Job is what its jobs are.
	Job Job
}

// A Spec says when a schedule fires. Either Cron or Every is required.
type Spec struct {
	// Cron is an expression of five fields, or six with seconds first, or one such as "@daily".
	Cron string
	// Every is how often it fires, from 1970-01-01T00:00:00Z and Phase on: whole milliseconds, at least
	// 1 s.
	Every time.Duration
	// Phase is below Every, in whole milliseconds. Only with Every.
	Phase time.Duration
	// TimeZone is the IANA name of the time zone of Cron and Exclude, such as "Europe/Berlin". Empty
	// means UTC.
	TimeZone string
	// DST says what happens when the clock of the zone changes. Only with Cron.
	DST DST
	// Start and End: no firing is before Start or after End. Zero means no bound.
	Start, End time.Time
	// Jitter is how long after its nominal time a job may be due: whole milliseconds, at most 24 h. The
	// place within it is fixed for a name and a time. 0 means none.
	Jitter time.Duration
	// Exclude are expressions of times without a firing, in the time zone: at most 32.
	Exclude []string
}

// A DST says what happens to local times that a change of the clock leaves out or repeats.
type DST int32

// The choices.
const (
	// DSTOnce fires fixed times once: at the end of the gap that they are in, and at the first of two
	// equal times. Other expressions follow real time. This is the default.
	DSTOnce DST = iota
	// DSTLiteral fires as the expression says: not in a gap, and twice in a fold.
	DSTLiteral
	// DSTSkip fires not in a gap, and at the first of two equal times.
	DSTSkip
)

// String returns the word of the API, such as "ONCE", or the number of a choice of a later version.
func (d DST) String() string { return word(belfryv1.DST(numberOf(d)), "DST_") }

// A Policy says what becomes of firings that cannot happen as planned.
type Policy struct {
	// CatchUp decides about those of an outage or a pause.
	CatchUp CatchUp
	// Window is how late a firing may be: 1 s to 1 year; one that would be later is missed. 0 means 24 h.
	Window time.Duration
	// Overlap decides while an earlier job has not ended.
	Overlap Overlap
	// MaxFires ends the schedule after so many jobs, those of triggers and backfills aside. 0 means no
	// limit.
	MaxFires uint64
	// PauseOnDead pauses the schedule when one of its jobs becomes dead.
	PauseOnDead bool
}

// A CatchUp says what becomes of firings whose time passed while none could happen.
type CatchUp int32

// The choices.
const (
	// CatchUpLatest makes the latest one happen. This is the default.
	CatchUpLatest CatchUp = iota
	// CatchUpAll makes all happen, in order.
	CatchUpAll
	// CatchUpNone makes the latest one happen if it is at most a minute late.
	CatchUpNone
)

// String returns the word of the API, such as "LATEST", or the number of a choice of a later version.
func (c CatchUp) String() string { return word(belfryv1.CatchUp(numberOf(c)), "CATCH_UP_") }

// An Overlap says what becomes of a firing while an earlier job of the schedule has not ended. A dead
// job has ended.
type Overlap int32

// The choices.
const (
	// OverlapAllow makes it happen. This is the default.
	OverlapAllow Overlap = iota
	// OverlapSkip skips it while one is delayed, ready or reserved.
	OverlapSkip
	// OverlapOneWaiting skips it while one is delayed or ready.
	OverlapOneWaiting
)

// String returns the word of the API, such as "ALLOW", or the number of a choice of a later version.
func (o Overlap) String() string { return word(belfryv1.Overlap(numberOf(o)), "OVERLAP_") }

// A Job is what the jobs of a schedule are. What is not set is as in a put of a job.
type Job struct {
	// Body is the body of each; at most 1 MiB.
	Body []byte
	// Headers are for the consumer: at most 16 KiB together. The schedule itself sets belfry-schedule
	// and belfry-nominal.
	Headers map[string]string
	// Key is their key: at most 128 bytes of UTF-8. Only in a queue with one partition.
	Key string
	// TTR is the length of their leases: 1 ms to 24 h. 0 means the queue's.
	TTR time.Duration
	// TTL is how long they may wait for a consumer, up to 100 years. 0 means no limit.
	TTL time.Duration
	// Priority orders ready jobs: -128 to 4,294,967,295, lower leaves first. Nil means 0.
	Priority *int64
	// MaxAttempts is how many failed attempts make a job dead: 0 to 1,000,000, 0 for no limit. Nil means
	// the queue's.
	MaxAttempts *int
	// RetryDelays are the delays after the first, second, … failed attempt; the last one repeats. At
	// most 64, each 0 to 100 years. None means the queue's.
	RetryDelays []time.Duration
}

// numberOf returns the number of a choice in a message, where the default is 1. One below the default
// stays as it is, for the server to refuse.
func numberOf[E ~int32](choice E) int32 {
	if choice < 0 {
		return int32(choice)
	}
	return int32(choice) + 1
}

// choiceOf returns the choice of a message; the default for one that is not set.
func choiceOf[E, Number ~int32](n Number) E { return E(max(n-1, 0)) }

// word returns the name of a number in a message, without its prefix.
func word(number fmt.Stringer, prefix string) string {
	return strings.TrimPrefix(number.String(), prefix)
}

// optional returns a duration for a message, nil for 0.
func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// wire returns the spec in wire form.
func (s *Spec) wire() (*belfryv1.ScheduleSpec, *failure.Error) {
	out := &belfryv1.ScheduleSpec{
		Phase: optional(s.Phase), TimeZone: s.TimeZone, Dst: belfryv1.DST(numberOf(s.DST)),
		Start: values.Timestamp(s.Start), End: values.Timestamp(s.End), Jitter: optional(s.Jitter), Exclude: s.Exclude,
	}
	switch {
	case s.Cron != "" && s.Every != 0:
		return nil, failure.Invalidf("Spec: Cron and Every exclude each other")
	case s.Cron != "":
		out.Rule = &belfryv1.ScheduleSpec_Cron{Cron: s.Cron}
	case s.Every != 0:
		out.Rule = &belfryv1.ScheduleSpec_Every{Every: durationpb.New(s.Every)}
	default:
		return nil, failure.Invalidf("Spec: Cron or Every is required")
	}
	return out, nil
}

// wire returns the policy in wire form.
func (p *Policy) wire() *belfryv1.SchedulePolicy {
	return &belfryv1.SchedulePolicy{
		CatchUp: belfryv1.CatchUp(numberOf(p.CatchUp)), Window: optional(p.Window),
		Overlap: belfryv1.Overlap(numberOf(p.Overlap)), MaxFires: p.MaxFires, PauseOnDead: p.PauseOnDead,
	}
}

// wire returns the job in wire form.
func (j *Job) wire() (*belfryv1.PutRequest, *failure.Error) {
	out := &belfryv1.PutRequest{
		Body: &belfryv1.PutRequest_Data{Data: j.Body}, Headers: j.Headers, Key: j.Key, Ttr: optional(j.TTR),
		Ttl: optional(j.TTL), RetryDelays: values.Each(j.RetryDelays, durationpb.New),
	}
	if j.Priority != nil {
		out.Priority = new(*j.Priority)
	}
	if j.MaxAttempts != nil {
		attempts, err := wireCount("MaxAttempts", *j.MaxAttempts)
		if err != nil {
			return nil, err
		}
		out.MaxAttempts = &attempts
	}
	return out, nil
}

// specOf reads a spec off the wire.
func specOf(s *belfryv1.ScheduleSpec) Spec {
	return Spec{
		Cron: s.GetCron(), Every: s.GetEvery().AsDuration(), Phase: s.GetPhase().AsDuration(), TimeZone: s.GetTimeZone(),
		DST: choiceOf[DST](s.GetDst()), Start: values.TimeOf(s.GetStart()), End: values.TimeOf(s.GetEnd()),
		Jitter: s.GetJitter().AsDuration(), Exclude: s.GetExclude(),
	}
}

// policyOf reads a policy off the wire.
func policyOf(p *belfryv1.SchedulePolicy) Policy {
	return Policy{
		CatchUp: choiceOf[CatchUp](p.GetCatchUp()), Window: p.GetWindow().AsDuration(),
		Overlap: choiceOf[Overlap](p.GetOverlap()), MaxFires: p.GetMaxFires(), PauseOnDead: p.GetPauseOnDead(),
	}
}

// jobOf reads a job off the wire.
func jobOf(j *belfryv1.ScheduleJob) Job {
	if j == nil {
		return Job{}
	}
	out := Job{
		Body: j.GetData(), Headers: j.GetHeaders(), Key: j.GetKey(), TTR: j.GetTtr().AsDuration(),
		TTL: j.GetTtl().AsDuration(), MaxAttempts: values.CountOf(j.MaxAttempts),
		RetryDelays: values.Each(j.GetRetryDelays(), (*durationpb.Duration).AsDuration),
	}
	if text := j.GetText(); text != "" {
		out.Body = []byte(text)
	}
	if j.Priority != nil {
		out.Priority = new(j.GetPriority())
	}
	return out
}
