package machine

import (
	"encoding/binary"
	"encoding/hex"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"slices"
	"strings"
	"time"
)

// answers are the remembered requests: found by (caller, id), forgotten oldest first.
type answers struct {
	records pages[answer]
	blobs   *blobs
	table   table
	// order holds the answers in the order in which they were remembered. An answer that was
	// forgotten out of order is still in it: the record at its index then has another seq, or is
	// free.
	order []answerRef
	head  int
	seq   uint64
	bytes int64
	// encoded and blob are buffers that add and remember reuse.
	encoded, blob []byte
}

// answer is one remembered request; its blob is a uvarint length and the encoded Answer.
type answer struct {
	seq   uint64
	at    fsm.Time
	blob  blobRef
	bytes int64
	hash  uint32 // of (caller, id)
}

// answerRef refers to an answer: the index of its record, which may be reused, and its seq.
type answerRef struct {
	index uint32
	seq   uint64
}

func newAnswers(b *blobs) answers {
	return answers{records: newPages[answer](10), blobs: b, table: newTable()}
}

// at returns the encoded answer at index.
func (a *answers) at(index uint32) []byte {
	b := a.blobs.at(a.records.at(index).blob)
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)]
}

// find returns the index of a remembered request, 0 if there is none.
func (a *answers) find(hash uint32, caller, id string) uint32 {
	return a.table.find(hash, func(index uint32) bool {
		r := codec.PlainReader(a.at(index))
		return string(r.Bytes()) == caller && string(r.Bytes()) == id
	})
}

// oldest returns the index of the oldest remembered request.
func (a *answers) oldest() (index uint32, ok bool) {
	if a.head = a.first(); a.head < len(a.order) {
		return a.order[a.head].index, true
	}
	a.order, a.head = nil, 0
	return 0, false
}

// first returns the position in order of the oldest remembered request, or the length of order if
// there is none.
func (a *answers) first() int {
	for i := a.head; i < len(a.order); i++ {
		t := a.order[i]
		if a.records.live[t.index>>a.records.shift] > 0 && a.records.at(t.index).seq == t.seq {
			return i
		}
	}
	return len(a.order)
}

// recall answers a request from memory if it may: it fills in results and reports true. known is
// the index of the remembered request, 0 if there is none.
func (m *Machine) recall(known uint32, r *codec.RequestHead, content [16]byte, results []fsm.Result) bool {
	if known == 0 || m.answers.records.at(known).at.Add(fsm.RequestWindow) < m.scalars.Clock {
		if at, ok := uuid7Time(r.ID); ok && (at.Add(fsm.RequestWindow) < m.scalars.Clock || at <= m.scalars.LowWater) {
			fill(results, fsm.Result{Code: fsm.RequestExpired})
			return true
		}
		return false
	}
	rd := codec.PlainReader(m.answers.at(known))
	a := rd.Answer()
	if a.Content != content || len(a.Results) != len(results) {
		fill(results, fsm.Result{Code: fsm.Invalid})
		return true
	}
	if len(r.Encoded) > 0 && fsm.Kind(r.Encoded[0]) == fsm.KindReserve && r.Commands == 1 {
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

func fill(results []fsm.Result, r fsm.Result) {
	for i := range results {
		results[i] = r
	}
}

// liveGrants returns the grants whose leases are live at time now.
func (m *Machine) liveGrants(grants []fsm.Grant, now fsm.Time) []fsm.Grant {
	var live []fsm.Grant
	for _, g := range grants {
		q := m.queues.byName[g.Queue]
		if q == nil {
			continue
		}
		if j := (job{m.store.bySerial(q.index, g.Serial), q}); j.index != 0 && m.slot(j).state() == fsm.Reserved {
			if held := m.leaseOf(j); held.fence == g.Fence && now < held.until {
				live = append(live, g)
			}
		}
	}
	return live
}

// remember stores the results of a request that changed something.
func (m *Machine) remember(a *fsm.Answer) {
	m.answers.encoded = codec.AppendAnswer(m.answers.encoded[:0], a)
	m.sum += digest.EncodedAnswer(a.At, m.answers.encoded)
	m.answers.add(m.cfg.Seed, a, m.answers.encoded)
	for m.answers.bytes > m.cfg.AnswersBytesMax {
		index, ok := m.answers.oldest()
		if !ok {
			break
		}
		m.scalars.LowWater = m.answers.records.at(index).at
		m.forgetAnswer(index)
	}
}

func (a *answers) add(seed uint64, v *fsm.Answer, encoded []byte) {
	index := a.records.alloc()
	a.seq++
	a.blob = append(binary.AppendUvarint(a.blob[:0], uint64(len(encoded))), encoded...)
	rec := answer{
		hash: digest.RequestKey(seed, v.Caller, v.ID), seq: a.seq, at: v.At, blob: a.blobs.put(a.blob),
		bytes: int64(len(encoded)) + codec.AnswerOverheadBytes,
	}
	*a.records.edit(index) = rec
	a.bytes += rec.bytes
	a.table.insert(rec.hash, index)
	if a.head > len(a.order)/2 && a.head > 1024 {
		a.order, a.head = slices.Clone(a.order[a.head:]), 0 // a copy, since a snapshot may read the old one
	}
	a.order = append(a.order, answerRef{index, a.seq})
}

// forgetAnswer forgets the remembered request at index.
func (m *Machine) forgetAnswer(index uint32) {
	a := &m.answers
	rec := *a.records.at(index)
	m.sum -= digest.EncodedAnswer(rec.at, a.at(index))
	a.table.remove(rec.hash, index)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	a.records.release(index)
}

// uuid7Time returns the time in a request id that is a UUID of version 7 (RFC 9562, section 5.7).
// The edge derives ids for the parts of a request, and for its second round, by appending a # or a
// ~ and more.
func uuid7Time(id string) (fsm.Time, bool) {
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
	if ms > uint64(fsm.TimeMax)/uint64(time.Millisecond) {
		return fsm.TimeMax, true
	}
	return fsm.Time(ms) * fsm.Time(time.Millisecond), true
}

// finished are the leases that an ack ended. They tell a repeated ack from a stale one.
type finished struct {
	records  pages[finishedLease]
	byFence  table
	byExpiry order
}

type finishedLease struct {
	fence, serial uint64
	expiry        fsm.Time
}

// finishedShift makes pages of 2,048 leases of 24 bytes.
const finishedShift = 11

func (f *finished) has(serial, fence uint64, now fsm.Time) bool {
	return f.byFence.find(digest.SerialKey(fence), func(index uint32) bool {
		l := f.records.at(index)
		return l.fence == fence && l.serial == serial && now <= l.expiry
	}) != 0
}

// finish remembers an acked lease, after it has made room.
func (m *Machine) finish(serial, fence uint64, expiry fsm.Time) {
	for m.finished.records.count() >= m.cfg.FinishedMax {
		k, _ := m.finished.byExpiry.min()
		m.forgetFinished(k.index)
	}
	m.addFinished(finishedLease{fence: fence, serial: serial, expiry: expiry})
}

func (m *Machine) addFinished(l finishedLease) {
	f := &m.finished
	index := f.records.alloc()
	*f.records.edit(index) = l
	f.byFence.insert(digest.SerialKey(l.fence), index)
	f.byExpiry.insert(index)
	m.sum += digest.Finished(l.serial, l.fence, l.expiry)
}

func (m *Machine) forgetFinished(index uint32) {
	f := &m.finished
	l := *f.records.at(index)
	f.byFence.remove(digest.SerialKey(l.fence), index)
	f.byExpiry.remove(index)
	f.records.release(index)
	m.sum -= digest.Finished(l.serial, l.fence, l.expiry)
}

// NextForget returns the earliest stamp of an entry that forgets something because its time is
// over. There is none if all that is remembered is kept without end.
func (m *Machine) NextForget() (next fsm.Time, ok bool) {
	sooner := func(at fsm.Time) {
		if !ok || at < next {
			next, ok = at, true
		}
	}
	if first, some := m.queues.forgets.first(); some {
		sooner(first.at)
	}
	if i := m.answers.first(); i < len(m.answers.order) {
		sooner(m.answers.records.at(m.answers.order[i].index).at.Add(fsm.RequestWindow + 1))
	}
	if k, some := m.finished.byExpiry.min(); some {
		sooner(k.at.Add(1))
	}
	return next, ok
}

// sweep forgets what is past its time, a bounded number of records of each kind.
func (m *Machine) sweep() {
	now := m.scalars.Clock
	for range fsm.SweepMax {
		first, ok := m.queues.forgets.first()
		if !ok || first.at > now {
			break
		}
		q := m.queues.byIndex[first.queue]
		k, _ := q.ended.min()
		m.forgetTombstone(q, k.index)
	}
	for range fsm.SweepMax {
		index, ok := m.answers.oldest()
		if !ok || m.answers.records.at(index).at.Add(fsm.RequestWindow) >= now {
			break
		}
		m.forgetAnswer(index)
	}
	for range fsm.SweepMax {
		k, ok := m.finished.byExpiry.min()
		if !ok || k.at >= now {
			break
		}
		m.forgetFinished(k.index)
	}
}
