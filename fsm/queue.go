package fsm

import (
	"strings"
	"time"
)

// Counters are the totals of one queue since its creation. Put = held + Acked + Cancelled + Expired
// + Purged at any time.
type Counters struct {
	Put, Duplicate, Granted, Acked, Nacked, Released, Lapsed, Extended uint64
	Cancelled, Expired, Died, Redriven, Rescheduled, Purged            uint64
}

// Counts are the held jobs of one queue by state, and their bytes. They are exact as of the last
// entry.
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
	// OldestReady is the due time of the oldest ready job, NextDue the due time of the first delayed
	// one; 0 if there is none.
	OldestReady, NextDue Time
	Created              Time
	// Format selects the defaults of the queue: see DefaultRetryDelays.
	Format Format
	Due    Due
	// Tombstones is the number of ended ids remembered, DedupSince the time since which all are: the
	// window that really holds.
	Tombstones uint64
	DedupSince Time
	// Urgent is how many READY jobs have a priority below UrgentBelow.
	Urgent uint64
	// Recent is what it did lately, nil where that is not known. Only readings have it.
	Recent *Recent
	// Parked is how many calls of Reserve wait for its jobs at the leader of the shard; nil where that is
	// not known. The machine does not set it: the node that leads does, in readings.
	Parked *uint64
}

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
	// Format is the format that the shard spoke when the queue was created. The queue keeps its
	// defaults.
	Format Format
	// RateAt is the time at which the token bucket is full again; see TakeToken of fsm/rule.
	RateAt Time
	// OverdueFrom and OverdueTo bound the window (from, to] that the overdue policy applies to; both 0
	// if there is none.
	OverdueFrom, OverdueTo Time
	// Forgotten is the end of the youngest tombstone that was forgotten for want of room.
	Forgotten Time
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

// List returns the counts in the order of their encoding.
func (c *Counts) List() [5]uint64 {
	return [...]uint64{c.Delayed, c.Ready, c.Reserved, c.Dead, c.Bytes}
}

// Set takes what List returned.
func (c *Counts) Set(v [5]uint64) {
	c.Delayed, c.Ready, c.Reserved, c.Dead, c.Bytes = v[0], v[1], v[2], v[3], v[4]
}

// List returns the counters in the order of their encoding.
func (c *Counters) List() [14]uint64 {
	return [...]uint64{
		c.Put, c.Duplicate, c.Granted, c.Acked, c.Nacked, c.Released, c.Lapsed, c.Extended,
		c.Cancelled, c.Expired, c.Died, c.Redriven, c.Rescheduled, c.Purged,
	}
}

// Set takes what List returned.
func (c *Counters) Set(v [14]uint64) {
	c.Put, c.Duplicate, c.Granted, c.Acked, c.Nacked, c.Released, c.Lapsed, c.Extended = v[0], v[1], v[2], v[3], v[4],
		v[5], v[6], v[7]
	c.Cancelled, c.Expired, c.Died, c.Redriven, c.Rescheduled, c.Purged = v[8], v[9], v[10], v[11], v[12], v[13]
}

// Due is when jobs fall due, by slices of time that begin at whole minutes, hours and days of UTC.
// The first slice of each kind is the present one, so that the next hour is the present minute and
// the 59 after it. Counts are exact as of the last entry.
type Due struct {
	// Overdue counts READY jobs, and DELAYED ones whose minute is over.
	Overdue uint64
	// Minute, Hour, Day and Month count DELAYED jobs that fall due in the present minute, in 60
	// minutes, in 24 hours, in 30 days; each counts what the one before does. Later counts the rest.
	Minute, Hour, Day, Month, Later uint64
	// Minutes, Hours and Days are the slices that Hour, Day and Month add up, in their order, without
	// empty ones.
	Minutes, Hours, Days []DueSlice
}

// DueSlice is how many jobs fall due in a minute, an hour or a day, and when that begins.
type DueSlice struct {
	Start Time
	Jobs  uint64
}

// The lengths of the slices of Due.
const (
	Minute = Time(time.Minute)
	Hour   = Time(time.Hour)
	Day    = Time(24 * time.Hour)
)

// RecentWindow is the time over which a machine counts the recent activity of a queue.
const RecentWindow = time.Minute

// LateBuckets is the number of buckets of lateness: bucket i counts what is below 2^i ms, the last
// one the rest.
const LateBuckets = 32

// Recent is the activity of a queue within the last RecentWindow. It is derived from the entries:
// all replicas that applied the same entries have the same counts, whichever leads. It is in no
// snapshot: a machine counts from its restore on.
type Recent struct {
	// Window is the time that the counts are of: RecentWindow, or less soon after a restore.
	Window Duration
	// Puts, Grants and Acks are those of Counters.
	Puts, Grants, Acks uint64
	// Late counts first attempts by how long after their due time they were leased. LateMax is the
	// longest of these times.
	Late    [LateBuckets]uint64
	LateMax Duration
}

// MinutesKept is how many minutes of a queue's activity a machine remembers.
const MinutesKept = 60

// QueueMinute is the activity of a queue in a minute of UTC. As Recent, it is derived from the entries
// and in no snapshot.
type QueueMinute struct {
	Start Time
	// Puts, Grants and Acks are those of Counters; Failures are Nacked and Lapsed.
	Puts, Grants, Acks, Failures uint32
	// Half of the first attempts were leased at most LateP50 after their due time, 99 of 100 at most
	// LateP99. Both are rounded up, by less than a factor of 2.
	LateP50, LateP99 Duration
}

// Usage is what the queues of a namespace hold in one shard: jobs, their bytes, and leases that are
// live or lapsed and not settled. It is exact as of the last entry.
type Usage struct{ Jobs, Bytes, InFlight uint64 }

// NamespaceOf returns the namespace of a queue, "" if its name has none.
func NamespaceOf(queue string) string {
	name, _, ok := strings.Cut(queue, "/")
	if !ok {
		return ""
	}
	return name
}
