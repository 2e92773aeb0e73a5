package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// memory returns what is remembered of a key, nil if nothing is.
func (q *queue) memory(key string) *fsm.KeyMemory {
	for i := range q.memories {
		if q.memories[i].Key == key {
			return &q.memories[i]
		}
	}
	return nil
}

// remember changes what is remembered of a key: that lasts as long as it says something.
func (m *Model) rememberKey(q *queue, key string, change func(*fsm.KeyMemory)) {
	if q.memory(key) == nil {
		q.memories = append(q.memories, fsm.KeyMemory{Queue: q.Name, Key: key, Serial: m.nextSerial()})
	}
	change(q.memory(key))
	q.memories = slices.DeleteFunc(q.memories, func(k fsm.KeyMemory) bool {
		return k.RateAt == 0 && k.Round == 0 && !k.Paused
	})
}

func (q *queue) round(key string) uint64 {
	if k := q.memory(key); k != nil {
		return k.Round
	}
	return 0
}

// tokenAt is when a key has a token, 0 if it has one.
func (q *queue) tokenAt(key string) fsm.Time {
	k, rate := q.memory(key), q.Settings.Keys.Rate
	if k == nil || rate.Count == 0 {
		return 0
	}
	return max(0, k.RateAt-fsm.Time(q.tokenPeriod())*(fsm.Time(cmp.Or(rate.Burst, rate.Count))-1))
}

func (q *queue) tokenPeriod() time.Duration {
	return max(1, q.Settings.Keys.Rate.Per/time.Duration(q.Settings.Keys.Rate.Count))
}

// ofKey matches the jobs of a key in one of the given states.
func ofKey(key string, states ...fsm.State) func(*job) bool {
	return func(j *job) bool { return j.Key == key && slices.Contains(states, j.State) }
}

// byPlace is the order of the jobs of a key in an ordered queue.
func byPlace(a, b *job) int {
	return cmp.Compare(cmp.Or(a.Place, a.Serial), cmp.Or(b.Place, b.Serial))
}

// head is the job that a key would hand out next if nothing held it back, nil if there is none.
func (q *queue) head(key string) *job {
	jobs := q.jobsBy(byRank, ofKey(key, fsm.Ready))
	if key != "" && q.Settings.Keys.Ordered {
		jobs = q.jobsBy(byPlace, ofKey(key, fsm.Ready, fsm.Delayed))
	}
	if len(jobs) == 0 || jobs[0].State != fsm.Ready {
		return nil
	}
	return jobs[0]
}

// concurrency is how many leases a key may have.
func (q *queue) concurrency() int {
	switch s := &q.Settings.Keys; {
	case s.Ordered:
		return 1
	case s.Concurrency > 0:
		return int(s.Concurrency)
	default:
		return len(q.jobs)
	}
}

// unblocked reports whether a key may hand out a job as soon as it has a token (rule Keys).
func (q *queue) unblocked(key string) bool {
	if key == "" || q.head(key) == nil {
		return q.head(key) != nil
	}
	k := q.memory(key)
	return len(q.jobsBy(byDue, ofKey(key, fsm.Reserved))) < q.concurrency() && (k == nil || !k.Paused) &&
		(!q.Settings.Keys.HoldOnDead || len(q.jobsBy(byDue, ofKey(key, fsm.Dead))) == 0)
}

func (m *Model) eligible(q *queue, key string) bool {
	return q.unblocked(key) && (key == "" || q.tokenAt(key) <= m.Clock)
}

// keysOf returns the keys that jobs have, and the empty one.
func (q *queue) keysOf() []string {
	list := []string{""}
	for _, j := range q.jobs {
		if !slices.Contains(list, j.Key) {
			list = append(list, j.Key)
		}
	}
	return list
}

// takesRounds reports whether a key needs a round to hand out jobs.
func (q *queue) takesRounds(key string) bool {
	return q.Settings.Keys.Fair || q.Settings.Keys.Rate.Count > 0 && key != ""
}

// changed is called after each change of a job of a key. A key that becomes eligible takes its turn
// after all others.
func (m *Model) changed(q *queue, key string) {
	if !q.takesRounds(key) || m.resetting {
		return
	}
	switch may := m.eligible(q, key); {
	case may && q.round(key) == 0:
		m.rememberKey(q, key, func(k *fsm.KeyMemory) { k.Round = m.nextSerial() })
	case !may && q.round(key) != 0:
		m.rememberKey(q, key, func(k *fsm.KeyMemory) { k.Round = 0 })
	}
}

// wake has keys take their turns that got a token: at the first Reserve of an entry at most WakeMax, at
// a later one as many as it asks for.
func (m *Model) wake(q *queue, asked int) {
	most := asked
	if !m.woken[q] {
		m.woken[q], most = true, m.cfg.WakeMax
	}
	keys := slices.DeleteFunc(q.keysOf(), func(key string) bool {
		return !q.takesRounds(key) || !m.eligible(q, key) || q.round(key) != 0
	})
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(q.tokenAt(a), q.tokenAt(b)), cmp.Compare(q.head(a).Serial, q.head(b).Serial))
	})
	for _, key := range atMost(keys, most) {
		m.changed(q, key)
	}
}

// next returns the job to hand out next, nil if there is none.
func (m *Model) next(q *queue) *job {
	var first *job
	for _, key := range q.keysOf() {
		may := q.round(key) != 0
		if !q.takesRounds(key) {
			may = m.eligible(q, key)
		}
		if j := q.head(key); may && (first == nil || q.before(j, first)) {
			first = j
		}
	}
	return first
}

// before reports whether a job that may be handed out comes before another one.
func (q *queue) before(a, b *job) bool {
	if q.Settings.Keys.Fair {
		return q.round(a.Key) < q.round(b.Key)
	}
	return byRank(a, b) < 0
}

// granted takes a token of the key of a job, and ends its turn.
func (m *Model) granted(q *queue, j *job) {
	if q.Settings.Keys.Rate.Count > 0 && j.Key != "" {
		m.rememberKey(q, j.Key, func(k *fsm.KeyMemory) { k.RateAt = max(k.RateAt, m.Clock).Add(q.tokenPeriod()) })
	}
	if q.round(j.Key) != 0 {
		m.rememberKey(q, j.Key, func(k *fsm.KeyMemory) { k.Round = 0 })
	}
}

// restartRounds has the keys of a queue take their turns anew, in the order of their first jobs; the
// jobs without a key come last.
func (m *Model) restartRounds(q *queue) {
	for _, k := range slices.Clone(q.memories) {
		if k.Round != 0 {
			m.rememberKey(q, k.Key, func(k *fsm.KeyMemory) { k.Round = 0 })
		}
	}
	keys := slices.DeleteFunc(q.keysOf(), func(key string) bool { return !m.eligible(q, key) })
	slices.SortFunc(keys, func(a, b string) int {
		if a == "" || b == "" {
			return cmp.Compare(len(b), len(a))
		}
		return byRank(q.head(a), q.head(b))
	})
	for _, key := range keys {
		m.changed(q, key)
	}
}

// sweepKeys forgets buckets that are full.
func (m *Model) sweepKeys() {
	for range fsm.SweepMax {
		var owner *queue
		var first *fsm.KeyMemory
		for _, q := range m.queues {
			for i := range q.memories {
				k := &q.memories[i]
				if k.RateAt != 0 && k.RateAt <= m.Clock && (first == nil || k.RateAt < first.RateAt ||
					k.RateAt == first.RateAt && k.Serial < first.Serial) {
					owner, first = q, k
				}
			}
		}
		if first == nil {
			return
		}
		m.rememberKey(owner, first.Key, func(k *fsm.KeyMemory) { k.RateAt = 0 })
	}
}

// pauseKey is rule PauseKey.
func (m *Model) pauseKey(c *fsm.PauseKey) (result fsm.Result, changed bool) {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	k := q.memory(c.Key)
	if paused := k != nil && k.Paused; c.Key == "" || paused != c.Resume {
		return fsm.Result{}, false
	}
	sum := 0
	for _, q := range m.queues {
		for _, k := range q.memories {
			if k.Paused {
				sum++
			}
		}
	}
	if !c.Resume && sum >= fsm.PausedKeysMax {
		return fsm.Result{Code: fsm.Quota}, false
	}
	m.rememberKey(q, c.Key, func(k *fsm.KeyMemory) { k.Paused = !c.Resume })
	m.changed(q, c.Key)
	return fsm.Result{}, true
}

// purgeKey is rule PurgeKey.
func (m *Model) purgeKey(c *fsm.PurgeKey) fsm.Result {
	q := m.name(c.Queue)
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	if c.Key == "" {
		return fsm.Result{}
	}
	var jobs []*job
	add := func(o order, states ...fsm.State) {
		for _, j := range q.jobsBy(o, ofKey(c.Key, states...)) {
			if c.States.Has(j.State) {
				jobs = append(jobs, j)
			}
		}
	}
	bySerial := func(a, b *job) int { return cmp.Compare(a.Serial, b.Serial) }
	if q.Settings.Keys.Ordered {
		add(byPlace, fsm.Ready, fsm.Delayed)
	} else {
		add(byRank, fsm.Ready)
		add(bySerial, fsm.Delayed)
	}
	add(bySerial, fsm.Reserved)
	add(bySerial, fsm.Dead)
	removed := atMost(jobs, step(c.Max))
	for _, j := range removed {
		q.Counters.Purged++
		m.dropJob(q, j, fsm.Cancelled)
	}
	return fsm.Result{Count: uint64(len(removed)), More: len(jobs) > len(removed)}
}

// grants is how many jobs of a key that nothing blocks may be handed out at once. A key with a bucket
// counts as one.
func (q *queue) grants(key string) uint64 {
	n := len(q.jobsBy(byRank, ofKey(key, fsm.Ready)))
	if q.Settings.Keys.Rate.Count > 0 || q.Settings.Keys.Ordered {
		n = min(n, 1)
	}
	return uint64(min(n, q.concurrency()-len(q.jobsBy(byDue, ofKey(key, fsm.Reserved)))))
}
