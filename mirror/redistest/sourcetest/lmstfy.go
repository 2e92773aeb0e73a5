// Package sourcetest imitates live servers of lmstfy and of ouqiang/delay-queue in tests of imports
// from them: their data in Redis and their behaviour, command for command, at times that the test
// gives. It shares no code with the mirror, so that both sides do not make the same mistake. Only
// tests import it.
package sourcetest

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Lmstfy is one queue at a server of lmstfy. Its methods may be called from any goroutine. What
// fails may have been done, in part as well: a server that dies between two commands leaves it so.
type Lmstfy struct {
	Redis            *redis.Client
	Namespace, Queue string
	// Serial makes ids of one millisecond differ.
	Serial atomic.Uint64
}

const (
	lmstfyPump = `
local due = redis.call('ZRANGEBYSCORE', 'timer_set', 0, ARGV[1], 'LIMIT', 0, 100)
for _, member in ipairs(due) do
	local ns, q, tries, id = struct.unpack('Hc0Hc0HHc0', member)
	local name = ns .. '/' .. q
	if redis.call('EXISTS', 'j/' .. name .. '/' .. id) == 1 then
		local element = struct.pack('HHc0', tries, #id, id)
		if tries == 0 then
			redis.call('PERSIST', 'j/' .. name .. '/' .. id)
			redis.call('LPUSH', 'd/' .. name, struct.pack('HHc0', 1, #id, id))
		else
			redis.call('LPUSH', 'q/' .. name, element)
		end
	end
	redis.call('ZREM', 'timer_set', member)
end
return #due
`
	lmstfyPack = `
if ARGV[1] == 'timer' then
	return struct.pack('Hc0Hc0HHc0', #ARGV[2], ARGV[2], #ARGV[3], ARGV[3], tonumber(ARGV[4]), #ARGV[5], ARGV[5])
end
return struct.pack('HHc0', tonumber(ARGV[4]), #ARGV[5], ARGV[5])
`
	lmstfyUnpack = `local tries, id = struct.unpack('HHc0', ARGV[1]) return {tries, id}`
)

// Pack makes a member of the timer (kind "timer") or an element of a list ("list").
func (s *Lmstfy) Pack(ctx context.Context, kind string, tries int, id string) (string, error) {
	return s.Redis.Eval(ctx, lmstfyPack, nil, kind, s.Namespace, s.Queue, tries, id).Text()
}

// ID makes the id of a job published at a time with a delay: a ULID with the delay in its last four
// bytes.
func (s *Lmstfy) ID(at time.Time, delay time.Duration) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint32(b[8:12], uint32(s.Serial.Add(1)))
	binary.LittleEndian.PutUint32(b[12:], uint32(delay/time.Second))
	var bits strings.Builder
	bits.WriteString("00")
	for _, one := range b {
		for n := 7; n >= 0; n-- {
			bits.WriteByte('0' + one>>n&1)
		}
	}
	var id strings.Builder
	for n := 0; n < 130; n += 5 {
		digit := 0
		for _, bit := range bits.String()[n : n+5] {
			digit = digit<<1 | int(bit-'0')
		}
		id.WriteByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit])
	}
	return id.String()
}

// key is where the value of a job is, ready the list of ready jobs.
func (s *Lmstfy) key(id string) string { return "j/" + s.name() + "/" + id }
func (s *Lmstfy) ready() string        { return "q/" + s.name() }
func (s *Lmstfy) name() string         { return s.Namespace + "/" + s.Queue }

// Publish adds a job; without a ttl it lives for ever.
func (s *Lmstfy) Publish(ctx context.Context, at time.Time, value string, delay, ttl time.Duration,
	tries int) (id string, err error) {
	id = s.ID(at, delay)
	if err := s.Redis.SetNX(ctx, s.key(id), value, ttl).Err(); err != nil {
		return id, err
	}
	if delay == 0 {
		element, err := s.Pack(ctx, "list", tries, id)
		if err != nil {
			return id, err
		}
		return id, s.Redis.LPush(ctx, s.ready(), element).Err()
	}
	return id, s.wait(ctx, at.Add(delay), tries, id)
}

// wait puts a job into the timer.
func (s *Lmstfy) wait(ctx context.Context, until time.Time, tries int, id string) error {
	member, err := s.Pack(ctx, "timer", tries, id)
	if err != nil {
		return err
	}
	return s.Redis.ZAdd(ctx, "timer_set", redis.Z{Score: float64(until.Unix()), Member: member}).Err()
}

// Pump moves what is due at a time, of all queues, up to 100 jobs, and returns how many.
func (s *Lmstfy) Pump(ctx context.Context, at time.Time) (int, error) {
	return s.Redis.Eval(ctx, lmstfyPump, nil, at.Unix()).Int()
}

// Consume hands out a job for ttr; the id is empty if none is ready, or the one that was is gone.
// As a server does, it reads the clock when it has the job: it may have waited long for Redis.
func (s *Lmstfy) Consume(ctx context.Context, now func() time.Time, ttr time.Duration) (id string, err error) {
	element, err := s.Redis.RPop(ctx, s.ready()).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	parts, err := s.Redis.Eval(ctx, lmstfyUnpack, nil, element).Slice()
	if err != nil {
		return "", err
	}
	tries, _ := parts[0].(int64)
	id, _ = parts[1].(string)
	err = s.Redis.Get(ctx, s.key(id)).Err()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return id, s.wait(ctx, now().Add(ttr), int(tries)-1, id)
}

// Ack finishes a job, and reports whether it was there.
func (s *Lmstfy) Ack(ctx context.Context, id string) (bool, error) {
	n, err := s.Redis.Del(ctx, s.key(id)).Result()
	return n == 1, err
}
