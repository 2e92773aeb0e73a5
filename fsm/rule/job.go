package rule

import (
	"unicode/utf8"

	"github.com/belfrydb/belfry/fsm"
)

// AttemptsFormat is the format from which on jobs know who holds them and how attempts failed.
const AttemptsFormat fsm.Format = 3

// LeaseLength returns the length of a lease if the Reserve names none: that of the job, else of its
// queue, else the default.
func LeaseLength(v *fsm.Job, s *fsm.Settings) fsm.Duration {
	switch {
	case v.TTR > 0:
		return v.TTR
	case s.TTR > 0:
		return s.TTR
	default:
		return fsm.DefaultTTR
	}
}

// AttemptsMax is the number of failed attempts after which a job is dead, 0 if there is no limit.
func AttemptsMax(v *fsm.Job, s *fsm.Settings) uint32 {
	switch {
	case v.Given.Has(fsm.GivenMaxAttempts):
		return v.MaxAttempts
	case s.MaxAttemptsSet:
		return s.MaxAttempts
	default:
		return fsm.DefaultMaxAttempts
	}
}

// RetryDelay returns the delay that the retry schedule gives a job after its present attempt, which
// is at least the first.
func RetryDelay(v *fsm.Job, r *fsm.QueueRecord) fsm.Duration {
	delays, jitter := v.RetryDelays, false
	if !v.Given.Has(fsm.GivenRetryDelays) {
		delays, jitter = RetryDelays(r)
	}
	if len(delays) == 0 {
		return 0
	}
	delay := delays[min(int(v.Attempt), len(delays))-1]
	if jitter {
		delay = fsm.Jitter(delay, v.Fence)
	}
	return delay
}

// Settle changes a stored job to what an unlimited settling at time now leaves of it, in a shard of
// the given format. It reports false if the job is not held then.
func Settle(v *fsm.Job, r *fsm.QueueRecord, format fsm.Format, now fsm.Time) bool {
	if v.State == fsm.Reserved && v.Until <= now {
		if format >= AttemptsFormat {
			lapse(v)
		}
		if v.FIFO {
			uses := fsm.Uses{}
			if v.Uses != nil {
				uses = *v.Uses
			}
			uses.Lapses++
			v.Uses = &uses
		}
		if limit := AttemptsMax(v, &r.Settings); limit > 0 && v.Attempt >= limit {
			if v.Next != nil {
				return succeed(v, r, format, now)
			}
			v.State, v.Died = fsm.Dead, now
			return true
		}
		v.State = fsm.Ready
		if v.TTL == 0 || v.TTL > now {
			v.Due = v.Until
		}
	}
	if (v.State == fsm.Delayed || v.State == fsm.Ready) && v.TTL != 0 && v.TTL <= now {
		if v.Next != nil || !r.Settings.ExpireToDead {
			return succeed(v, r, format, now)
		}
		v.State, v.TTL, v.Died = fsm.Dead, 0, now
		return true
	}
	if v.State == fsm.Delayed && v.Due <= now {
		if r.OverdueFrom < v.Due && v.Due <= r.OverdueTo {
			switch {
			case r.Settings.Overdue == fsm.DropOverdue:
				return succeed(v, r, format, now)
			case r.Settings.Overdue == fsm.SpreadOverdue && r.Settings.OverduePeriod > 0:
				v.Due = Outage{r.OverdueFrom, r.OverdueTo}.Spread(v.Due, r.Settings.OverduePeriod)
			}
		}
		if v.Due <= now {
			v.State = fsm.Ready
		}
	}
	return true
}

// succeed changes a job that has ended by now to its successor, which has no serial yet. It reports
// whether there is one, and whether that is still held.
func succeed(v *fsm.Job, r *fsm.QueueRecord, format fsm.Format, now fsm.Time) bool {
	if v.Next == nil {
		return false
	}
	next := v.Next.Job
	next.Queue, next.Partition, next.ID, next.Key, next.Serial = v.Queue, v.Partition, v.ID, v.Key, v.Serial
	next.State, next.Due = fsm.Delayed, next.FirstDue
	if next.Due <= now {
		next.State = fsm.Ready
	}
	*v = next
	return Settle(v, r, format, now)
}

// lapse adds the attempt under a lease that has lapsed to those that a job remembers.
func lapse(v *fsm.Job) {
	v.Attempts = append(v.Attempts, fsm.Attempt{
		Number: v.Attempt, Began: v.Leased, Ended: v.Until, Lapsed: true, Client: v.Client,
	})
	v.Attempts = v.Attempts[max(0, len(v.Attempts)-fsm.AttemptsKept):]
	v.Client, v.Leased = "", 0
}

// ClipError returns what an attempt keeps of its error: whole characters.
func ClipError(text string) string {
	if len(text) <= fsm.AttemptErrorBytes {
		return text
	}
	n := fsm.AttemptErrorBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
