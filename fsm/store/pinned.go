package store

import (
	"cmp"
	"iter"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// Pinned is what a store held at a moment. It may be read beside changes of the store, until Unpin.
type Pinned struct {
	queues    pinnedPages[fsm.QueueRecord]
	slots     pinnedPages[Slot]
	leases    pinnedPages[Lease]
	clients   pinnedPages[client]
	more      pinnedPages[more]
	memories  pinnedPages[KeyMemory]
	schedules pinnedPages[ScheduleRecord]
	tombs     pinnedPages[Tomb]
	finished  pinnedPages[FinishedLease]
	answers   pinnedPages[answer]
	order     []answerRef
	blobs     [][]byte
}

// Pin returns the present state, in time proportional to the number of pages.
func (s *Store) Pin() *Pinned {
	return &Pinned{
		queues: s.queues.pin(), slots: s.slots.pin(), leases: s.leases.pin(), clients: s.clients.pin(), tombs: s.tombs.pin(),
		more: s.more.pin(), memories: s.Keys.memories.pin(), schedules: s.Schedules.records.pin(),
		blobs: s.blobs.pin(), finished: s.Finished.records.pin(),
		answers: s.Answers.records.pin(), order: s.Answers.order[s.Answers.head:],
	}
}

// Unpin ends a pin. What Pin returned must not be read afterwards.
func (s *Store) Unpin() {
	s.queues.unpin()
	s.slots.unpin()
	s.leases.unpin()
	s.clients.unpin()
	s.more.unpin()
	s.Keys.memories.unpin()
	s.Schedules.records.unpin()
	s.tombs.unpin()
	s.Finished.records.unpin()
	s.Answers.records.unpin()
	s.blobs.unpin()
}

// Queues are the records of the queues.
func (p *Pinned) Queues() iter.Seq[*fsm.QueueRecord] {
	return p.queues.where(func(q *fsm.QueueRecord) bool { return q.CreateSeq != 0 })
}

// Queue returns the record of a queue.
func (p *Pinned) Queue(index uint32) *fsm.QueueRecord { return p.queues.at(index) }

// Jobs are the held jobs.
func (p *Pinned) Jobs() iter.Seq[*Slot] {
	return p.slots.where(func(j *Slot) bool { return j.Serial != 0 })
}

// Payload returns the immutable part of a job.
func (p *Pinned) Payload(j *Slot) Payload { return openPayload(p.blob(j.blob())) }

// Lease returns the lease of a job that has one.
func (p *Pinned) Lease(j *Slot) *Lease { return p.leases.at(j.lease) }

// Tombstones are the records of the tombstones.
func (p *Pinned) Tombstones() iter.Seq[*Tomb] {
	return p.tombs.where(func(t *Tomb) bool { return t.Serial != 0 })
}

// TombQueue returns the record of the queue of a tombstone.
func (p *Pinned) TombQueue(t *Tomb) *fsm.QueueRecord { return p.queues.at(t.queue) }

// TombPayload returns what a tombstone keeps of the payload of its job: id and content.
func (p *Pinned) TombPayload(t *Tomb) Payload { return openPayload(p.blob(t.blob)) }

// Finished returns the finished leases in the order of their fences.
func (p *Pinned) Finished() []FinishedLease {
	var list []FinishedLease
	for l := range p.finished.where(func(l *FinishedLease) bool { return l.Fence != 0 }) {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b FinishedLease) int { return cmp.Compare(a.Fence, b.Fence) })
	return list
}

// Answers are the remembered requests, encoded, in the order in which they were remembered.
func (p *Pinned) Answers() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, ref := range p.order {
			if page, _ := p.answers.locate(ref.index); p.answers.dir[page] == nil {
				continue
			}
			a := p.answers.at(ref.index)
			if a.seq != ref.seq {
				continue
			}
			r := codec.PlainReader(p.blob(a.blob))
			if !yield(r.Bytes()) {
				return
			}
		}
	}
}

func (p *Pinned) blob(ref blobRef) []byte { return p.blobs[ref.page()][ref.offset():] }

// pinnedPages are the pages of an array as they were when it was pinned.
type pinnedPages[T any] struct {
	dir   [][]T
	shift uint8
}

func (p *pinnedPages[T]) locate(index uint32) (page, offset uint32) {
	return index >> p.shift, index & (1<<p.shift - 1)
}

func (p *pinnedPages[T]) at(index uint32) *T {
	page, i := p.locate(index)
	return &p.dir[page][i]
}

// where are the records that are in use, by their index.
func (p *pinnedPages[T]) where(used func(*T) bool) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, page := range p.dir {
			for i := range page {
				if used(&page[i]) && !yield(&page[i]) {
					return
				}
			}
		}
	}
}
