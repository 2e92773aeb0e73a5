package check

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"time"

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

// ExactTime converts a time that is kept or compared as it is: one that is not after 1970-01-01T00:00:00Z
// or not before end is refused. An unset one is 0.
func (c *Request) ExactTime(field string, t *timestamppb.Timestamp, end fsm.Time) fsm.Time {
	least, most := time.Unix(0, 0).UTC(), time.Unix(0, int64(end)).UTC()
	switch at := t.AsTime(); {
	case t == nil:
		return 0
	case t.CheckValid() != nil:
		c.Fail(fault.Invalid(field, "not a valid time; the range is %s", timeRange(least, most)))
		return 0
	case !at.After(least) || !at.Before(most):
		c.Fail(fault.Invalid(field, "%s is out of range: %s", at.Format(time.RFC3339Nano), timeRange(least, most)))
		return 0
	default:
		return fsm.Time(at.UnixNano())
	}
}

// timeRange writes the range of a time; neither end is in it.
func timeRange(least, most time.Time) string {
	return "after " + least.Format(time.RFC3339) + " and before " + most.Format(time.RFC3339)
}

// The first byte of a page token: of a list, or of a search.
const (
	listToken   = 1
	searchToken = 2
)

// Place is how far a list was read: in each shard up to a cursor. Searched is how many jobs a search
// has looked at.
type Place struct {
	Cursors  []fsm.Cursor
	Searched uint64
}

// Through returns the cursor of a shard that is read to its end.
func Through() fsm.Cursor { return fsm.Cursor{Due: fsm.TimeMax, Serial: math.MaxUint64} }

// Done reports whether all shards are read to their ends.
func (p *Place) Done() bool {
	return !slices.ContainsFunc(p.Cursors, func(c fsm.Cursor) bool { return c != Through() })
}

// Match checks the fields of a search. The zero Match is that of a list.
func (c *Request) Match(idPrefix, text, cause, key string) fsm.Match {
	c.Key("key", key)
	c.text("idPrefix", idPrefix, c.Limits.IDBytesMax)
	c.text("text", text, searchTextMax)
	c.text("cause", cause, causeBytesMax)
	return fsm.Match{IDPrefix: idPrefix, Text: text, Cause: cause, Key: key}
}

// The bounds of what a search is for. A cause has at most 200 characters.
const (
	searchTextMax = 256
	causeBytesMax = 1024
)

// Consumer checks the name of a consumer as jobs have it. It is not empty: that would be the jobs of
// which the consumer is not known.
func (c *Request) Consumer(field, client string) string {
	if client == "" {
		c.Fail(fault.Invalid(field, "required: the consumer as `client` of its jobs has it, such as worker-7@10.0.0.7"))
	}
	c.text(field, client, consumerBytesMax)
	return client
}

// consumerBytesMax bounds the name of a consumer with its address.
const consumerBytesMax = 256

// text checks the length of a text that may be anything else.
func (c *Request) text(field, text string, most int) {
	if len(text) > most {
		c.Fail(fault.TooLarge(field, len(text), most))
	}
}

// Place reads from a page token how far a list was read. Without a token it starts at the first job.
func (c *Request) Place(field, token string, query *fsm.SearchQuery, shards int) Place {
	cursors := make([]fsm.Cursor, shards)
	if token == "" {
		return Place{Cursors: cursors}
	}
	flawed := func() Place {
		c.Fail(fault.Invalid(field, "not a token of this list: pass on nextPageToken and keep the other fields as they were"))
		return Place{Cursors: cursors}
	}
	kind, extra := tokenOf(query)
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != 1+crc32.Size+16*shards+extra || b[0] != kind {
		return flawed()
	}
	if binary.LittleEndian.Uint32(b[1:]) != listSum(query, b[1+crc32.Size:]) {
		return flawed()
	}
	rest := b[1+crc32.Size:]
	place := Place{Cursors: cursors}
	if kind == searchToken {
		place.Searched, rest = binary.LittleEndian.Uint64(rest), rest[8:]
	}
	for i := range cursors {
		cursors[i] = fsm.Cursor{Due: fsm.Time(binary.LittleEndian.Uint64(rest)), Serial: binary.LittleEndian.Uint64(rest[8:])}
		rest = rest[16:]
	}
	return place
}

// tokenOf returns the first byte of the page tokens of a query, and the bytes that they have besides
// cursors.
func tokenOf(query *fsm.SearchQuery) (kind byte, extra int) {
	if query.Match == (fsm.Match{}) {
		return listToken, 0
	}
	return searchToken, 8
}

// PageToken returns a page token: kind, checksum, of a search the number of jobs looked at, and due
// time and serial for each shard.
func PageToken(query *fsm.SearchQuery, place Place) string {
	var places []byte
	kind, _ := tokenOf(query)
	if kind == searchToken {
		places = binary.LittleEndian.AppendUint64(places, place.Searched)
	}
	for _, cursor := range place.Cursors {
		places = binary.LittleEndian.AppendUint64(places, uint64(cursor.Due))
		places = binary.LittleEndian.AppendUint64(places, cursor.Serial)
	}
	b := binary.LittleEndian.AppendUint32([]byte{kind}, listSum(query, places))
	return base64.RawURLEncoding.EncodeToString(append(b, places...))
}

// listSum returns a checksum of a list's query and places. It detects a token of another list.
func listSum(query *fsm.SearchQuery, places []byte) uint32 {
	b := append([]byte(query.Queue), 0, byte(query.State))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueAfter))
	b = binary.LittleEndian.AppendUint64(b, uint64(query.DueBefore))
	if m := &query.Match; *m != (fsm.Match{}) {
		b = append(b, m.IDPrefix+"\x00"+m.Text+"\x00"+m.Cause+"\x00"+m.Key...)
	}
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
