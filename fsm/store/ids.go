package store

import "github.com/belfrydb/belfry/fsm"

// The table of ids has each job and each tombstone with a client-chosen id, by the hash of queue
// and id. In a queue with several partitions an id is unique for each key only; there those that
// have a key are in the trees of their id instead, and the table has the roots of these.

// idName is a client-chosen id in a queue.
type idName struct {
	hash, queue uint32
	id          string
}

func (s *Store) idName(queue uint32, id string) idName { return idName{s.idHash(queue, id), queue, id} }

// ByPutID returns the index of the held job or of the tombstone that a put with a client-chosen id
// and a key meets. At most one is not 0. In a queue with one partition ids are unique, whatever the
// keys.
func (s *Store) ByPutID(queue uint32, id, key string) (job, tombstone uint32) {
	name, single := s.idName(queue, id), s.queues.at(queue).Partitions == 1
	if key != "" && !single {
		if job = s.trees.find(liveIDs, name, key); job == 0 {
			job = s.trees.find(deadIDs, name, key)
		}
		if job == 0 {
			tombstone = s.trees.find(endedIDs, name, key)
		}
		return job >> 1, tombstone >> 1
	}
	tagged := s.ids.Find(name.hash, func(tagged uint32) bool {
		of := s.holder(tagged)
		return of.queue == queue && string(of.payload.ID()) == id && (single || !of.payload.hasKey())
	})
	if tagged&1 != 0 {
		return 0, tagged >> 1
	}
	return tagged >> 1, 0
}

// ByID returns the index of the held job or of the tombstone that a client-chosen id and a key
// name. A key that is not empty must be its own. Without a key, of several the held jobs come
// first, then the lowest serial.
func (s *Store) ByID(queue uint32, id, key string) (job, tombstone uint32) {
	job, tombstone = s.ByPutID(queue, id, key)
	if s.queues.at(queue).Partitions == 1 {
		if key == "" || job != 0 && s.holder(job<<1).payload.KeyName() == key ||
			tombstone != 0 && s.holder(tombstone<<1|1).payload.KeyName() == key {
			return job, tombstone
		}
		return 0, 0
	}
	if key != "" {
		return job, tombstone
	}
	name := s.idName(queue, id)
	job = s.older(job<<1, s.older(s.trees.root(liveIDs, name), s.trees.root(deadIDs, name))) >> 1
	if job != 0 {
		return job, 0
	}
	return 0, s.older(tombstone<<1|1, s.trees.root(endedIDs, name)) >> 1
}

// DeadByID returns the DEAD job of a client-chosen id, 0 if there is none; of several that with the
// lowest serial.
func (s *Store) DeadByID(queue uint32, id string) uint32 {
	job, _ := s.ByPutID(queue, id, "")
	if job != 0 && s.slots.at(job).State() != fsm.Dead {
		job = 0
	}
	return s.older(job<<1, s.trees.root(deadIDs, s.idName(queue, id))) >> 1
}

// AddDead notes that a job becomes DEAD.
func (s *Store) AddDead(job uint32) { s.moveID(job, liveIDs, deadIDs) }

// RemoveDead notes that a DEAD job gets another state or is about to be removed.
func (s *Store) RemoveDead(job uint32) { s.moveID(job, deadIDs, liveIDs) }

func (s *Store) moveID(job uint32, from, to idClass) {
	if s.slots.at(job).HasID() && s.inTree(job<<1) {
		s.trees.remove(from, job<<1)
		s.trees.insert(to, job<<1)
	}
}

// idHolder is what the index of ids asks of a job or a tombstone.
type idHolder struct {
	queue   uint32
	serial  uint64
	payload Payload
}

// holder returns a job or a tombstone by its entry in the table of ids.
func (s *Store) holder(tagged uint32) idHolder {
	if tagged&1 != 0 {
		t := s.tombs.at(tagged >> 1)
		return idHolder{t.queue, t.Serial, s.TombPayload(t)}
	}
	j := s.slots.at(tagged >> 1)
	return idHolder{j.Queue, j.Serial, s.Payload(j)}
}

func (h idHolder) name() idName { return idName{h.payload.idHash(), h.queue, string(h.payload.ID())} }

// older returns the one of two jobs, or of two tombstones, that has the lower serial. Either may be
// none.
func (s *Store) older(a, b uint32) uint32 {
	if a>>1 == 0 || b>>1 != 0 && s.holder(b).serial < s.holder(a).serial {
		return b
	}
	return a
}

// inTree reports whether a job or a tombstone is in a tree of its id.
func (s *Store) inTree(tagged uint32) bool {
	if tagged&1 == 0 && !s.slots.at(tagged>>1).HasKey() {
		return false
	}
	of := s.holder(tagged)
	return of.payload.hasKey() && s.queues.at(of.queue).Partitions != 1
}

// addID adds the id of a job or a tombstone. hash is that of the id.
func (s *Store) addID(class idClass, hash, tagged uint32) {
	if s.inTree(tagged) {
		s.trees.insert(class, tagged)
	} else {
		s.ids.Insert(hash, tagged)
	}
}

// removeID undoes addID.
func (s *Store) removeID(class idClass, hash, tagged uint32) {
	if s.inTree(tagged) {
		s.trees.remove(class, tagged)
	} else {
		s.ids.Remove(hash, tagged)
	}
}
