package check

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/fault"
)

// ListTime converts a time bound of a list. An unset bound is 0, which is no bound. A time beyond
// the range of fsm.Time is fsm.TimeMax.
func (c *Request) ListTime(field string, t *timestamppb.Timestamp) fsm.Time {
	switch {
	case t == nil:
		return 0
	case t.CheckValid() != nil:
		c.Fail(fault.Invalid(field, "not a valid time"))
		return 0
	case t.GetSeconds() > math.MaxInt64/1_000_000_000-1:
		return fsm.TimeMax
	default:
		return pastTime(t)
	}
}

// cursorVersion is the first byte of a page token.
const cursorVersion = 1

// Cursors reads from a page token how far each shard was read. Without a token the list starts at
// the first job.
func (c *Request) Cursors(field, token string, query *fsm.ListQuery, shards int) []fsm.Cursor {
	cursors := make([]fsm.Cursor, shards)
	if token == "" {
		return cursors
	}
	flawed := func() []fsm.Cursor {
		c.Fail(fault.Invalid(field, "not a token of this list: pass on nextPageToken and keep the other fields as they were"))
		return cursors
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != 1+crc32.Size+16*shards || b[0] != cursorVersion {
		return flawed()
	}
	if binary.LittleEndian.Uint32(b[1:]) != listSum(query, b[1+crc32.Size:]) {
		return flawed()
	}
	rest := b[1+crc32.Size:]
	for i := range cursors {
		cursors[i] = fsm.Cursor{Due: fsm.Time(binary.LittleEndian.Uint64(rest)), Serial: binary.LittleEndian.Uint64(rest[8:])}
		rest = rest[16:]
	}
	return cursors
}

// PageToken returns a page token: version, checksum, and due time and serial for each shard.
func PageToken(query *fsm.ListQuery, cursors []fsm.Cursor) string {
	var places []byte
	for _, cursor := range cursors {
		places = binary.LittleEndian.AppendUint64(places, uint64(cursor.Due))
		places = binary.LittleEndian.AppendUint64(places, cursor.Serial)
	}
	b := binary.LittleEndian.AppendUint32([]byte{cursorVersion}, listSum(query, places))
	return base64.RawURLEncoding.EncodeToString(append(b, places...))
}

// listSum returns a checksum of a list's query and places. It detects a token of another list.
func listSum(query *fsm.ListQuery, places []byte) uint32 {
	b := append([]byte(query.Queue), 0, byte(query.State))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueBefore))
	return crc32.Checksum(append(b, places...), crc32.MakeTable(crc32.Castagnoli))
}

// QueueToken reads a page token of ListQueues: the last name of the previous page.
func (c *Request) QueueToken(field, token string) string {
	name, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || token != "" && queueNameFlaw(string(name), c.Limits.QueueBytesMax) != nil {
		c.Fail(fault.Invalid(field, "not a token of this list: pass on nextPageToken and keep the other fields as they were"))
	}
	return string(name)
}
