package store

import "github.com/belfrydb/belfry/fsm"

// Slot is the mutable part of a held job, with references to the rest. It holds no pointer.
type Slot struct {
	Serial    uint64
	Due       fsm.Time
	Queue     uint32 // index of the record of its queue
	lease     uint32 // index of its lease record, 0 if there is none
	blobPage  uint32
	blobUnits uint16 // the blob's offset in its page, in units of blobUnit bytes
	priority  int8   // unless slotIsWide
	flags     slotFlags
}

// slotFlags are flags and, above them, the state.
type slotFlags uint8

const (
	slotHasID slotFlags = 1 << iota
	slotHasTTL
	slotHasKey
	slotIsFIFO
	slotIsWide        // the priority is in the payload, since it takes more than a byte
	slotState  = iota // the state is shifted by as many bits
)

// State is the state of the job.
func (s *Slot) State() fsm.State { return fsm.State(s.flags >> slotState) }

// SetState changes the state of the job.
func (s *Slot) SetState(state fsm.State) {
	s.flags = s.flags&(1<<slotState-1) | slotFlags(state)<<slotState
}

// HasID reports whether the client chose the id of the job.
func (s *Slot) HasID() bool { return s.flags&slotHasID != 0 }

// HasTTL reports whether the job may expire.
func (s *Slot) HasTTL() bool { return s.flags&slotHasTTL != 0 }

// ClearTTL makes the job never expire.
func (s *Slot) ClearTTL() { s.flags &^= slotHasTTL }

// SetTTL says whether the job may expire.
func (s *Slot) SetTTL(ttl fsm.Time) {
	if s.flags &^= slotHasTTL; ttl != 0 {
		s.flags |= slotHasTTL
	}
}

// HasKey reports whether the job has a key.
func (s *Slot) HasKey() bool { return s.flags&slotHasKey != 0 }

// IsFIFO reports whether the place of the job among the READY ones is by the time of its put.
func (s *Slot) IsFIFO() bool { return s.flags&slotIsFIFO != 0 }

// HasLease reports whether the job has a lease, live or not.
func (s *Slot) HasLease() bool { return s.lease != 0 }

func (s *Slot) blob() blobRef { return blobRef(s.blobPage)<<32 | blobRef(s.blobUnits)*blobUnit }

func (s *Slot) setBlob(ref blobRef) {
	s.blobPage, s.blobUnits = ref.page(), uint16(ref.offset()/blobUnit)
}

// Lease is the last lease of a job, and what a job keeps from its first lease, or death, on.
type Lease struct {
	Fence uint64
	Until fsm.Time
	TTR   fsm.Duration
	Died  fsm.Time
	// Leased is when the job was leased, 0 unless it is RESERVED.
	Leased   fsm.Time
	note     blobRef // see Note; 0 if all of it is empty
	Attempt  uint32
	Redrives uint32
	more     uint32 // index of the record of what few jobs have, 0 if there is none
	client   uint32 // index of the record of who holds the job; 0 if nobody does, or has no name
}

// Tomb is the record of a tombstone; its payload has content and id.
type Tomb struct {
	Serial   uint64
	FirstDue fsm.Time
	Ended    fsm.Time
	blob     blobRef
	queue    uint32
	State    fsm.State
	// attempts is one more than the attempts of the job, as far as that fits; 0 if they are not
	// known. Readers get them; no rule uses them. They are in no snapshot, so a restored machine
	// does not know them.
	attempts uint16
}

// Attempts returns the attempts of the job that ended; false if they are not known.
func (t *Tomb) Attempts() (attempts uint32, known bool) {
	return uint32(max(t.attempts, 1) - 1), t.attempts != 0
}

// The pages have 128 queues of 408 bytes, 512 slots of 32 bytes, 1,024 leases of 64, 1,024
// tombstones of 40, 1,024 answers of 40 and 2,048 finished leases of 24, 128 clients of 24. Jobs that fall due lie on
// as many pages of slots, each of which is copied once under a snapshot: copying 16 KiB costs an
// entry less than copying 64.
const (
	queueShift    = 7
	slotShift     = 9
	leaseShift    = 10
	tombShift     = 10
	answerShift   = 10
	finishedShift = 11
	clientShift   = 7
	moreShift     = 10
	groupShift    = 10
	memoryShift   = 10
	scheduleShift = 10
)
