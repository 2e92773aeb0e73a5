package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// The rules of keys.
const (
	keyLimit Rule = 43
	keyOrder Rule = 44
	contents Rule = 45
)

// key is what the ledger says of the jobs of one key. Those without a key are as those of a key that
// nothing holds back. See fsm/keys/DESIGN.md.
type key struct {
	name string
	// ready are its READY jobs as they leave, line those that are READY or DELAYED by their places.
	ready, line agenda
	// leased and dead count its jobs in these states.
	leased, dead int
	// memory is the serial of what is remembered of it, 0 if nothing is.
	memory uint64
	rateAt fsm.Time
	round  uint64
	paused bool
}

// take returns the next serial of the shard.
func (b *Shard) take() uint64 {
	b.serial++
	return b.serial
}

// startKeys has the ledger follow the keys of a queue from now on.
func (b *Shard) startKeys(q *Queue) {
	if q.keys != nil {
		return
	}
	q.keys = map[string]*key{}
	for _, h := range [...]*agenda{&q.delayed, &q.ready, &q.leases, &q.dead} {
		for i := range h.entries {
			if t := &h.entries[i]; t.version == t.account.version {
				q.keyOf(t.account.Put.Key).join(t.account)
			}
		}
	}
}

// keyOf returns a key of a queue whose keys are followed.
func (q *Queue) keyOf(name string) *key {
	k := q.keys[name]
	if k == nil {
		k = &key{name: name}
		q.keys[name] = k
	}
	return k
}

// join adds a job in a held state.
func (k *key) join(a *Job) {
	switch a.State {
	case fsm.Ready:
		at, serial := a.position()
		k.ready.push(agendaEntry{priority: a.Priority(), at: at, serial: serial, account: a, version: a.version})
		fallthrough
	case fsm.Delayed:
		place := fsm.Time(cmp.Or(a.place, a.Serial)) //nolint:gosec // serials are small
		k.line.push(agendaEntry{at: place, account: a, version: a.version})
	case fsm.Reserved:
		k.leased++
	case fsm.Dead:
		k.dead++
	default:
	}
}

// leave takes a job out of the counts of its state.
func (k *key) leave(state fsm.State) {
	switch state {
	case fsm.Reserved:
		k.leased--
	case fsm.Dead:
		k.dead--
	default: // its places in heaps count no more
	}
}

// head is the job that a key hands out next if nothing holds it back, nil if there is none.
func (q *Queue) head(k *key) *Job {
	h := &k.ready
	if k.name != "" && q.Settings.Keys.Ordered {
		h = &k.line
	}
	if t := h.first(); t != nil && t.account.State == fsm.Ready {
		return t.account
	}
	return nil
}

// held says what holds the jobs of a key back other than its rate, empty if nothing does.
func (q *Queue) held(k *key) string {
	s := &q.Settings.Keys
	limit := int(s.Limit())
	switch {
	case k.name == "":
	case limit > 0 && k.leased >= limit:
		return "has as many leases as it may"
	case k.paused:
		return "is paused"
	case s.HoldOnDead && k.dead > 0:
		return "has a dead job"
	}
	return ""
}

// tokenAt is when a key has a token, 0 if it needs none.
func (q *Queue) tokenAt(k *key) fsm.Time {
	rate := &q.Settings.Keys.Rate
	if rate.Count == 0 || k.rateAt == 0 || k.name == "" {
		return 0
	}
	return max(0, k.rateAt-fsm.Time(q.tokenPeriod())*(fsm.Time(cmp.Or(rate.Burst, rate.Count))-1))
}

func (q *Queue) tokenPeriod() time.Duration {
	return max(1, q.Settings.Keys.Rate.Per/time.Duration(q.Settings.Keys.Rate.Count))
}

// eligible reports whether a key may hand out a job now.
func (b *Shard) eligible(q *Queue, k *key) bool {
	return q.head(k) != nil && q.held(k) == "" && q.tokenAt(k) <= b.clock
}

// remember changes what is remembered of a key: that lasts as long as it says something.
func (b *Shard) remember(k *key, change func()) {
	if k.memory == 0 {
		k.memory = b.take()
	}
	b.rated -= count(k.rateAt != 0)
	change()
	b.rated += count(k.rateAt != 0)
	if k.rateAt == 0 && k.round == 0 && !k.paused {
		k.memory = 0
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// takesRounds reports whether a key needs a round to hand out a job: those of a fair queue do, and
// those that need tokens.
func (q *Queue) takesRounds(k *key) bool {
	return q.Settings.Keys.Fair || k.name != "" && q.Settings.Keys.Rate.Count > 0
}

// changed is called after each change of a job: a key takes a round once it may hand out a job, and
// loses it when it may not.
func (b *Shard) changed(q *Queue, k *key) {
	if !q.takesRounds(k) || q.unsure {
		return
	}
	switch may := b.eligible(q, k); {
	case may && k.round == 0:
		b.remember(k, func() { k.round = b.take() })
	case !may && k.round != 0:
		b.remember(k, func() { k.round = 0 })
	}
}

// wake has keys take a round that got a token since. The first Reserve of an entry wakes a step of them,
// a later one as many as it asks for jobs.
func (b *Shard) wake(q *Queue, asked int) {
	most := asked
	if q.woken != b.entry.Index {
		q.woken, most = b.entry.Index, cmp.Or(b.cfg.WakeMax, fsm.StepMax)
	}
	if q.Settings.Keys.Rate.Count == 0 || q.unsure {
		return
	}
	keys := q.keysIf(func(k *key) bool { return k.round == 0 && q.takesRounds(k) && b.eligible(q, k) })
	slices.SortFunc(keys, func(x, y *key) int {
		return cmp.Or(cmp.Compare(q.tokenAt(x), q.tokenAt(y)), cmp.Compare(q.head(x).Serial, q.head(y).Serial))
	})
	for _, k := range keys[:min(len(keys), most)] {
		b.changed(q, k)
	}
}

// restartRounds has all keys take their rounds anew, in the order of their heads; the jobs without a key
// come last.
func (b *Shard) restartRounds(q *Queue) {
	for _, k := range q.keysIf(func(k *key) bool { return k.round != 0 }) {
		b.remember(k, func() { k.round = 0 })
	}
	if q.unsure {
		return
	}
	keys := q.keysIf(func(k *key) bool { return q.takesRounds(k) && b.eligible(q, k) })
	slices.SortFunc(keys, func(x, y *key) int {
		if x.name == "" || y.name == "" {
			return cmp.Compare(len(y.name), len(x.name))
		}
		return q.head(x).compare(q.head(y))
	})
	for _, k := range keys {
		b.changed(q, k)
	}
}

// keysIf returns the keys of a queue that match, in no order.
func (q *Queue) keysIf(match func(*key) bool) (keys []*key) {
	for _, k := range q.keys {
		if match(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// compare is the order in which READY jobs leave.
func (a *Job) compare(other *Job) int {
	at, serial := a.position()
	otherAt, otherSerial := other.position()
	return cmp.Or(cmp.Compare(a.Priority(), other.Priority()), cmp.Compare(at, otherAt), cmp.Compare(serial, otherSerial))
}

// first returns the READY job that leaves a queue next, nil if there is none that may. In a queue whose
// keys are followed it looks at each of them.
func (b *Shard) first(q *Queue) *Job {
	if q.keys == nil {
		if t := q.ready.first(); t != nil {
			return t.account
		}
		return nil
	}
	var first *Job
	round := uint64(0)
	for _, k := range q.keys {
		switch {
		case q.takesRounds(k) && k.round == 0:
		case q.Settings.Keys.Fair:
			if round == 0 || k.round < round {
				first, round = q.head(k), k.round
			}
		case k.round != 0 || b.eligible(q, k):
			if a := q.head(k); first == nil || a.compare(first) < 0 {
				first = a
			}
		}
	}
	return first
}

// granted takes a token of the key of a job, and ends its round.
func (b *Shard) granted(a *Job) {
	q := a.Queue
	if q.keys == nil || q.unsure {
		return
	}
	k := q.keyOf(a.Put.Key)
	if q.Settings.Keys.Rate.Count > 0 && k.name != "" {
		b.remember(k, func() { k.rateAt = max(k.rateAt, b.clock).Add(q.tokenPeriod()) })
	}
	if k.round != 0 {
		b.remember(k, func() { k.round = 0 })
	}
}

// judgeKey holds a grant against what its key allows.
func (b *Shard) judgeKey(a *Job, g *fsm.Grant) {
	q := a.Queue
	if a.Put.Key == "" || q.keys == nil {
		return
	}
	k := q.keyOf(a.Put.Key)
	b.look(keyLimit)
	if why := q.held(k); why != "" {
		b.violated(keyLimit, "job %d of %s was granted, whose key %q %s (%d leases)", g.Serial, q.Name, k.name, why, k.leased)
	}
	if at := q.tokenAt(k); at > b.clock && !q.unsure {
		b.violated(keyLimit, "job %d of %s was granted at %d, whose key %q has a token at %d", g.Serial, q.Name, b.clock,
			k.name, at)
	}
	if !q.Settings.Keys.Ordered || b.oneJob() {
		return
	}
	b.look(keyOrder)
	if t := k.line.first(); t != nil && t.account != a {
		b.violated(keyOrder, "job %d of %s was granted before job %d of its key %q, which was put before it", g.Serial,
			q.Name, t.account.Serial, k.name)
	}
}

// sweepKeys forgets at the end of an entry that buckets are full.
func (b *Shard) sweepKeys() {
	if b.rated == 0 {
		return
	}
	var full []*key
	for _, q := range b.queues {
		full = append(full, q.keysIf(func(k *key) bool { return k.rateAt != 0 && k.rateAt <= b.clock })...)
	}
	slices.SortFunc(full, func(x, y *key) int {
		return cmp.Or(cmp.Compare(x.rateAt, y.rateAt), cmp.Compare(x.memory, y.memory))
	})
	for _, k := range full[:min(len(full), fsm.SweepMax)] {
		b.remember(k, func() { k.rateAt = 0 })
	}
}

// pauseKey records that a key was paused or resumed.
func (b *Shard) pauseKey(c *fsm.PauseKey, r *fsm.Result) {
	if r.Code == fsm.Quota {
		return
	}
	q := b.present(keyLimit, c.Queue, r.Code)
	if q == nil || c.Key == "" {
		return
	}
	b.startKeys(q)
	k := q.keyOf(c.Key)
	if k.paused != c.Resume {
		return
	}
	b.effect(nil)
	q.Withheld = true
	if k.paused = !c.Resume; q.unsure {
		return
	}
	b.remember(k, func() {})
	b.changed(q, k)
}

// purgeKey records that jobs of a key were removed.
func (b *Shard) purgeKey(c *fsm.PurgeKey, r *fsm.Result) {
	q := b.present(24, c.Queue, r.Code)
	if q == nil {
		return
	}
	var jobs []*Job
	if c.Key != "" {
		jobs = b.jobsOf(q, c.Key, c.States)
	}
	n := min(uint64(len(jobs)), stepLimit(c.Max))
	for _, a := range jobs[:n] {
		q.counters.Purged++
		a.lift()
		a.why = purged
		b.endJob(a, fsm.Cancelled)
	}
	if n > 0 {
		b.effect(nil)
	}
	b.look(24)
	b.count("jobs purged", int64(n)) //nolint:gosec // a step
	if more := n < uint64(len(jobs)); r.Count != n || r.More != more {
		b.violated(24, "%d jobs of key %q of %s were purged (more: %v), should be %d (%v)", r.Count, c.Key, c.Queue, r.More,
			n, more)
	}
}

// jobsOf returns the held jobs of a key in the order in which they are purged.
func (b *Shard) jobsOf(q *Queue, name string, states fsm.StateSet) []*Job {
	group := func(a *Job) int {
		switch {
		case a.State == fsm.Ready, a.State == fsm.Delayed && q.Settings.Keys.Ordered:
			return 0
		case a.State == fsm.Delayed:
			return 1
		default: // RESERVED before DEAD
			return 1 + int(a.State)
		}
	}
	var jobs []*Job
	for _, a := range b.allJobs {
		if a.Queue == q && a.Put.Key == name && a.State.Held() && states.Has(a.State) && !a.gone {
			jobs = append(jobs, a)
		}
	}
	slices.SortFunc(jobs, func(x, y *Job) int {
		switch g := group(x); {
		case g != group(y):
			return cmp.Compare(g, group(y))
		case g > 0:
			return cmp.Compare(x.Serial, y.Serial)
		case q.Settings.Keys.Ordered:
			return cmp.Compare(cmp.Or(x.place, x.Serial), cmp.Or(y.place, y.Serial))
		default:
			return x.compare(y)
		}
	})
	return jobs
}

// adoptKeys has the keys of a queue counted anew when its jobs are taken over. How full their buckets are,
// and whose turn it is, is not known from then on.
func (b *Shard) adoptKeys(m *machine.Machine, q *Queue) {
	for _, k := range q.keys {
		k.ready, k.line, k.leased, k.dead, k.round, k.paused = agenda{}, agenda{}, 0, 0, 0, false
	}
	q.unsure = q.Settings.Keys.Fair || q.Settings.Keys.Rate.Count > 0
	for from := uint32(0); ; {
		page := m.Answer(&fsm.KeysQuery{Queue: q.Name, From: from, Scan: fsm.KeysScanMax}, b.clock)
		for i := range page.Keys {
			if page.Keys[i].Paused {
				b.startKeys(q)
				q.keyOf(page.Keys[i].Name).paused = true
			}
		}
		if from = page.Next; from == 0 {
			return
		}
	}
}
