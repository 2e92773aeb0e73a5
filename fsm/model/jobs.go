package model

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// put is rule Put.
func (m *Model) put(c *fsm.Put) fsm.Result {
	q := m.name(c.Queue)

	// (a) The queue is there, in the partition that the caller means, or is created.
	if q == nil && (c.Partition != 0 || c.Partitions != 1) {
		return fsm.Result{Code: fsm.QueueChanged}
	}
	if q == nil && m.queuesFull() {
		return fsm.Result{Code: fsm.Quota}
	}
	if q == nil {
		q = m.createQueue(c.Queue, c.Partition, c.Partitions)
	}
	if q.Partition != c.Partition || q.Partitions != c.Partitions {
		return fsm.Result{Code: fsm.QueueChanged}
	}

	if c.Key != "" && q.Settings.Keys.Refused {
		return fsm.Result{Code: fsm.KeyRefused}
	}

	// (b) The id is held, remembered or free.
	j := m.newJob(q, c)
	if !j.Generated {
		if held := q.byPutID(c.ID, c.Key); held != nil {
			return m.putHeld(q, c, held)
		}
	}
	if c.IfVersion != 0 {
		return fsm.Result{Code: fsm.VersionChanged}
	}
	if t := m.tombstoneOf(q, c.ID, c.Key); t != nil && !c.Again && c.OnExisting < fsm.ReplaceExisting {
		same := j.content == t.Content
		if c.OnExisting == fsm.KeepExisting {
			same = c.Key == t.Key
		}
		result := q.putAgain(same, t.State, t.Serial, t.FirstDue)
		return result
	}
	// (c) The rate.
	if wait := q.rateWait(m.Clock); wait > 0 {
		return fsm.Result{Code: fsm.RateLimited, Wait: wait}
	}
	// (d) The limits.
	if q.isFull(j) {
		return fsm.Result{Code: fsm.QueueFull}
	}
	// (e) The creation.
	q.takeToken(m.Clock)
	if c.MaxWait > 0 {
		j.FirstDue = min(j.FirstDue, m.Clock.After(c.MaxWait))
		j.Due, j.State = j.FirstDue, m.stateAt(j.FirstDue)
	}
	j.Serial = m.nextSerial()
	if j.Generated {
		j.ID = fmt.Sprintf("%d-%d", q.Partition, j.Serial)
	} else {
		m.forgetID(q, j.ID, j.Key)
	}
	q.jobs = append(q.jobs, j)
	q.Counters.Put++
	m.changed(q, j.Key)
	return fsm.Result{
		Created: true, State: j.State, Partition: q.Partition, Serial: j.Serial, Due: j.Due, Version: versionAnswer(c, 1),
	}
}

// putAgain answers a put whose id is taken.
func (q *queue) putAgain(equal bool, state fsm.State, serial uint64, firstDue fsm.Time) fsm.Result {
	if !equal {
		return fsm.Result{Code: fsm.JobExists}
	}
	q.Counters.Duplicate++
	return fsm.Result{State: state, Partition: q.Partition, Serial: serial, Due: firstDue}
}

// newJob returns the job that a put asks for, without serial and generated id. Options that are
// omitted stay zero.
func (m *Model) newJob(q *queue, c *fsm.Put) *job {
	j := &job{Job: fsm.Job{
		Queue: q.Name, Partition: q.Partition, ID: c.ID, Generated: c.ID == "", Key: c.Key, Given: c.Given, FIFO: c.FIFO,
		Due: m.dueTime(c.Given, c.Delay, c.DueAt), Created: m.Clock,
		Headers: slices.Clone(c.Headers), Body: bytes.Clone(c.Body), BodyBytes: uint32(len(c.Body)),
	}}
	if !j.Generated {
		j.content = codec.ContentHash(c)
	}
	if c.Given.Has(fsm.GivenTTR) {
		j.TTR = c.TTR
	}
	if c.Given.Has(fsm.GivenPriority) {
		j.Priority = normal(c.Priority)
	}
	if c.Given.Has(fsm.GivenMaxAttempts) {
		j.MaxAttempts = c.MaxAttempts
	}
	if c.Given.Has(fsm.GivenRetryDelays) {
		j.RetryDelays = slices.Clone(c.RetryDelays)
	}
	if c.Given.Has(fsm.GivenTTL) {
		j.TTL = m.Clock.After(c.TTL)
	}
	j.FirstDue, j.State = j.Due, m.stateAt(j.Due)
	return j
}

// dueTime is the due time that a put or a reschedule asks for.
func (m *Model) dueTime(given fsm.Given, delay time.Duration, at fsm.Time) fsm.Time {
	switch {
	case given.Has(fsm.GivenDueAt):
		return at.Ceil()
	case given.Has(fsm.GivenDelay):
		return m.Clock.After(delay)
	}
	return m.Clock.After(0)
}

// stateAt is the state of a waiting job by its due time.
func (m *Model) stateAt(due fsm.Time) fsm.State {
	if due <= m.Clock {
		return fsm.Ready
	}
	return fsm.Delayed
}

// partitionLimit is the limit of a queue as one of its partitions enforces it; 0 means no limit.
func (q *queue) partitionLimit(limit uint64) uint64 {
	if limit == 0 {
		return 0
	}
	return max(1, limit/uint64(max(1, q.Partitions)))
}

func (q *queue) isFull(j *job) bool {
	jobs, size := q.partitionLimit(q.Settings.MaxJobs), q.partitionLimit(q.Settings.MaxBytes)
	if jobs == 0 && size == 0 {
		return false
	}
	held := q.count()
	return jobs > 0 && held.Jobs()+1 > jobs || size > 0 && held.Bytes+j.bytes() > size
}

// tokens describes the bucket of a queue: a token every interval, and room for a burst that lasts
// tolerance.
func (q *queue) tokens() (interval, tolerance time.Duration) {
	rate := time.Duration(min(q.partitionLimit(q.Settings.PutsPerSecond), uint64(time.Second)))
	interval = time.Second / rate
	return interval, (rate - 1) * interval
}

// rateWait is how long a put has to wait for a token, 0 if there is one.
func (q *queue) rateWait(clock fsm.Time) time.Duration {
	if q.Settings.PutsPerSecond == 0 {
		return 0
	}
	_, tolerance := q.tokens()
	return max(0, q.RateAt.Sub(clock)-tolerance)
}

func (q *queue) takeToken(clock fsm.Time) {
	if q.Settings.PutsPerSecond > 0 {
		interval, _ := q.tokens()
		q.RateAt = max(q.RateAt, clock).Add(interval)
	}
}

// reserve is rule Reserve. It expires at most StepMax jobs; a queue whose first job would be one
// more is left.
func (m *Model) reserve(c *fsm.Reserve) fsm.Result {
	var result fsm.Result
	var bytes uint64
	expired, full := 0, false
	for _, name := range c.Queues {
		if full || len(result.Grants) >= int(c.Max) {
			break
		}
		q := m.name(name)
		if q == nil || q.Settings.PausedAt(m.Clock) {
			continue
		}
		m.wake(q, int(c.Max)-len(result.Grants))
		room := q.room(int(c.Max) - len(result.Grants))
		for room > 0 {
			j := m.next(q)
			if j == nil || m.passed(j.TTL) && expired == fsm.StepMax {
				break
			}
			if m.passed(j.TTL) {
				m.expire(q, j)
				expired++
				continue
			}
			full = c.Bytes > 0 && len(result.Grants) > 0 && bytes+j.ownBytes() > c.Bytes
			if full {
				break
			}
			bytes += j.ownBytes()
			result.Grants = append(result.Grants, m.leaseJob(q, j, c.TTR))
			room--
		}
	}
	return result
}

// room is how many of the wanted jobs may be leased without exceeding maxInFlight.
func (q *queue) room(wanted int) int {
	limit := q.partitionLimit(q.Settings.MaxInFlight)
	if limit == 0 {
		return wanted
	}
	return int(min(uint64(wanted), limit-min(limit, q.count().Reserved)))
}

// leaseJob puts a ready job under a new lease.
func (m *Model) leaseJob(q *queue, j *job, ttr time.Duration) fsm.Grant {
	q.Counters.Granted++
	j.used(func(u *fsm.Uses) { u.Reserves++ })
	j.State, j.Fence = fsm.Reserved, m.nextSerial()
	j.Attempt++
	j.LeaseTTR = cmp.Or(ttr, j.TTR, q.Settings.TTR, fsm.DefaultTTR)
	j.Until = m.Clock.After(j.LeaseTTR)
	m.granted(q, j)
	m.changed(q, j.Key)
	if m.format >= 3 {
		j.Client, j.Leased = m.client, m.Clock
	}
	return fsm.Grant{
		Queue: q.Name, Partition: q.Partition, Serial: j.Serial, Fence: j.Fence, Attempt: j.Attempt, Due: j.Due,
		Until: j.Until,
	}
}

// lease is rule Lease checks: it returns the job under the live lease that ref names, else nil.
func (m *Model) lease(ref fsm.Ref) (*queue, *job) {
	q := m.name(ref.Queue)
	if q == nil || q.Partition != ref.Partition {
		return nil, nil
	}
	j := q.bySerial(ref.Serial)
	if j == nil || j.State != fsm.Reserved || j.Fence != ref.Fence || m.passed(j.Until) {
		return nil, nil
	}
	return q, j
}

// ack is rule Ack.
func (m *Model) ack(c *fsm.Ack) (result fsm.Result, changed bool) {
	q, j := m.lease(c.Ref)
	if j == nil {
		for _, f := range m.finished {
			if f.serial == c.Serial && f.fence == c.Fence && m.Clock <= f.expiry {
				return fsm.Result{State: fsm.Acked}, false
			}
		}
		return fsm.Result{Code: fsm.StaleLease}, false
	}
	q.Counters.Acked++
	m.endJob(q, j, fsm.Acked)
	if c.Fence <= m.restored.Floor {
		return fsm.Result{State: fsm.Acked}, true
	}
	for len(m.finished) >= m.cfg.FinishedMax {
		oldest := slices.MinFunc(m.finished, byExpiry)
		m.finished = slices.DeleteFunc(m.finished, func(f finished) bool { return f == oldest })
	}
	m.finished = append(m.finished, finished{j.Serial, j.Fence, j.Until.Add(fsm.FinishedWindow)})
	return fsm.Result{State: fsm.Acked}, true
}

func byExpiry(a, b finished) int {
	return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.fence, b.fence))
}

// nack is rule Failing for a consumer that says so.
func (m *Model) nack(c *fsm.Nack) fsm.Result {
	q, j := m.lease(c.Ref)
	if j == nil {
		return fsm.Result{Code: fsm.StaleLease}
	}
	q.Counters.Nacked++
	j.LastError = cmp.Or(c.Error, j.LastError)
	kept := 0
	for at, letter := range c.Error {
		if end := at + utf8.RuneLen(letter); end <= 256 {
			kept = end
		}
	}
	m.failed(j, fsm.Attempt{Ended: m.Clock, Error: c.Error[:kept]})
	if c.PriorityGiven {
		j.Priority = normal(c.Priority)
	}
	if c.Dead {
		j.used(func(u *fsm.Uses) { u.Buries++ })
	}
	if !m.fail(q, j, c.Dead) {
		delay := q.retryDelay(j)
		if c.DelayGiven {
			delay = c.Delay
		}
		j.Due = m.Clock.After(delay)
		j.State = m.stateAt(j.Due)
		m.changed(q, j.Key)
	}
	return whereabouts(j)
}

// release is rule Release.
func (m *Model) release(c *fsm.Release) fsm.Result {
	q, j := m.lease(c.Ref)
	if j == nil {
		return fsm.Result{Code: fsm.StaleLease}
	}
	q.Counters.Released++
	j.Attempt--
	if c.PriorityGiven {
		j.Priority = normal(c.Priority)
	}
	j.used(func(u *fsm.Uses) { u.Releases++ })
	j.Client, j.Leased = "", 0
	switch {
	case m.passed(j.TTL):
		m.expire(q, j)
	case c.Delay > 0:
		j.State, j.Due = fsm.Delayed, m.Clock.After(c.Delay)
	default:
		j.State = fsm.Ready
	}
	m.changed(q, j.Key)
	return whereabouts(j)
}

// whereabouts is the result for a job that was given back. Only a waiting job has a due time.
func whereabouts(j *job) fsm.Result {
	if waiting(j) {
		return fsm.Result{State: j.State, Due: j.Due}
	}
	return fsm.Result{State: j.State}
}

// extend is rule Extend.
func (m *Model) extend(c *fsm.Extend) fsm.Result {
	q, j := m.lease(c.Ref)
	if j == nil {
		return fsm.Result{Code: fsm.StaleLease}
	}
	q.Counters.Extended++
	j.LeaseTTR = cmp.Or(c.TTR, j.LeaseTTR)
	j.Until = max(j.Until, m.Clock.After(j.LeaseTTR))
	return fsm.Result{Until: j.Until}
}

// cancel is rule Cancel.
func (m *Model) cancel(c *fsm.Cancel) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.JobNotFound}
	}
	j := q.byKeyedID(c.ID, c.Key)
	if j == nil {
		return m.notHeld(q, c.ID, c.Key)
	}
	if j.State == fsm.Reserved && !c.Force {
		return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved}
	}
	had := j.State
	q.Counters.Cancelled++
	m.endJob(q, j, fsm.Cancelled)
	return fsm.Result{State: had}
}

// notHeld answers for an id that no held job has, with the state remembered, if any.
func (m *Model) notHeld(q *queue, id, key string) fsm.Result {
	if t := m.tombstone(q, id, key); t != nil {
		return fsm.Result{Code: fsm.JobNotFound, State: t.State}
	}
	return fsm.Result{Code: fsm.JobNotFound}
}

// reschedule is rule Reschedule.
func (m *Model) reschedule(c *fsm.Reschedule) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.JobNotFound}
	}
	j := q.byKeyedID(c.ID, c.Key)
	switch {
	case j == nil:
		return m.notHeld(q, c.ID, c.Key)
	case j.State == fsm.Reserved:
		return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved}
	case j.State == fsm.Dead:
		return fsm.Result{Code: fsm.JobNotFound, State: fsm.Dead}
	}
	q.Counters.Rescheduled++
	j.Due = m.dueTime(c.Given, c.Delay, c.DueAt)
	j.State = m.stateAt(j.Due)
	m.changed(q, j.Key)
	return whereabouts(j)
}
