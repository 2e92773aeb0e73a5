package sim

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// newKeyedQueues makes the queues that have keys and schedules: one of a single partition, and one with
// a partition in each shard, whose ids are unique for each key.
func newKeyedQueues(w *world) []*queue {
	list := []*queue{
		{name: "keyed", partitions: 1, believed: 1},
		{name: "ns/spread", partitions: uint32(len(w.shards)), believed: 1},
	}
	for _, q := range list {
		q.keyed, q.late, q.idsMost = true, true, 5
		q.settings = fsm.Settings{
			TTR: pick(w.r, 0, 2*time.Second), MaxAttempts: uint32(1 + w.r.IntN(3)), MaxAttemptsSet: w.chance(60),
			ExpireToDead: w.chance(50), DedupWindow: pick(w.r, time.Second, time.Minute), DedupWindowSet: w.chance(70),
			Keys: w.keySettings(w.chance(35)),
		}
		q.place(w)
	}
	return list
}

// keySettings draws limits of keys. Servers do not change ordered while a queue holds jobs, so it stays.
func (w *world) keySettings(ordered bool) fsm.KeySettings {
	k := fsm.KeySettings{Ordered: ordered, Concurrency: 1}
	if !ordered {
		k.Concurrency = pick[uint32](w.r, 0, 1, 1, 1, 2, 3)
	}
	if w.chance(25) {
		k.Rate = fsm.KeyRate{Count: 1 + uint32(w.r.IntN(3)), Per: pick(w.r, time.Second, 10*time.Second, time.Minute),
			Burst: uint32(w.r.IntN(3))}
	}
	k.Fair, k.HoldOnDead, k.Refused = w.chance(40), w.chance(20), w.chance(4)
	return k
}

// isKeyed reports whether a queue has keys.
func (w *world) isKeyed(name string) bool {
	for _, q := range w.keyed {
		if q.name == name {
			return true
		}
	}
	return false
}

// keyNames are the keys of jobs. They are few, so that their jobs meet; most jobs have the first.
func keyNames() []string { return []string{"k0", "k1", "k2"} }

// key picks a key, or none.
func (c *crowd) key() string { return pick(c.w.r, append(keyNames(), keyNames()[0], "")...) }

// actOnKeys lets a client do something with the queues that have keys.
func (c *crowd) actOnKeys() {
	w := c.w
	q := pick(w.r, w.keyed...)
	switch n := w.r.IntN(100); {
	case n < 28:
		c.put(q, 1)
	case n < 33:
		c.put(q, 2+w.r.IntN(4))
	case n < 54:
		c.reserve(w.keyed)
	case n < 57:
		c.reserve(slices.Concat(w.keyed, w.queues))
	case n < 73:
		c.work()
	case n < 75:
		c.cancel(w.keyed)
	case n < 77:
		c.reschedule(w.keyed)
	case n < 79:
		c.redrive(w.keyed)
	case n < 80:
		c.purge(w.keyed)
	case n < 86:
		c.actOnKey(q)
	case n < 89:
		c.administerKeys(q)
	default:
		c.actOnSchedule(q)
	}
}

// addKey gives a put a key, unless it repeats an earlier one, and says what it does to a job of its id.
func (c *crowd) addKey(q *queue, p *fsm.Put) {
	w := c.w
	if p.ID == "" || q.puts[p.ID] == p {
		p.Key = c.key()
	}
	if p.ID == "" {
		return
	}
	p.MaxWait, p.IfVersion = 0, 0
	p.OnExisting = pick(w.r, fsm.ReturnExisting, fsm.KeepExisting, fsm.ReplaceExisting, fsm.NextExisting, fsm.NextExisting)
	if p.OnExisting >= fsm.ReplaceExisting && w.chance(40) {
		p.MaxWait = c.duration()
	}
	if w.chance(12) {
		p.IfVersion = 1 + w.r.Uint64N(3)
	}
}

// actOnKey pauses, resumes or purges a key, where its jobs are.
func (c *crowd) actOnKey(q *queue) {
	key := pick(c.w.r, keyNames()...)
	s := c.w.shardOf(q, q.partitionOf(key, q.believed))
	switch c.w.r.IntN(5) {
	case 0:
		states := pick(c.w.r, fsm.Set(fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead), fsm.Set(fsm.Dead), fsm.Set(fsm.Ready))
		c.ask(s, "admin", &fsm.PurgeKey{Queue: q.name, Key: key, States: states, Max: pick[uint32](c.w.r, 0, 0, 1)})
	case 1:
		c.ask(s, "admin", &fsm.PauseKey{Queue: q.name, Key: key})
	default:
		c.ask(s, "admin", &fsm.PauseKey{Queue: q.name, Key: key, Resume: true})
	}
}

// administerKeys changes the limits of the keys of a queue, and of the queue.
func (c *crowd) administerKeys(q *queue) {
	w := c.w
	q.settings.Keys = w.keySettings(q.settings.Keys.Ordered)
	q.settings.Paused, q.settings.PausedUntil = w.chance(8), w.now+fsm.Time(c.duration())
	q.settings.MaxInFlight = pick[uint64](w.r, 0, 0, 0, 3)
	q.settings.MaxJobs = pick[uint64](w.r, 0, 0, 0, 8)
	q.settings.MaxBytes = pick[uint64](w.r, 0, 0, 0, 100)
	q.settings.PutsPerSecond = pick[uint64](w.r, 0, 0, 0, 3)
	if w.chance(15) && q.version > 1 {
		q.version-- // an old catalog leader: ignored
	}
	w.configure(q)
}

// drainKeyed takes all jobs out of the queues with keys, and brings the dead back for the next round. It
// returns how much is left.
func (s *shard) drainKeyed() int {
	w := s.w
	for _, a := range s.reference.Held() {
		if a.State != fsm.Dead {
			w.now = max(w.now, max(a.Due, a.Until).Add(w.skew+time.Millisecond))
		}
	}
	for _, q := range w.keyed {
		if !slices.Contains(q.ranked[:q.believed], s.number) {
			continue
		}
		for _, key := range keyNames() {
			w.crowd.ask(s, "drain", &fsm.PauseKey{Queue: q.name, Key: key, Resume: true})
		}
		for try := 0; s.takeOut(q.name) && try < triesMax; try++ {
			s.run() // a key may hand out the next one now
		}
		w.crowd.ask(s, "drain", &fsm.Redrive{Queue: q.name})
		s.run()
	}
	return len(s.reference.Held())
}
