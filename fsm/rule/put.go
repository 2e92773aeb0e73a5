package rule

import "github.com/belfrydb/belfry/fsm"

// FillJob makes an empty job what a put asks for at a time, but for the name of its queue and the serial.
func FillJob(j *fsm.Job, c *fsm.Put, now fsm.Time) {
	j.ID, j.Generated, j.Key, j.Given, j.FIFO = c.ID, c.ID == "", c.Key, c.Given, c.FIFO
	j.Created, j.FirstDue = now, now.After(0)
	j.Headers, j.Body = c.Headers, c.Body
	if c.Given.Has(fsm.GivenDelay) {
		j.FirstDue = now.After(c.Delay)
	}
	if c.Given.Has(fsm.GivenDueAt) {
		j.FirstDue = c.DueAt.Ceil()
	}
	if c.Given.Has(fsm.GivenTTR) {
		j.TTR = c.TTR
	}
	if c.Given.Has(fsm.GivenTTL) {
		j.TTL = now.After(c.TTL)
	}
	if c.Given.Has(fsm.GivenPriority) {
		j.Priority = fsm.PriorityOf(fsm.RankOf(c.Priority))
	}
	if c.Given.Has(fsm.GivenMaxAttempts) {
		j.MaxAttempts = c.MaxAttempts
	}
	if c.Given.Has(fsm.GivenRetryDelays) {
		j.RetryDelays = c.RetryDelays
	}
	j.Due = j.FirstDue
}

// Full reports whether a job of this size would exceed a limit of its queue.
func Full(r *fsm.QueueRecord, bytes uint64) bool {
	jobs, size := PartitionLimit(r.Settings.MaxJobs, r), PartitionLimit(r.Settings.MaxBytes, r)
	return jobs > 0 && r.Counts.Jobs() >= jobs || size > 0 && r.Counts.Bytes+bytes > size
}

// TooLarge reports whether a content would exceed the limit of the queue in place of another one. A
// smaller one never does.
func TooLarge(r *fsm.QueueRecord, before, bytes uint64) bool {
	size := PartitionLimit(r.Settings.MaxBytes, r)
	return size > 0 && bytes > before && r.Counts.Bytes-before+bytes > size
}

// The token bucket is kept as the time at which it is full again (the theoretical arrival time of
// the generic cell rate algorithm, ITU-T I.371): a put passes if that time is at most one bucket's
// worth ahead of the clock.

// ratePeriod returns the time between tokens and how far ahead of the clock RateAt may be; both are
// 0 without a limit.
func ratePeriod(r *fsm.QueueRecord) (period, ahead fsm.Duration) {
	rate := min(PartitionLimit(r.Settings.PutsPerSecond, r), 1e9)
	if rate == 0 {
		return 0, 0
	}
	period = fsm.Duration(1e9 / rate)
	return period, fsm.Duration(rate-1) * period
}

// RateWait returns how long a put at time now has to wait for a token, 0 if there is one.
func RateWait(r *fsm.QueueRecord, now fsm.Time) fsm.Duration {
	if r.Settings.PutsPerSecond == 0 {
		return 0
	}
	_, ahead := ratePeriod(r)
	return max(0, r.RateAt.Sub(now)-ahead)
}

// TakeToken takes the token of a put from a queue that has a rate.
func TakeToken(r *fsm.QueueRecord, now fsm.Time) {
	period, _ := ratePeriod(r)
	r.RateAt = max(r.RateAt, now).Add(period)
}

// VersionAnswer is the version that a put answers. Puts of earlier formats answer none.
func VersionAnswer(c *fsm.Put, version uint64) uint64 {
	if c.OnExisting == fsm.ReturnExisting {
		return 0
	}
	return version
}
