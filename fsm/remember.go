package fsm

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// answerOverheadBytes is what a remembered request counts besides its encoded bytes.
const answerOverheadBytes = 64

// answers are the remembered requests: found by (caller, id), forgotten oldest first.
type answers struct {
	records pages[answer]
	blobs   *blobs
	table   table
	// order holds the places in the order of remembering. A place that was forgotten out of turn is still in it: its seq tells.
	order []answerTurn
	head  int
	seq   uint64
	bytes int64
	// encoded and blob are memory for the answer that is being remembered.
	encoded, blob []byte
}

// answer is one remembered request; its blob is a uvarint length and the encoded Answer.
type answer struct {
	seq   uint64
	at    Time
	blob  blobRef
	bytes int64
	hash  uint32 // of (caller, id)
}

type answerTurn struct {
	place uint32
	seq   uint64
}

func newAnswers(b *blobs) answers {
	return answers{records: newPages[answer](10), blobs: b, table: newTable()}
}

func (a *answers) at(place uint32) []byte {
	b := a.blobs.at(a.records.at(place).blob)
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)]
}

// find returns the place of a remembered request, 0 if there is none.
func (a *answers) find(hash uint32, caller, id string) uint32 {
	return a.table.find(hash, func(place uint32) bool {
		r := reader{b: a.at(place)}
		return string(r.bytes()) == caller && string(r.bytes()) == id
	})
}

// oldest returns the request remembered longest.
func (a *answers) oldest() (place uint32, ok bool) {
	if a.head = a.first(); a.head < len(a.order) {
		return a.order[a.head].place, true
	}
	a.order, a.head = nil, 0
	return 0, false
}

// first returns where in the order the request is that is remembered longest, its length if there is none.
func (a *answers) first() int {
	for i := a.head; i < len(a.order); i++ {
		t := a.order[i]
		if a.records.live[t.place>>a.records.shift] > 0 && a.records.at(t.place).seq == t.seq {
			return i
		}
	}
	return len(a.order)
}

// recall fills results with what is to be answered without carrying the request out, and reports whether it is so. known
// is the place of the remembered request, 0 if there is none.
func (m *Machine) recall(known uint32, r *requestHeader, content [16]byte, results []Result) bool {
	if known == 0 || m.answers.records.at(known).at.Add(RequestWindow) < m.scalars.Clock {
		if at, ok := uuid7Time(r.id); ok && (at.Add(RequestWindow) < m.scalars.Clock || at <= m.scalars.LowWater) {
			fill(results, Result{Code: RequestExpired})
			return true
		}
		return false
	}
	rd := reader{b: m.answers.at(known)}
	a := rd.answer()
	if a.Content != content || len(a.Results) != len(results) {
		fill(results, Result{Code: Invalid})
		return true
	}
	if len(r.encoded) > 0 && Kind(r.encoded[0]) == KindReserve && r.commands == 1 {
		a.Results[0].Grants = m.liveGrants(a.Results[0].Grants, m.scalars.Clock)
		if len(a.Results[0].Grants) == 0 {
			return false
		}
	}
	for i := range a.Results {
		results[i] = a.Results[i]
		results[i].Replayed = true
	}
	return true
}

func fill(results []Result, r Result) {
	for i := range results {
		results[i] = r
	}
}

// liveGrants returns the grants whose leases are live at the given time.
func (m *Machine) liveGrants(grants []Grant, now Time) []Grant {
	var live []Grant
	for _, g := range grants {
		q := m.queues.byName[g.Queue]
		if q == nil {
			continue
		}
		if j := (job{m.store.bySerial(q.place, g.Serial), q}); j.place != 0 && m.slot(j).state() == Reserved {
			if held := m.grantOf(j); held.fence == g.Fence && now < held.until {
				live = append(live, g)
			}
		}
	}
	return live
}

// remember stores the results of a request that changed something.
func (m *Machine) remember(a *Answer) {
	m.answers.encoded = appendAnswer(m.answers.encoded[:0], a)
	m.sum += hashAnswerBytes(a.At, m.answers.encoded)
	m.answers.add(m.cfg.Seed, a, m.answers.encoded)
	for m.answers.bytes > m.cfg.AnswersBytesMax {
		place, ok := m.answers.oldest()
		if !ok {
			break
		}
		m.scalars.LowWater = m.answers.records.at(place).at
		m.forgetAnswer(place)
	}
}

func (a *answers) add(seed uint64, v *Answer, encoded []byte) {
	place := a.records.alloc()
	a.seq++
	a.blob = append(binary.AppendUvarint(a.blob[:0], uint64(len(encoded))), encoded...)
	rec := answer{
		hash: requestKeyHash(seed, v.Caller, v.ID), seq: a.seq, at: v.At, blob: a.blobs.put(a.blob),
		bytes: int64(len(encoded)) + answerOverheadBytes,
	}
	*a.records.edit(place) = rec
	a.bytes += rec.bytes
	a.table.insert(rec.hash, place)
	if a.head > len(a.order)/2 && a.head > 1024 {
		a.order, a.head = slices.Clone(a.order[a.head:]), 0 // a copy, since a snapshot may read the old one
	}
	a.order = append(a.order, answerTurn{place, a.seq})
}

func (m *Machine) forgetAnswer(place uint32) {
	a := &m.answers
	rec := *a.records.at(place)
	m.sum -= hashAnswerBytes(rec.at, a.at(place))
	a.table.remove(rec.hash, place)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	a.records.release(place)
}

// uuid7Time returns the time in a request id that is a UUID of version 7 (RFC 9562, section 5.7). The edge makes the ids of the
// parts of a request, and of its second round, by adding a # or a ~ and more to it.
func uuid7Time(id string) (Time, bool) {
	if i := strings.IndexAny(id, "#~"); i >= 0 {
		id = id[:i]
	}
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' || id[14] != '7' {
		return 0, false
	}
	var b [16]byte
	digits := id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:]
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil || b[8]>>6 != 2 {
		return 0, false
	}
	ms := binary.BigEndian.Uint64(b[:8]) >> 16
	if ms > uint64(TimeMax)/uint64(time.Millisecond) {
		return TimeMax, true
	}
	return Time(ms) * Time(time.Millisecond), true
}

// finished are the leases that an ack ended, so that an ack that is repeated can be told from a stale one.
type finished struct {
	records  pages[finishedLease]
	byFence  table
	byExpiry order
}

type finishedLease struct {
	fence, serial uint64
	expiry        Time
}

// finishedShift makes pages of 2,048 leases of 24 bytes.
const finishedShift = 11

func (f *finished) has(serial, fence uint64, now Time) bool {
	return f.byFence.find(serialHash(fence), func(place uint32) bool {
		l := f.records.at(place)
		return l.fence == fence && l.serial == serial && now <= l.expiry
	}) != 0
}

// finish remembers an acked lease, after making room for it.
func (m *Machine) finish(serial, fence uint64, expiry Time) {
	for m.finished.records.count() >= m.cfg.FinishedMax {
		k, _ := m.finished.byExpiry.min()
		m.forgetFinished(k.place)
	}
	m.addFinished(finishedLease{fence: fence, serial: serial, expiry: expiry})
}

func (m *Machine) addFinished(l finishedLease) {
	f := &m.finished
	place := f.records.alloc()
	*f.records.edit(place) = l
	f.byFence.insert(serialHash(l.fence), place)
	f.byExpiry.insert(place)
	m.sum += HashFinished(l.serial, l.fence, l.expiry)
}

func (m *Machine) forgetFinished(place uint32) {
	f := &m.finished
	l := *f.records.at(place)
	f.byFence.remove(serialHash(l.fence), place)
	f.byExpiry.remove(place)
	f.records.release(place)
	m.sum -= HashFinished(l.serial, l.fence, l.expiry)
}

// NextForget returns the earliest stamp of an entry that forgets something because its time is over; none if nothing is remembered but what is kept
// without end.
func (m *Machine) NextForget() (next Time, ok bool) {
	sooner := func(at Time) {
		if !ok || at < next {
			next, ok = at, true
		}
	}
	if first, some := m.queues.forgets.first(); some {
		sooner(first.at)
	}
	if i := m.answers.first(); i < len(m.answers.order) {
		sooner(m.answers.records.at(m.answers.order[i].place).at.Add(RequestWindow + 1))
	}
	if k, some := m.finished.byExpiry.min(); some {
		sooner(k.at.Add(1))
	}
	return next, ok
}

// sweep forgets what is past its time, a bounded number of each kind.
func (m *Machine) sweep() {
	now := m.scalars.Clock
	for range SweepMax {
		first, ok := m.queues.forgets.first()
		if !ok || first.at > now {
			break
		}
		q := m.queues.byPlace[first.queue]
		k, _ := q.ended.min()
		m.forgetTomb(q, k.place)
	}
	for range SweepMax {
		place, ok := m.answers.oldest()
		if !ok || m.answers.records.at(place).at.Add(RequestWindow) >= now {
			break
		}
		m.forgetAnswer(place)
	}
	for range SweepMax {
		k, ok := m.finished.byExpiry.min()
		if !ok || k.at >= now {
			break
		}
		m.forgetFinished(k.place)
	}
}
