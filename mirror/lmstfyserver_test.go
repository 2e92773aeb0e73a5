package mirror_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lmstfyServer stands for a server of lmstfy: it publishes, moves what is due, hands out and acks as one does, at times that it is told. Bytes are packed and read by Redis' own struct, with no code of the mirror's.
type lmstfyServer struct {
	t      *testing.T
	r      *redis.Client
	ns, q  string
	serial uint64
}

var (
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
		return #due`
	lmstfyPack = `
		if ARGV[1] == 'timer' then return struct.pack('Hc0Hc0HHc0', #ARGV[2], ARGV[2], #ARGV[3], ARGV[3], tonumber(ARGV[4]), #ARGV[5], ARGV[5]) end
		return struct.pack('HHc0', tonumber(ARGV[4]), #ARGV[5], ARGV[5])`
	lmstfyUnpack = `local tries, id = struct.unpack('HHc0', ARGV[1]) return {tries, id}`
)

func (s *lmstfyServer) do(args ...any) any {
	s.t.Helper()
	v, err := s.r.Do(s.t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return v
}

func (s *lmstfyServer) pack(kind string, tries int, id string) string {
	s.t.Helper()
	text, _ := s.do("EVAL", lmstfyPack, 0, kind, s.ns, s.q, tries, id).(string)
	return text
}

// id makes the id of a job published at a time with a delay: a ULID with the delay in its last four bytes.
func (s *lmstfyServer) id(at time.Time, delay time.Duration) string {
	s.serial++
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint32(b[8:12], uint32(s.serial))
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

func (s *lmstfyServer) key(id string) string { return "j/" + s.ns + "/" + s.q + "/" + id }
func (s *lmstfyServer) ready() string        { return "q/" + s.ns + "/" + s.q }
func (s *lmstfyServer) dead() string         { return "d/" + s.ns + "/" + s.q }

// value writes the value of a job; without a ttl it stays.
func (s *lmstfyServer) value(id, value string, ttl time.Duration) {
	s.t.Helper()
	args := []any{"SET", s.key(id), value, "NX"}
	if ttl > 0 {
		args = append(args, "PX", ttl.Milliseconds())
	}
	s.do(args...)
}

func (s *lmstfyServer) publish(at time.Time, value string, delay, ttl time.Duration, tries int) string {
	s.t.Helper()
	id := s.id(at, delay)
	s.value(id, value, ttl)
	if delay == 0 {
		s.do("LPUSH", s.ready(), s.pack("list", tries, id))
	} else {
		s.do("ZADD", "timer_set", at.Add(delay).Unix(), s.pack("timer", tries, id))
	}
	return id
}

// pump moves what is due at a time.
func (s *lmstfyServer) pump(at time.Time) { s.do("EVAL", lmstfyPump, 0, at.Unix()) }

// consume hands out a job for ttr; empty if none is ready.
func (s *lmstfyServer) consume(at time.Time, ttr time.Duration) string {
	s.t.Helper()
	element, ok := s.do("RPOP", s.ready()).(string)
	if !ok {
		return ""
	}
	parts, _ := s.do("EVAL", lmstfyUnpack, 0, element).([]any)
	tries, _ := parts[0].(int64)
	id, _ := parts[1].(string)
	if s.do("GET", s.key(id)) == nil {
		return ""
	}
	s.do("ZADD", "timer_set", at.Add(ttr).Unix(), s.pack("timer", int(tries)-1, id))
	return id
}

// ack finishes a job, and reports whether it was there.
func (s *lmstfyServer) ack(id string) bool {
	s.t.Helper()
	return s.do("DEL", s.key(id)) == int64(1)
}
