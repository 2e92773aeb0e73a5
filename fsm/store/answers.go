package store

import (
	"encoding/binary"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/table"
)

// Answers are the remembered requests: found by (caller, id), forgotten oldest first. Each is known
// by its index, which is never 0.
type Answers struct {
	records pages[answer]
	blobs   *blobs
	table   table.Table
	seed    uint64
	// order holds the answers in the order in which they were remembered. An answer that was
	// forgotten out of order is still in it: the record at its index then has another seq, or is
	// free.
	order []answerRef
	head  int
	seq   uint64
	bytes int64
	blob  []byte // a buffer that put reuses
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

// Encoded returns the encoded answer at index. It is valid until the next change.
func (a *Answers) Encoded(index uint32) []byte {
	b := a.blobs.at(a.records.at(index).blob)
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)]
}

// Answer returns the answer at index.
func (a *Answers) Answer(index uint32) fsm.Answer {
	r := codec.PlainReader(a.Encoded(index))
	return r.Answer()
}

// Time is when the answer at index was remembered.
func (a *Answers) Time(index uint32) fsm.Time { return a.records.at(index).at }

// Bytes is the size of all answers, as the limit of the machine counts it.
func (a *Answers) Bytes() int64 { return a.bytes }

// Find returns the index of a remembered request, 0 if there is none.
func (a *Answers) Find(caller, id string) uint32 {
	return a.table.Find(digest.RequestKey(a.seed, caller, id), func(index uint32) bool {
		r := codec.PlainReader(a.Encoded(index))
		return string(r.Bytes()) == caller && string(r.Bytes()) == id
	})
}

// Oldest returns the index of the oldest remembered request.
func (a *Answers) Oldest() (index uint32, ok bool) {
	if a.head = a.first(); a.head < len(a.order) {
		return a.order[a.head].index, true
	}
	a.order, a.head = nil, 0
	return 0, false
}

// OldestTime returns when the oldest remembered request was remembered. It changes nothing, unlike
// Oldest, so that readers may call it.
func (a *Answers) OldestTime() (at fsm.Time, ok bool) {
	i := a.first()
	if i == len(a.order) {
		return 0, false
	}
	return a.records.at(a.order[i].index).at, true
}

// first returns the position in order of the oldest remembered request, or the length of order if
// there is none.
func (a *Answers) first() int {
	for i := a.head; i < len(a.order); i++ {
		if a.holds(a.order[i]) {
			return i
		}
	}
	return len(a.order)
}

// holds reports whether an answer is not forgotten.
func (a *Answers) holds(ref answerRef) bool {
	page, _ := a.records.locate(ref.index)
	return a.records.live[page] > 0 && a.records.at(ref.index).seq == ref.seq
}

// After returns the indexes of the requests that were remembered after a time.
func (a *Answers) After(at fsm.Time) (indexes []uint32) {
	for _, ref := range a.order[a.head:] {
		if a.holds(ref) && a.records.at(ref.index).at > at {
			indexes = append(indexes, ref.index)
		}
	}
	return indexes
}

// Add remembers a request. encoded is its answer, which Add copies.
func (a *Answers) Add(caller, id string, at fsm.Time, encoded []byte) {
	index := a.records.alloc()
	a.seq++
	rec := a.records.edit(index)
	rec.seq, rec.hash = a.seq, digest.RequestKey(a.seed, caller, id)
	a.put(rec, at, encoded)
	a.table.Insert(rec.hash, index)
	if a.head > len(a.order)/2 && a.head > 1024 {
		a.order, a.head = slices.Clone(a.order[a.head:]), 0 // a copy, since a snapshot may read the old one
	}
	a.order = append(a.order, answerRef{index, a.seq})
}

// Replace replaces the answer at index, which keeps its place in the order.
func (a *Answers) Replace(index uint32, at fsm.Time, encoded []byte) {
	rec := a.records.edit(index)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	a.put(rec, at, encoded)
}

// put stores an encoded answer in a record.
func (a *Answers) put(rec *answer, at fsm.Time, encoded []byte) {
	a.blob = append(binary.AppendUvarint(a.blob[:0], uint64(len(encoded))), encoded...)
	rec.at, rec.blob, rec.bytes = at, a.blobs.put(a.blob), int64(len(encoded))+codec.AnswerOverheadBytes
	a.bytes += rec.bytes
}

// Remove forgets the request at index.
func (a *Answers) Remove(index uint32) {
	rec := *a.records.at(index)
	a.table.Remove(rec.hash, index)
	a.blobs.release(rec.blob)
	a.bytes -= rec.bytes
	a.records.release(index)
}
