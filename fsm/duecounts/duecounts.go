package duecounts

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/digest"
)

// dueLevel is a kind of slices.
type dueLevel uint32

const (
	dueMinute dueLevel = iota + 1
	dueHour
	dueDay
)

// shape returns how long a slice is, and how many a reader sees.
func (l dueLevel) shape() (length, seen fsm.Time) {
	switch l {
	case dueMinute:
		return fsm.Minute, 60
	case dueHour:
		return fsm.Hour, 24
	default:
		return fsm.Day, 30
	}
}

// dueKey names a slice: its level, and below that its number since the epoch. That of the last
// minute there is has 28 bits. 0 names none.
type dueKey uint32

func (l dueLevel) key(number fsm.Time) dueKey { return dueKey(l)<<28 | dueKey(number) }

// Counts counts DELAYED jobs by the minute, the hour and the day in which they fall due. It is a
// table with open addressing that holds no pointers. A slot whose count becomes 0 is kept until the
// table is full; then the others move to a new one, a few at each change, so that no change pays
// for the whole table. Until that has ended a slice may have a slot in both: its count is their
// sum, modulo 2^32.
type Counts struct {
	seed       uint64
	slots, old []dueSlot // their lengths are powers of 2; old is what moves
	used, live int       // slots that have a key, and those whose count is not 0
	moved      int       // slots of old
	// open is what the current entry adds to one minute and has not added to the slots yet. Most
	// jobs that an entry puts, or that fall due in it, fall due in the same minute.
	open struct {
		minute fsm.Time // since the epoch
		jobs   uint32
	}
}

// New returns counts of no jobs. seed keys the table.
func New(seed uint64) Counts { return Counts{seed: seed} }

type dueSlot struct {
	key  dueKey
	jobs uint32
}

const (
	dueSlotsMin = 8
	// dueMoves is how many slots move at a change: all have moved when an eighth as many slices were
	// added, and the new table has room for twice that at least.
	dueMoves = 8
)

// find returns the position of the slot of a key, or of the free slot where the key belongs.
func (c *Counts) find(slots []dueSlot, k dueKey) int {
	mask := len(slots) - 1
	for i := int(digest.Hasher(c.seed).Word(uint64(k))) & mask; ; i = (i + 1) & mask {
		if found := slots[i].key; found == k || found == 0 {
			return i
		}
	}
}

// add adds n jobs, modulo 2^32, to a slice.
func (c *Counts) add(k dueKey, n uint32) {
	if c.used >= len(c.slots)/4*3 {
		c.grow()
	}
	c.put(k, n)
	if c.old != nil {
		c.move()
	}
}

func (c *Counts) put(k dueKey, n uint32) {
	s := &c.slots[c.find(c.slots, k)]
	if s.key == 0 {
		s.key = k
		c.used++
	}
	if s.jobs == 0 {
		c.live++
	}
	if s.jobs += n; s.jobs == 0 {
		c.live--
	}
}

// grow begins a new table, twice as large as the full one, or as large, or half, by how much of
// that is in use.
func (c *Counts) grow() {
	c.moveAll() // all has moved long ago
	n := max(dueSlotsMin, len(c.slots))
	switch {
	case c.live > n/8*3:
		n *= 2
	case c.live < n/8:
		n = max(dueSlotsMin, n/2)
	}
	c.old, c.slots = c.slots, make([]dueSlot, n)
	c.used, c.live, c.moved = 0, 0, 0
}

// move moves a few slots to the new table.
func (c *Counts) move() {
	end := min(c.moved+dueMoves, len(c.old))
	for _, s := range c.old[c.moved:end] {
		if s.jobs != 0 {
			c.put(s.key, s.jobs)
		}
	}
	if c.moved = end; end == len(c.old) {
		c.old = nil
	}
}

func (c *Counts) moveAll() {
	for c.old != nil {
		c.move()
	}
}

// jobs returns how many jobs fall due in a slice.
func (c *Counts) jobs(k dueKey) uint64 {
	if len(c.slots) == 0 {
		return 0
	}
	n := c.slots[c.find(c.slots, k)].jobs
	if c.old != nil {
		if i := c.find(c.old, k); i >= c.moved {
			n += c.old[i].jobs
		}
	}
	return uint64(n)
}

// sum adds the slices of a level from one number up to another up.
func (c *Counts) sum(l dueLevel, from, to fsm.Time) (n uint64) {
	for number := from; number < to; number++ {
		n += c.jobs(l.key(number))
	}
	return n
}

// row returns the slices of a level that are seen at a time, without empty ones, and their sum. Of
// the first one past jobs are left out. No job is due before first.
func (c *Counts) row(l dueLevel, now, first fsm.Time, past uint64) (list []fsm.DueSlice, sum uint64) {
	length, seen := l.shape()
	var room [60]fsm.DueSlice
	found := room[:0]
	for number := max(now, first) / length; number < now/length+seen; number++ {
		n := c.jobs(l.key(number)) - past
		if past = 0; n > 0 {
			found = append(found, fsm.DueSlice{Start: number * length, Jobs: n})
			sum += n
		}
	}
	return append(list, found...), sum
}

// Close adds what is open to the slots.
func (c *Counts) Close() {
	at, n := c.open.minute*fsm.Minute, c.open.jobs
	if c.open.jobs = 0; n == 0 {
		return
	}
	c.add(dueMinute.key(at/fsm.Minute), n)
	c.add(dueHour.key(at/fsm.Hour), n)
	c.add(dueDay.key(at/fsm.Day), n)
}

// Count counts a job that becomes DELAYED, 1, or ceases to be, -1 modulo 2^32. Close must follow
// at the end of the entry.
func (c *Counts) Count(due fsm.Time, n uint32) {
	if c.open.minute != due/fsm.Minute {
		c.Close()
		c.open.minute = due / fsm.Minute
	}
	c.open.jobs += n
}

// CountMinute counts a restored job in its minute only. Derive must follow when all jobs are
// counted so. That costs half of what Count and Close cost for each job.
func (c *Counts) CountMinute(due fsm.Time) { c.add(dueMinute.key(due/fsm.Minute), 1) }

// Derive counts the hours and the days from the minutes.
func (c *Counts) Derive() {
	c.moveAll()
	for _, s := range c.slots { // hours and days may come to lie here, too, or in a new table
		if number := fsm.Time(s.key - dueMinute.key(0)); s.jobs != 0 && s.key < dueHour.key(0) {
			c.add(dueHour.key(number*fsm.Minute/fsm.Hour), s.jobs)
			c.add(dueDay.key(number*fsm.Minute/fsm.Day), s.jobs)
		}
	}
}

// View returns when the DELAYED jobs fall due, as seen from now. first is the due time of the first
// of them, 0 if there is none; counts are those of the queue.
func (c *Counts) View(now, first fsm.Time, counts *fsm.Counts) (v fsm.Due) {
	if counts.Delayed == 0 {
		v.Overdue = counts.Ready
		return v
	}
	var days, hours, minutes uint64 // that are past: of a backlog, or while a restore is open
	if first != 0 && first/fsm.Minute < now/fsm.Minute {
		days = c.sum(dueDay, first/fsm.Day, now/fsm.Day)
		hours = c.sum(dueHour, max(first/fsm.Hour, now/fsm.Day*(fsm.Day/fsm.Hour)), now/fsm.Hour)
		minutes = c.sum(dueMinute, max(first/fsm.Minute, now/fsm.Hour*(fsm.Hour/fsm.Minute)), now/fsm.Minute)
	}
	v.Minute = c.jobs(dueMinute.key(now / fsm.Minute))
	v.Minutes, v.Hour = c.row(dueMinute, now, first, 0)
	v.Hours, v.Day = c.row(dueHour, now, first, minutes)
	v.Days, v.Month = c.row(dueDay, now, first, minutes+hours)
	past := days + hours + minutes
	v.Overdue, v.Later = counts.Ready+past, counts.Delayed-past-v.Month
	return v
}
