package store

import (
	"iter"
	"math"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/table"
)

// Store holds what a shard remembers. It finds jobs and tombstones by serial and by (queue, id). A
// queue, a job and a tombstone are known by the index of their record, which is never 0.
type Store struct {
	queues pages[fsm.QueueRecord]
	slots  pages[Slot]
	leases pages[Lease]
	tombs  pages[Tomb]
	blobs  blobs
	// clients are those who hold jobs.
	clients pages[client]
	// more is what few jobs have.
	more pages[more]

	serials     table.Table // of slots, by serial
	ids         table.Table // of slots (index<<1) and tombstones (index<<1|1), see ids.go
	tombSerials table.Table // of tombstones, by serial
	clientNames table.Table // of clients
	trees       idTrees
	orders      orders
	seed        uint64
	scratch     []byte
	// withID counts the held jobs with client-chosen ids, idBytes the bytes of those ids.
	withID, idBytes int

	// Finished are the leases that an ack ended.
	Finished Finished
	// Answers are the remembered requests.
	Answers Answers
	// Keys are the keys of jobs.
	Keys Keys
	// Schedules are the schedules of queues.
	Schedules Schedules
}

// New returns an empty store. seed keys its tables: it differs between processes, so that no
// client can choose ids that fall into one bucket.
func New(seed uint64) *Store {
	s := &Store{
		queues: newPages[fsm.QueueRecord](queueShift), slots: newPages[Slot](slotShift),
		leases: newPages[Lease](leaseShift), clients: newPages[client](clientShift),
		tombs: newPages[Tomb](tombShift), more: newPages[more](moreShift), blobs: newBlobs(),
		serials: table.New(), ids: table.New(), tombSerials: table.New(), clientNames: table.New(), seed: seed,
	}
	s.Finished = Finished{records: newPages[FinishedLease](finishedShift), byFence: table.New()}
	s.orders = orders{store: s, finished: &s.Finished.records, slices: newPages[slice](sliceShift)}
	s.Finished.byExpiry = s.orders.by(byExpiry)
	s.Keys, s.Schedules, s.trees.store = newKeys(s), newSchedules(s), s
	s.Answers = Answers{records: newPages[answer](answerShift), blobs: &s.blobs, table: table.New(), seed: seed}
	return s
}

// Order returns an empty order. The caller inserts and removes records in it.
func (s *Store) Order(by OrderKind) Order { return s.orders.by(by) }

// Queue returns the record of a queue for reading. The pointer is valid until the next change.
func (s *Store) Queue(index uint32) *fsm.QueueRecord { return s.queues.at(index) }

// EditQueue returns the record of a queue for writing. The pointer is valid until the next Pin.
func (s *Store) EditQueue(index uint32) *fsm.QueueRecord { return s.queues.edit(index) }

// AddQueue stores the record of a queue and returns its index.
func (s *Store) AddQueue(r *fsm.QueueRecord) uint32 {
	index := s.queues.alloc()
	*s.queues.edit(index) = *r
	return index
}

// RemoveQueue removes the record of a queue that has no jobs and no tombstones.
func (s *Store) RemoveQueue(index uint32) { s.queues.release(index) }

// Slot returns the mutable part of a job for reading. The pointer is valid until the next change.
func (s *Store) Slot(index uint32) *Slot { return s.slots.at(index) }

// EditSlot returns the mutable part of a job for writing. The pointer is valid until the next Pin.
func (s *Store) EditSlot(index uint32) *Slot { return s.slots.edit(index) }

// Payload returns the immutable part of a job.
func (s *Store) Payload(j *Slot) Payload { return openPayload(s.blobs.at(j.blob())) }

// TTL returns when a job expires, 0 if never.
func (s *Store) TTL(j *Slot) fsm.Time {
	if j.flags&slotHasTTL == 0 {
		return 0
	}
	return openPayload(s.blobs.at(j.blob())).TTL()
}

// Lease returns a copy of the lease of a job, an empty one if it has none.
func (s *Store) Lease(j *Slot) Lease {
	if j.lease != 0 {
		return *s.leases.at(j.lease)
	}
	return Lease{}
}

// EditLease returns the lease of a job for writing. It creates the record if there is none. The
// pointer is valid until the next Pin.
func (s *Store) EditLease(job uint32) *Lease {
	j := s.slots.edit(job)
	if j.lease == 0 {
		j.lease = s.leases.alloc()
	}
	return s.leases.edit(j.lease)
}

// BySerial returns the index of a held job, 0 if there is none. Serials are unique within a queue:
// a restore may bring two jobs of the same serial, from two shards, into one shard.
func (s *Store) BySerial(queue uint32, serial uint64) uint32 {
	return s.serials.Find(digest.SerialKey(serial), func(index uint32) bool {
		j := s.slots.at(index)
		return j.Serial == serial && j.Queue == queue
	})
}

func (s *Store) idHash(queue uint32, id string) uint32 { return digest.IDKey(s.seed, queue, id) }

// Jobs are the indexes of the held jobs. The slots of jobs may be edited meanwhile.
func (s *Store) Jobs() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for index := uint32(1); index < s.slots.next; index++ {
			if page, _ := s.slots.locate(index); s.slots.live[page] == 0 {
				continue
			}
			if s.slots.at(index).State().Held() && !yield(index) {
				return
			}
		}
	}
}

// AddJob stores a job without a state. content is the content hash of a job with a client-chosen
// id, else zero.
func (s *Store) AddJob(queue uint32, v *fsm.Job, content [16]byte) uint32 {
	idHash := uint32(0)
	if !v.Generated {
		idHash = s.idHash(queue, v.ID)
	}
	s.scratch = appendPayload(s.scratch[:0], v, content, idHash, digest.JobPayload(v, content))
	index := s.slots.alloc()
	j := s.slots.edit(index)
	j.Serial, j.Queue, j.Due = v.Serial, queue, v.Due
	j.setOptions(v)
	j.setBlob(s.blobs.put(s.scratch))
	j.SetTTL(v.TTL)
	if v.Key != "" {
		j.flags |= slotHasKey
		s.Keys.link(index, queue, v.Key)
	}
	s.serials.Insert(digest.SerialKey(v.Serial), index)
	if !v.Generated {
		j.flags |= slotHasID
		s.withID++
		s.idBytes += len(v.ID)
		s.addID(liveIDs, idHash, index<<1)
	}
	return index
}

// AddHeld stores a job that was read from a record, without its state.
func (s *Store) AddHeld(queue uint32, v *codec.HeldJob) uint32 {
	index := s.AddJob(queue, &v.Job, v.Content)
	j := s.slots.edit(index)
	if v.Flags&codec.HeldHasTTL == 0 {
		j.ClearTTL()
	} else {
		j.flags |= slotHasTTL
	}
	if v.Flags&codec.HeldHasLease != 0 {
		*s.EditLease(index) = Lease{
			Fence: v.Fence, Until: v.Until, TTR: v.LeaseTTR, Died: v.Died, Attempt: v.Attempt, Redrives: v.Redrives,
			Leased: v.Leased,
		}
		s.SetClient(s.EditLease(index), v.Client, 0)
		s.SetPlace(index, v.Place)
		if v.Uses != nil {
			s.SetUses(index, *v.Uses)
		}
		s.SetNext(index, v.Next)
		s.SetNote(index, &Note{LastError: []byte(v.LastError), Attempts: codec.AppendAttempts(nil, v.Attempts)})
	}
	return index
}

// ReplacePayload replaces the immutable part of a job, but for its id and its key.
func (s *Store) ReplacePayload(job uint32, v *fsm.Job, content [16]byte) {
	j := s.slots.edit(job)
	j.setOptions(v)
	b := s.Payload(j)
	hash := uint32(0)
	if j.HasID() {
		hash = b.idHash()
	}
	s.scratch = appendPayload(s.scratch[:0], v, content, hash, digest.JobPayload(v, content))
	s.blobs.release(j.blob())
	j.setBlob(s.blobs.put(s.scratch))
}

// RemoveJob removes a job that is in no order and not DEAD for AddDead, and returns its size as maxBytes counts it.
func (s *Store) RemoveJob(job uint32) (bytes uint64) {
	j := *s.slots.at(job)
	b := s.Payload(&j)
	bytes = b.Bytes()
	s.serials.Remove(digest.SerialKey(j.Serial), job)
	if j.HasID() {
		s.withID--
		s.idBytes -= len(b.ID())
		s.removeID(liveIDs, b.idHash(), job<<1)
	}
	if j.HasKey() {
		s.Keys.unlink(job)
	}
	if j.lease != 0 {
		l := s.leases.edit(j.lease)
		s.dropNote(l)
		s.dropMore(l)
		s.DropClient(l)
		s.leases.release(j.lease)
	}
	s.blobs.release(j.blob())
	s.slots.release(job)
	s.Keys.dropLinks(job)
	return bytes
}

// AddTombstoneOf stores the tombstone of a job with a client-chosen id, which is about to be
// removed, and returns the index of the tombstone.
func (s *Store) AddTombstoneOf(job uint32, state fsm.State, ended fsm.Time) uint32 {
	j := s.slots.at(job)
	b := s.Payload(j)
	key, _ := b.Key()
	attempts := uint16(1)
	if j.lease != 0 {
		attempts = uint16(min(s.leases.at(j.lease).Attempt, math.MaxUint16-1) + 1)
	}
	return s.addTomb(Tomb{
		Serial: j.Serial, FirstDue: b.FirstDue(), Ended: ended, queue: j.Queue, State: state, attempts: attempts,
		blob: s.blobs.put(appendTombPayload(nil, string(b.ID()), string(key), b.Content(), b.idHash())),
	}, b.idHash())
}

// AddTombstone stores a tombstone that was read from a record and returns its index.
func (s *Store) AddTombstone(queue uint32, t *fsm.Tombstone) uint32 {
	hash := s.idHash(queue, t.ID)
	return s.addTomb(Tomb{
		Serial: t.Serial, FirstDue: t.FirstDue, Ended: t.Ended, State: t.State, queue: queue,
		blob: s.blobs.put(appendTombPayload(nil, t.ID, t.Key, t.Content, hash)),
	}, hash)
}

func (s *Store) addTomb(t Tomb, idHash uint32) uint32 {
	index := s.tombs.alloc()
	*s.tombs.edit(index) = t
	s.addID(endedIDs, idHash, index<<1|1)
	s.tombSerials.Insert(digest.SerialKey(t.Serial), index)
	return index
}

// Tomb returns the record of a tombstone for reading. The pointer is valid until the next change.
func (s *Store) Tomb(index uint32) *Tomb { return s.tombs.at(index) }

// TombPayload returns what a tombstone keeps of the payload of its job: id and content.
func (s *Store) TombPayload(t *Tomb) Payload { return openPayload(s.blobs.at(t.blob)) }

// TombstoneBySerial returns the index of the tombstone with a serial in the queue, 0 if there is
// none.
func (s *Store) TombstoneBySerial(queue uint32, serial uint64) uint32 {
	return s.tombSerials.Find(digest.SerialKey(serial), func(index uint32) bool {
		t := s.tombs.at(index)
		return t.Serial == serial && t.queue == queue
	})
}

// SetEnded changes when the job of a tombstone ended. The tombstone must be in no order.
func (s *Store) SetEnded(tombstone uint32, ended fsm.Time) { s.tombs.edit(tombstone).Ended = ended }

// RemoveTombstone removes a tombstone that is in no order.
func (s *Store) RemoveTombstone(index uint32) {
	t := *s.tombs.at(index)
	s.removeID(endedIDs, s.TombPayload(&t).idHash(), index<<1|1)
	s.tombSerials.Remove(digest.SerialKey(t.Serial), index)
	s.blobs.release(t.blob)
	s.tombs.release(index)
}

// Tombstones is the number of tombstones.
func (s *Store) Tombstones() int { return s.tombs.count() }

// Stats returns the sizes of the store, but for the number of queues.
func (s *Store) Stats() fsm.Stats {
	return fsm.Stats{
		Jobs: s.slots.count(), Tombstones: s.tombs.count(), Finished: s.Finished.Len(),
		Answers: s.Answers.records.count(), AnswersBytes: s.Answers.bytes, BlobBytes: s.blobs.bytes,
		Schedules: s.Schedules.Len(), SchedulesPaused: s.Schedules.paused, Keys: s.Keys.groups.count(),
		KeysBlocked: s.Keys.Blocked,
	}
}
