package store

import (
	"encoding/binary"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// Payload is the immutable contents of a job, encoded as a blob when it is put. The payload of a
// tombstone has only the parts with id and content.
//
//	uvarint   length of all that follows
//	byte      payloadParts
//	if payloadHasID: 4 bytes hash of the id, 16 bytes content hash, uvarint length, id
//	if payloadHasKey: uvarint length of: uvarint version, key
//	if payloadIsWide: 4 bytes rank of the priority
//	if payloadIsJob: 8 bytes hash of the record, 8 bytes created, varint firstDue-created, byte Given,
//	              then uvarints: ttr, maxAttempts, number of retry delays and each, ttl, all if given;
//	if payloadHasHeaders: uvarint number, each uvarint length, name, uvarint length, value
//	rest      body
type Payload struct{ b []byte }

// payloadParts says which parts a payload has.
type payloadParts byte

const (
	payloadIsJob payloadParts = 1 << iota
	payloadHasID
	payloadHasHeaders
	payloadHasKey // or a version
	payloadIsWide
)

// openPayload returns the payload at the start of b.
func openPayload(b []byte) Payload {
	n, w := binary.Uvarint(b)
	return Payload{b[w : w+int(n)]}
}

func (b Payload) parts() payloadParts { return payloadParts(b.b[0]) }

// idHash returns the hash of the id; the payload must have one.
func (b Payload) idHash() uint32 { return binary.LittleEndian.Uint32(b.b[1:]) }

// Content returns the content hash of a job with a client-chosen id, else zero.
func (b Payload) Content() (c [16]byte) {
	if b.parts()&payloadHasID != 0 {
		copy(c[:], b.b[5:])
	}
	return c
}

// ID returns the client's id, empty if there is none.
func (b Payload) ID() []byte {
	if b.parts()&payloadHasID == 0 {
		return nil
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w : 21+w+int(n)]
}

// job returns the part that only the payload of a job has.
func (b Payload) job() []byte {
	if b.parts()&payloadIsWide != 0 {
		return b.afterKey()[4:]
	}
	return b.afterKey()
}

// rank returns the rank of the priority; the payload must have one.
func (b Payload) rank() uint32 { return binary.LittleEndian.Uint32(b.afterKey()) }

func (b Payload) afterKey() []byte {
	rest := b.afterID()
	if b.parts()&payloadHasKey != 0 {
		n, w := binary.Uvarint(rest)
		return rest[w+int(n):]
	}
	return rest
}

func (b Payload) afterID() []byte {
	if b.parts()&payloadHasID == 0 {
		return b.b[1:]
	}
	n, w := binary.Uvarint(b.b[21:])
	return b.b[21+w+int(n):]
}

// Key returns the key of the job, empty if it has none, and its version, 0 if it was never replaced.
func (b Payload) Key() (key []byte, version uint64) {
	if b.parts()&payloadHasKey == 0 {
		return nil, 0
	}
	r := codec.PlainReader(b.afterID())
	r = codec.PlainReader(r.Bytes())
	version = r.Uvarint()
	return r.NextBytes(r.Left()), version
}

// KeyName returns the key of a job or a tombstone, empty if it has none.
func (b Payload) KeyName() string {
	key, _ := b.Key()
	return string(key)
}

// hasKey reports whether a job or a tombstone has a key.
func (b Payload) hasKey() bool {
	key, _ := b.Key()
	return len(key) > 0
}

// HasHeaders reports whether the job has headers.
func (b Payload) HasHeaders() bool { return b.parts()&payloadHasHeaders != 0 }

// Hash returns the digest.JobPayload of the job.
func (b Payload) Hash() uint64 { return binary.LittleEndian.Uint64(b.job()) }

// Created returns when the job was put.
func (b Payload) Created() fsm.Time { return fsm.Time(binary.LittleEndian.Uint64(b.job()[8:])) }

// Options returns what the payload has from the first due time on, as a snapshot has it.
func (b Payload) Options() []byte { return b.job()[16:] }

// FirstDue returns when the job was first to fall due.
func (b Payload) FirstDue() fsm.Time {
	d, _ := binary.Varint(b.Options())
	return b.Created() + fsm.Time(d)
}

// Given returns the options that the put named.
func (b Payload) Given() fsm.Given {
	options := b.Options()
	_, w := binary.Varint(options)
	return fsm.Given(options[w])
}

// TTL returns when the job expires, 0 if never. Orders ask for it often, so it reads nothing else.
func (b Payload) TTL() fsm.Time {
	r := codec.PlainReader(b.Options())
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

// Bytes is the size of the job as maxBytes counts it.
func (b Payload) Bytes() uint64 {
	options := b.Options()
	_, w := binary.Varint(options)
	if !b.HasHeaders() && fsm.Given(options[w])&^plainOptions == 0 {
		key, _ := b.Key()
		return uint64(len(options) - w - 1 + len(b.ID()) + len(key))
	}
	var v fsm.Job
	b.Read(&v)
	v.Generated = b.parts()&payloadHasID == 0
	return fsm.JobBytes(&v)
}

// Read fills in the immutable fields of a job. Headers, retry delays and body alias the payload.
func (b Payload) Read(j *fsm.Job) {
	r := codec.PlainReader(b.Options())
	j.Created = b.Created()
	flags := codec.HeldFlags(0)
	if b.HasHeaders() {
		flags = codec.HeldHasHeaders
	}
	r.Payload(j, flags)
	if id := b.ID(); id != nil {
		j.ID = string(id)
	}
	if key, version := b.Key(); key != nil {
		j.Key, j.Version = string(key), version
	}
	if b.parts()&payloadIsWide != 0 {
		j.Priority = fsm.PriorityOf(b.rank())
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
	if j.Key != "" || j.Version != 0 {
		parts |= payloadHasKey
	}
	if fsm.IsWide(j.Priority) {
		parts |= payloadIsWide
	}
	start, room := len(dst), codec.LengthBytes(len(j.ID)+len(j.Body)+payloadOverhead)
	dst = append(dst, make([]byte, room)...)
	dst = append(dst, byte(parts))
	dst = appendPayloadID(dst, parts, j.ID, content, idHash)
	dst = appendPayloadKey(dst, parts, j.Key, j.Version)
	if parts&payloadIsWide != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, fsm.RankOf(j.Priority))
	}
	dst = binary.LittleEndian.AppendUint64(dst, hash)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(j.Created))
	return codec.SetLength(codec.AppendPayload(dst, j), start, room)
}

// appendTombPayload encodes the payload of a tombstone.
func appendTombPayload(dst []byte, id, key string, content [16]byte, idHash uint32) []byte {
	parts := payloadHasID
	if key != "" {
		parts |= payloadHasKey
	}
	start, room := len(dst), codec.LengthBytes(len(id)+len(key)+payloadOverhead)
	dst = append(append(dst, make([]byte, room)...), byte(parts))
	dst = appendPayloadID(dst, parts, id, content, idHash)
	return codec.SetLength(appendPayloadKey(dst, parts, key, 0), start, room)
}

func appendPayloadKey(dst []byte, parts payloadParts, key string, version uint64) []byte {
	if parts&payloadHasKey == 0 {
		return dst
	}
	start := len(dst)
	return codec.SetLength(append(binary.AppendUvarint(append(dst, 0), version), key...), start, 1)
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
