package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// entry is one entry of a delayed queue as Redis has it.
type entry struct{ member, score string }

// HeaderMember is the header of a job that came from Redisson: the format, the random part of its
// member and, if the body is not the payload itself, the codec. With it an export makes the same
// member again.
const HeaderMember = "Redisson-Member"

// origin is what HeaderMember says.
type origin struct {
	generation redisson.Generation
	random     [8]byte
	codec      redisson.Codec
}

// text is the value of the header, such as "new/0001020304050607/opaque".
func (o origin) text() string {
	return o.generation.String() + "/" + hex.EncodeToString(o.random[:]) + "/" + o.codec.String()
}

// parseOrigin reads the value of the header.
func parseOrigin(text string) (o origin, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || len(parts[1]) != 2*len(o.random) {
		return origin{}, fmt.Errorf("the header %s is %q, should be like new/0001020304050607/opaque", HeaderMember, text)
	}
	if o.generation, err = redisson.ParseGeneration(parts[0]); err != nil {
		return origin{}, fmt.Errorf("the header %s: %w", HeaderMember, err)
	}
	if _, err = hex.Decode(o.random[:], []byte(parts[1])); err != nil {
		return origin{}, fmt.Errorf("the header %s: %w", HeaderMember, err)
	}
	if o.codec, err = redisson.ParseCodec(parts[2]); err != nil {
		return origin{}, fmt.Errorf("the header %s: %w", HeaderMember, err)
	}
	return o, nil
}

// originOf says where a job came from; false if not from Redisson.
func originOf(job *client.Job) (origin, bool, error) {
	text, ok := job.Headers[HeaderMember]
	if !ok || !strings.HasPrefix(job.ID, idPrefix) {
		return origin{}, false, nil // a job that was put with the headers of another did not come itself
	}
	o, err := parseOrigin(text)
	if err != nil {
		return origin{}, false, fmt.Errorf("job %s: %w", job.ID, err)
	}
	return o, true, nil
}

// payloadOf makes the payload of a job's body: as it came, or by the codec that is named for the
// queue.
func payloadOf(job *client.Job, codec redisson.Codec) ([]byte, error) {
	from, came, err := originOf(job)
	if err != nil {
		return nil, err
	}
	if came {
		codec = from.codec
		if codec == redisson.Opaque {
			return job.Body, nil
		}
	}
	payload, err := codec.Encode(job.Body)
	if err != nil {
		return nil, fmt.Errorf("job %s cannot go to Redisson: %w", job.ID, err)
	}
	return payload, nil
}

// tagOf names a job in Redis. An id may come again after its job has ended; the time of the put
// does not.
func tagOf(job *client.Job) string {
	return strconv.FormatInt(job.CreatedAt.UnixNano(), 36) + " " + job.ID
}

// untag takes a name apart.
func untag(tag string) (created, id string) {
	created, id, _ = strings.Cut(tag, " ")
	return created, id
}

// entryID is the id of an entry's job. It is the same for every process and every repeat, until the
// epoch changes.
func entryID(epoch int, redisQueue, member string) string {
	h := sha256.New()
	for _, part := range []string{"redisson", strconv.Itoa(epoch), redisQueue} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	h.Write([]byte(member))
	return idPrefix + ":" + hex.EncodeToString(h.Sum(nil)[:16])
}

// idPrefix begins the ids of jobs that came from Redisson.
const idPrefix = "redisson"

// A BadEntry is an entry that Belfry cannot take.
type BadEntry struct {
	// Member and Score are what Redis has.
	Member []byte
	Score  string
	// Reason says what is wrong with it.
	Reason error
}

// Error names the entry by the beginning of its bytes.
func (b *BadEntry) Error() string {
	const shown = 24
	text, dots := b.Member, ""
	if len(text) > shown {
		text, dots = text[:shown], "…"
	}
	return fmt.Sprintf("the entry %x%s (%d bytes, score %s): %v", text, dots, len(b.Member), b.Score, b.Reason)
}

// Unwrap gives the reason.
func (b *BadEntry) Unwrap() error { return b.Reason }

// read says what an entry's member and score are. The error says why Belfry cannot take it.
func (e entry) read(majority redisson.Generation, now time.Time) (redisson.Member, time.Time, error) {
	ms, err := redisson.ParseScore(e.score)
	if err != nil {
		return redisson.Member{}, time.Time{}, err
	}
	member, err := redisson.ParseMember([]byte(e.member), majority)
	due := time.UnixMilli(ms)
	switch {
	case err != nil:
	case len(member.Payload) > pair.BodyMax:
		err = fmt.Errorf("its payload has %d bytes, a body may have %d", len(member.Payload), pair.BodyMax)
	case due.Sub(now) > pair.DelayMax:
		err = fmt.Errorf("it is due in the year %d, 100 years ahead are possible", due.UTC().Year())
	}
	return member, due, err
}

// put makes the job of an entry.
func (i *importer) put(e entry) (client.Put, error) {
	member, due, err := e.read(i.generation(), time.Now())
	if err != nil {
		return client.Put{}, err
	}
	i.seen[member.Generation]++
	from := origin{generation: member.Generation, random: member.Random, codec: redisson.Opaque}
	body := member.Payload
	if decoded, ok := i.codec.Decode(body); ok && i.codec != redisson.Opaque {
		body, from.codec = decoded, i.codec
		i.counts.Decoded++
	}
	return client.Put{Queue: i.Queue, Body: body, Options: []client.PutOption{
		client.ID(entryID(i.Epoch(), i.RedisQueue, e.member)), client.At(due), client.Header(HeaderMember, from.text()),
	}}, nil
}

// generation is the format of most entries so far.
func (i *importer) generation() redisson.Generation {
	if i.seen[redisson.Old] > i.seen[redisson.New] {
		return redisson.Old
	}
	return redisson.New
}
