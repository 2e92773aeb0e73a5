package mirror

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/client"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// readyScript moves payloads from the head of the ready list into the hand-over hash: up to ARGV[5]
// payloads, or a few more than ARGV[6] bytes of them. A payload has no name of its own, may be
// there twice, and the claim may be sent twice. So each gets a name: ARGV[4], which is made up for
// the claim, and a number that grows. KEYS: state, ready, hand-over. It returns the number of
// payloads.
var readyScript = redis.NewScript(pair.Guard + `
local limit, room, taken = tonumber(ARGV[5]), tonumber(ARGV[6]), 0
while taken < limit and room > 0 do
	local payloads = redis.call('LRANGE', KEYS[2], 0, math.min(32, limit - taken) - 1)
	if #payloads == 0 then break end
	for _, payload in ipairs(payloads) do
		redis.call('HSET', KEYS[3], ARGV[4] .. ':' .. redis.call('HINCRBY', KEYS[1], 'ready', 1), payload)
		taken = taken + 1
		room = room - #payload
	end
	redis.call('LTRIM', KEYS[2], #payloads, -1)
end
return taken
`)

// claimedPayload is a payload of the ready list under the name that a claim gave it.
type claimedPayload struct{ name, payload string }

// takeReady moves a batch of the ready list. It returns how many payloads it took.
func (i *importer) takeReady(ctx context.Context) (int, error) {
	reply, err := i.script(ctx, readyScript, []string{i.keys.Ready, i.keys.readyHand}, rand.Text(), i.batch,
		pair.ClaimBytes)
	if err != nil {
		return 0, err
	}
	n, err := reply.Int()
	i.counts.Claimed += int64(n)
	return n, errors.Join(err, i.catchUpReady(ctx))
}

// catchUpReady commits what the hand-over hash has.
func (i *importer) catchUpReady(ctx context.Context) error {
	for cursor := uint64(0); ; {
		page, next, err := i.Redis.HScan(ctx, i.keys.readyHand, cursor, "", pair.BatchMax).Result()
		if err != nil {
			return err
		}
		var left []claimedPayload
		for n := 0; n+1 < len(page); n += 2 {
			left = append(left, claimedPayload{page[n], page[n+1]})
		}
		if err := i.commitReady(ctx, left); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// commitReady puts payloads of the hand-over hash into Belfry as jobs that are due, and removes
// them from there.
func (i *importer) commitReady(ctx context.Context, payloads []claimedPayload) error {
	if len(payloads) == 0 {
		return nil
	}
	puts := make([]client.Put, len(payloads))
	for n, p := range payloads {
		sum := sha256.Sum256([]byte(p.name))
		from := origin{generation: i.generation(), random: [8]byte(sum[:8]), codec: redisson.Opaque}
		body := []byte(p.payload)
		if decoded, ok := i.codec.Decode(body); ok {
			body, from.codec = decoded, i.codec
			i.counts.Decoded++
		}
		puts[n] = client.Put{Queue: i.Queue, Body: body, Options: []client.PutOption{
			client.ID("redisson-ready:" + strconv.Itoa(i.Epoch()) + ":" + p.name), client.Header(HeaderMember, from.text()),
		}}
	}
	var names []any
	var bad error
	err := i.PutAll(ctx, puts, func(n int, r client.PutResult) {
		i.counts.Committed++
		i.counts.Repeated += one(r.Err != nil || !r.Created)
		names = append(names, payloads[n].name)
	}, func(n int, why error) {
		bad = fmt.Errorf("a payload of the ready list, %d bytes, cannot be a job; it is in %s of %s: %w",
			len(payloads[n].payload), payloads[n].name, i.keys.readyHand, why)
	})
	if err != nil {
		return err
	}
	return errors.Join(i.ack(ctx, pair.DropScript, i.keys.readyHand, names), bad)
}
