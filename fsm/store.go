package fsm

import "encoding/binary"

// slot is what changes in a held job's life, and where to find the rest. It holds no pointer.
type slot struct {
	serial    uint64
	due       Time
	queue     uint32
	grant     uint32 // place of its grant record, 0 if it was never granted
	blobPage  uint32
	blobUnits uint16 // the blob's offset in its page, in units of blobUnit bytes
	priority  int8
	flags     slotFlags
}

// slotFlags are flags and, above them, the state.
type slotFlags uint8

const (
	slotHasID slotFlags = 1 << iota
	slotHasTTL
	slotState = iota // the state is shifted by as many bits
)

func (s *slot) state() State { return State(s.flags >> slotState) }

func (s *slot) setState(state State) {
	s.flags = s.flags&(slotHasID|slotHasTTL) | slotFlags(state)<<slotState
}

func (s *slot) blob() blobRef { return blobRef(s.blobPage)<<32 | blobRef(s.blobUnits)*blobUnit }

func (s *slot) setBlob(ref blobRef) {
	s.blobPage, s.blobUnits = ref.page(), uint16(ref.offset()/blobUnit)
}

// grant is what a job has from its first grant on.
type grant struct {
	fence    uint64
	until    Time
	ttr      Duration
	died     Time
	note     blobRef // last error: its length as a uvarint, then its bytes; 0 if none
	attempt  uint32
	redrives uint32
}

// tomb is a tombstone; its blob holds content and id.
type tomb struct {
	serial   uint64
	firstDue Time
	ended    Time
	blob     blobRef
	queue    uint32
	state    State
	// attempts is one more than the attempts that the job took, as far as fits; 0 where that is not known. Readers are told
	// it, no rule looks at it, and it is in no snapshot: who is restored does not know it.
	attempts uint16
}

// The pages' sizes: 512 slots of 32 bytes, 1,024 grants of 48, 1,024 tombstones of 40. Jobs that fall due lie on as many pages of slots, each of which
// is copied once under a snapshot: 16 KiB cost an entry less than 64.
const (
	slotShift  = 9
	grantShift = 10
	tombShift  = 10
)

// store holds the jobs and tombstones of a shard and finds them by serial and by (queue, id).
type store struct {
	slots  pages[slot]
	grants pages[grant]
	tombs  pages[tomb]
	blobs  blobs

	serials table // of slots, by serial
	ids     table // of slots (place<<1) and tombstones (place<<1|1)
	stones  table // of tombstones, by serial
	seed    uint64
	scratch []byte
	// withID counts the held jobs with client-chosen ids, idBytes the bytes of those ids.
	withID, idBytes int
}

func newStore(seed uint64) store {
	return store{
		slots: newPages[slot](slotShift), grants: newPages[grant](grantShift), tombs: newPages[tomb](tombShift),
		blobs: newBlobs(), serials: newTable(), ids: newTable(), stones: newTable(), seed: seed,
	}
}

// ttl returns when a job expires, 0 if never.
func (s *store) ttl(j *slot) Time {
	if j.flags&slotHasTTL == 0 {
		return 0
	}
	return openBorn(s.blobs.at(j.blob())).ttl()
}

// bySerial returns the place of a held job, 0 if there is none. Serials are unique within a queue: a restore may bring two of the
// same serial into a shard, from two shards.
func (s *store) bySerial(queue uint32, serial uint64) uint32 {
	return s.serials.find(serialHash(serial), func(place uint32) bool {
		j := s.slots.at(place)
		return j.serial == serial && j.queue == queue
	})
}

// byID returns the place of the held job or of the tombstone with a client-chosen id; at most one is not 0.
func (s *store) byID(q *queue, id string) (job, stone uint32) {
	tagged := s.ids.find(s.idHash(q, id), func(tagged uint32) bool {
		if tagged&1 != 0 {
			t := s.tombs.at(tagged >> 1)
			return t.queue == q.place && string(openBorn(s.blobs.at(t.blob)).id()) == id
		}
		j := s.slots.at(tagged >> 1)
		return j.queue == q.place && string(openBorn(s.blobs.at(j.blob())).id()) == id
	})
	if tagged&1 != 0 {
		return 0, tagged >> 1
	}
	return tagged >> 1, 0
}

func (s *store) idHash(q *queue, id string) uint32 { return idHash(s.seed, q.place, id) }

// born is the blob of a job: what was fixed when it was put. Of a tombstone's blob only the parts with id and content are
// there.
//
//	uvarint   length of all that follows
//	byte      bornParts
//	if bornHasID: 4 bytes hash of the id, 16 bytes content hash, uvarint length, id
//	if bornIsJob: 8 bytes hash of the record, 8 bytes created, varint firstDue-created, byte Given,
//	              then uvarints: ttr, maxAttempts, number of retry delays and each, ttl, all if given;
//	if bornHasHeaders: uvarint number, each uvarint length, name, uvarint length, value
//	rest      body
type born struct{ b []byte }

type bornParts byte

const (
	bornIsJob bornParts = 1 << iota
	bornHasID
	bornHasHeaders
)

// openBorn returns the blob at the start of b.
func openBorn(b []byte) born {
	n, w := binary.Uvarint(b)
	return born{b[w : w+int(n)]}
}

func (b born) parts() bornParts { return bornParts(b.b[0]) }

// idHash returns the hash of the id; the blob must have one.
func (b born) idHash() uint32 { return binary.LittleEndian.Uint32(b.b[1:]) }

func (b born) content() (c [16]byte) {
	if b.parts()&bornHasID != 0 {
		copy(c[:], b.b[5:])
	}
	return c
}

// id returns the client's id, empty if there is none.
func (b born) id() []byte {
	if b.parts()&bornHasID == 0 {
		return nil
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w : 21+w+int(n)]
}

// job returns the part that only a job's blob has.
func (b born) job() []byte {
	if b.parts()&bornHasID == 0 {
		return b.b[1:]
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w+int(n):]
}

func (b born) hash() uint64    { return binary.LittleEndian.Uint64(b.job()) }
func (b born) created() Time   { return Time(binary.LittleEndian.Uint64(b.job()[8:])) }
func (b born) options() []byte { return b.job()[16:] }
func (b born) firstDue() Time  { d, _ := binary.Varint(b.options()); return b.created() + Time(d) }

// given returns which options the put named.
func (b born) given() Given {
	options := b.options()
	_, w := binary.Varint(options)
	return Given(options[w])
}

// ttl returns when the job expires, 0 if never. Orders ask for it often, so that nothing else is read.
func (b born) ttl() Time {
	r := reader{b: b.options()}
	r.varint()
	given := Given(r.byte())
	if !given.Has(GivenTTL) {
		return 0
	}
	for _, option := range [...]Given{GivenTTR, GivenMaxAttempts} {
		if given.Has(option) {
			r.uvarint()
		}
	}
	if given.Has(GivenRetryDelays) {
		for range r.length(1) {
			r.uvarint()
		}
	}
	return r.time()
}

// bornPlain are the options of which nothing follows Given in a blob.
const bornPlain = ^(GivenTTR | GivenMaxAttempts | GivenRetryDelays | GivenTTL)

// bytes is what the job counts against maxBytes.
func (b born) bytes() uint64 {
	options := b.options()
	_, w := binary.Varint(options)
	if b.parts()&bornHasHeaders == 0 && Given(options[w])&^bornPlain == 0 {
		return uint64(len(options) - w - 1 + len(b.id()))
	}
	var v Job
	b.read(&v)
	v.Generated = b.parts()&bornHasID == 0
	return jobBytes(&v)
}

// read fills in the fixed part of a job. Headers, retry delays and body alias the blob.
func (b born) read(j *Job) {
	r := reader{b: b.options()}
	j.Created = b.created()
	r.born(j, b.parts()&bornHasHeaders != 0)
	if id := b.id(); id != nil {
		j.ID = string(id)
	}
}

// bornRest is about what a blob has besides id and body.
const bornRest = 20

// appendBorn encodes the fixed part of a job as a blob. hash is its bornHash.
func appendBorn(dst []byte, j *Job, content [16]byte, idHash uint32, hash uint64) []byte {
	parts := bornIsJob
	if !j.Generated {
		parts |= bornHasID
	}
	if len(j.Headers) > 0 {
		parts |= bornHasHeaders
	}
	start, room := len(dst), lengthBytes(len(j.ID)+len(j.Body)+bornRest)
	dst = append(dst, make([]byte, room)...)
	dst = append(dst, byte(parts))
	dst = appendBornID(dst, parts, j.ID, content, idHash)
	dst = binary.LittleEndian.AppendUint64(dst, hash)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(j.Created))
	dst = binary.AppendVarint(dst, int64(j.FirstDue-j.Created))
	dst = append(dst, byte(j.Given))
	if j.Given.Has(GivenTTR) {
		dst = binary.AppendUvarint(dst, uint64(j.TTR))
	}
	if j.Given.Has(GivenMaxAttempts) {
		dst = binary.AppendUvarint(dst, uint64(j.MaxAttempts))
	}
	if j.Given.Has(GivenRetryDelays) {
		dst = appendDurations(dst, j.RetryDelays)
	}
	if j.Given.Has(GivenTTL) {
		dst = binary.AppendUvarint(dst, uint64(j.TTL))
	}
	if len(j.Headers) > 0 {
		dst = appendHeaders(dst, j.Headers)
	}
	return setLength(append(dst, j.Body...), start, room)
}

// appendBornStone encodes the blob of a tombstone.
func appendBornStone(dst []byte, id string, content [16]byte, idHash uint32) []byte {
	start, room := len(dst), lengthBytes(len(id)+bornRest)
	dst = append(append(dst, make([]byte, room)...), byte(bornHasID))
	return setLength(appendBornID(dst, bornHasID, id, content, idHash), start, room)
}

func appendBornID(dst []byte, parts bornParts, id string, content [16]byte, idHash uint32) []byte {
	if parts&bornHasID == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint32(dst, idHash)
	dst = append(dst, content[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(id)))
	return append(dst, id...)
}
