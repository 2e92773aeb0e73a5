package machine

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
)

// slot is the mutable part of a held job, with references to the rest. It holds no pointer.
type slot struct {
	serial    uint64
	due       fsm.Time
	queue     uint32 // index of the record of its queue
	lease     uint32 // index of its lease record, 0 if there is none
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

func (s *slot) state() fsm.State { return fsm.State(s.flags >> slotState) }

func (s *slot) setState(state fsm.State) {
	s.flags = s.flags&(slotHasID|slotHasTTL) | slotFlags(state)<<slotState
}

func (s *slot) blob() blobRef { return blobRef(s.blobPage)<<32 | blobRef(s.blobUnits)*blobUnit }

func (s *slot) setBlob(ref blobRef) {
	s.blobPage, s.blobUnits = ref.page(), uint16(ref.offset()/blobUnit)
}

// lease is the last lease of a job, and what a job keeps from its first lease, or death, on.
type lease struct {
	fence    uint64
	until    fsm.Time
	ttr      fsm.Duration
	died     fsm.Time
	note     blobRef // last error: its length as a uvarint, then its bytes; 0 if none
	attempt  uint32
	redrives uint32
}

// tomb is the record of a tombstone; its payload has content and id.
type tomb struct {
	serial   uint64
	firstDue fsm.Time
	ended    fsm.Time
	blob     blobRef
	queue    uint32
	state    fsm.State
	// attempts is one more than the attempts of the job, as far as that fits; 0 if they are not
	// known. Readers get them; no rule uses them. They are in no snapshot, so a restored machine
	// does not know them.
	attempts uint16
}

// The pages have 512 slots of 32 bytes, 1,024 leases of 48, 1,024 tombstones of 40. Jobs that fall
// due lie on as many pages of slots, each of which is copied once under a snapshot: copying 16 KiB
// costs an entry less than copying 64.
const (
	slotShift  = 9
	leaseShift = 10
	tombShift  = 10
)

// store holds the jobs and tombstones of a shard and finds them by serial and by (queue, id).
type store struct {
	slots  pages[slot]
	leases pages[lease]
	tombs  pages[tomb]
	blobs  blobs

	serials     table // of slots, by serial
	ids         table // of slots (index<<1) and tombstones (index<<1|1)
	tombSerials table // of tombstones, by serial
	seed        uint64
	scratch     []byte
	// withID counts the held jobs with client-chosen ids, idBytes the bytes of those ids.
	withID, idBytes int
}

func newStore(seed uint64) store {
	return store{
		slots: newPages[slot](slotShift), leases: newPages[lease](leaseShift), tombs: newPages[tomb](tombShift),
		blobs: newBlobs(), serials: newTable(), ids: newTable(), tombSerials: newTable(), seed: seed,
	}
}

// ttl returns when a job expires, 0 if never.
func (s *store) ttl(j *slot) fsm.Time {
	if j.flags&slotHasTTL == 0 {
		return 0
	}
	return openPayload(s.blobs.at(j.blob())).ttl()
}

// bySerial returns the index of the slot of a held job, 0 if there is none. Serials are unique
// within a queue: a restore may bring two jobs of the same serial, from two shards, into one shard.
func (s *store) bySerial(queue uint32, serial uint64) uint32 {
	return s.serials.find(digest.SerialKey(serial), func(index uint32) bool {
		j := s.slots.at(index)
		return j.serial == serial && j.queue == queue
	})
}

// byID returns the index of the held job or of the tombstone with a client-chosen id. At most one
// is not 0.
func (s *store) byID(q *queue, id string) (job, tombstone uint32) {
	tagged := s.ids.find(s.idHash(q, id), func(tagged uint32) bool {
		if tagged&1 != 0 {
			t := s.tombs.at(tagged >> 1)
			return t.queue == q.index && string(openPayload(s.blobs.at(t.blob)).id()) == id
		}
		j := s.slots.at(tagged >> 1)
		return j.queue == q.index && string(openPayload(s.blobs.at(j.blob())).id()) == id
	})
	if tagged&1 != 0 {
		return 0, tagged >> 1
	}
	return tagged >> 1, 0
}

func (s *store) idHash(q *queue, id string) uint32 { return digest.IDKey(s.seed, q.index, id) }

// jobPayload is the immutable contents of a job, encoded as a blob when it is put. The payload of a
// tombstone has only the parts with id and content.
//
//	uvarint   length of all that follows
//	byte      payloadParts
//	if payloadHasID: 4 bytes hash of the id, 16 bytes content hash, uvarint length, id
//	if payloadIsJob: 8 bytes hash of the record, 8 bytes created, varint firstDue-created, byte Given,
//	              then uvarints: ttr, maxAttempts, number of retry delays and each, ttl, all if given;
//	if payloadHasHeaders: uvarint number, each uvarint length, name, uvarint length, value
//	rest      body
type jobPayload struct{ b []byte }

// payloadParts says which parts a payload has.
type payloadParts byte

const (
	payloadIsJob payloadParts = 1 << iota
	payloadHasID
	payloadHasHeaders
)

// openPayload returns the payload at the start of b.
func openPayload(b []byte) jobPayload {
	n, w := binary.Uvarint(b)
	return jobPayload{b[w : w+int(n)]}
}

func (b jobPayload) parts() payloadParts { return payloadParts(b.b[0]) }

// idHash returns the hash of the id; the payload must have one.
func (b jobPayload) idHash() uint32 { return binary.LittleEndian.Uint32(b.b[1:]) }

func (b jobPayload) content() (c [16]byte) {
	if b.parts()&payloadHasID != 0 {
		copy(c[:], b.b[5:])
	}
	return c
}

// id returns the client's id, empty if there is none.
func (b jobPayload) id() []byte {
	if b.parts()&payloadHasID == 0 {
		return nil
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w : 21+w+int(n)]
}

// job returns the part that only the payload of a job has.
func (b jobPayload) job() []byte {
	if b.parts()&payloadHasID == 0 {
		return b.b[1:]
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w+int(n):]
}

func (b jobPayload) hash() uint64      { return binary.LittleEndian.Uint64(b.job()) }
func (b jobPayload) created() fsm.Time { return fsm.Time(binary.LittleEndian.Uint64(b.job()[8:])) }
func (b jobPayload) options() []byte   { return b.job()[16:] }
func (b jobPayload) firstDue() fsm.Time {
	d, _ := binary.Varint(b.options())
	return b.created() + fsm.Time(d)
}

// given returns the options that the put named.
func (b jobPayload) given() fsm.Given {
	options := b.options()
	_, w := binary.Varint(options)
	return fsm.Given(options[w])
}

// ttl returns when the job expires, 0 if never. Orders ask for it often, so it reads nothing else.
func (b jobPayload) ttl() fsm.Time {
	r := codec.PlainReader(b.options())
	r.Varint()
	given := fsm.Given(r.Byte())
	if !given.Has(fsm.GivenTTL) {
		return 0
	}
	for _, option := range [...]fsm.Given{fsm.GivenTTR, fsm.GivenMaxAttempts} {
		if given.Has(option) {
			r.Uvarint()
		}
	}
	if given.Has(fsm.GivenRetryDelays) {
		for range r.Length(1) {
			r.Uvarint()
		}
	}
	return r.Time()
}

// plainOptions are the options that put nothing after Given in a payload.
const plainOptions = ^(fsm.GivenTTR | fsm.GivenMaxAttempts | fsm.GivenRetryDelays | fsm.GivenTTL)

// bytes is the size of the job as maxBytes counts it.
func (b jobPayload) bytes() uint64 {
	options := b.options()
	_, w := binary.Varint(options)
	if b.parts()&payloadHasHeaders == 0 && fsm.Given(options[w])&^plainOptions == 0 {
		return uint64(len(options) - w - 1 + len(b.id()))
	}
	var v fsm.Job
	b.read(&v)
	v.Generated = b.parts()&payloadHasID == 0
	return fsm.JobBytes(&v)
}

// read fills in the immutable fields of a job. Headers, retry delays and body alias the payload.
func (b jobPayload) read(j *fsm.Job) {
	r := codec.PlainReader(b.options())
	j.Created = b.created()
	flags := codec.HeldFlags(0)
	if b.parts()&payloadHasHeaders != 0 {
		flags = codec.HeldHasHeaders
	}
	r.Payload(j, flags)
	if id := b.id(); id != nil {
		j.ID = string(id)
	}
}

// payloadOverhead is about what a payload has besides id and body.
const payloadOverhead = 20

// appendPayload encodes the payload of a job. hash is its digest.JobPayload.
func appendPayload(dst []byte, j *fsm.Job, content [16]byte, idHash uint32, hash uint64) []byte {
	parts := payloadIsJob
	if !j.Generated {
		parts |= payloadHasID
	}
	if len(j.Headers) > 0 {
		parts |= payloadHasHeaders
	}
	start, room := len(dst), codec.LengthBytes(len(j.ID)+len(j.Body)+payloadOverhead)
	dst = append(dst, make([]byte, room)...)
	dst = append(dst, byte(parts))
	dst = appendPayloadID(dst, parts, j.ID, content, idHash)
	dst = binary.LittleEndian.AppendUint64(dst, hash)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(j.Created))
	dst = binary.AppendVarint(dst, int64(j.FirstDue-j.Created))
	dst = append(dst, byte(j.Given))
	if j.Given.Has(fsm.GivenTTR) {
		dst = binary.AppendUvarint(dst, uint64(j.TTR))
	}
	if j.Given.Has(fsm.GivenMaxAttempts) {
		dst = binary.AppendUvarint(dst, uint64(j.MaxAttempts))
	}
	if j.Given.Has(fsm.GivenRetryDelays) {
		dst = codec.AppendDurations(dst, j.RetryDelays)
	}
	if j.Given.Has(fsm.GivenTTL) {
		dst = binary.AppendUvarint(dst, uint64(j.TTL))
	}
	if len(j.Headers) > 0 {
		dst = codec.AppendHeaders(dst, j.Headers)
	}
	return codec.SetLength(append(dst, j.Body...), start, room)
}

// appendTombPayload encodes the payload of a tombstone.
func appendTombPayload(dst []byte, id string, content [16]byte, idHash uint32) []byte {
	start, room := len(dst), codec.LengthBytes(len(id)+payloadOverhead)
	dst = append(append(dst, make([]byte, room)...), byte(payloadHasID))
	return codec.SetLength(appendPayloadID(dst, payloadHasID, id, content, idHash), start, room)
}

func appendPayloadID(dst []byte, parts payloadParts, id string, content [16]byte, idHash uint32) []byte {
	if parts&payloadHasID == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint32(dst, idHash)
	dst = append(dst, content[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(id)))
	return append(dst, id...)
}
