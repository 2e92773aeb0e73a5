package mirror_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// youzanServer stands for a server of ouqiang/delay-queue: single commands, none of them atomic with the next, at times that it is told. Bytes are packed by its own code, and read by Redis' cmsgpack.
type youzanServer struct {
	t      *testing.T
	r      *redis.Client
	pushed int
}

func (s *youzanServer) do(args ...any) any {
	s.t.Helper()
	v, err := s.r.Do(s.t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatal(err)
	}
	return v
}

// pack writes a job as a server does.
func (s *youzanServer) pack(topic, id string, due, ttr int64, body string) string {
	text := func(v string) string {
		switch n := len(v); {
		case n < 32:
			return string([]byte{0xa0 | byte(n)}) + v
		case n < 256:
			return string([]byte{0xd9, byte(n)}) + v
		case n < 1<<16:
			return string(binary.BigEndian.AppendUint16([]byte{0xda}, uint16(n))) + v
		default:
			return string(binary.BigEndian.AppendUint32([]byte{0xdb}, uint32(n))) + v
		}
	}
	number := func(n int64) string {
		switch {
		case n < 128:
			return string([]byte{byte(n)})
		case n < 256:
			return string([]byte{0xcc, byte(n)})
		case n < 1<<16:
			return string(binary.BigEndian.AppendUint16([]byte{0xcd}, uint16(n)))
		default:
			return string(binary.BigEndian.AppendUint32([]byte{0xce}, uint32(n)))
		}
	}
	return "\x85\xa11" + text(topic) + "\xa12" + text(id) + "\xa13" + number(due) + "\xa14" + number(ttr) + "\xa15" + text(body)
}

// bucket is the next bucket in turn.
func (s *youzanServer) bucket() string {
	s.pushed++
	return fmt.Sprintf("dq_bucket_%d", s.pushed%3+1)
}

func (s *youzanServer) push(topic, id string, due time.Time, ttr int64, body string) {
	s.t.Helper()
	s.do("SET", id, s.pack(topic, id, due.Unix(), ttr, body))
	s.do("ZADD", s.bucket(), due.Unix(), id)
}

// read is a job's topic, due second and TTR; the topic is empty if there is none.
func (s *youzanServer) read(id string) (topic string, due, ttr int64) {
	s.t.Helper()
	value, ok := s.do("GET", id).(string)
	if !ok {
		return "", 0, 0
	}
	parts, _ := s.do("EVAL", `local job = cmsgpack.unpack(ARGV[1]) return {job['1'], job['3'], job['4']}`, 0, value).([]any)
	topic, _ = parts[0].(string)
	due, _ = parts[1].(int64)
	ttr, _ = parts[2].(int64)
	return topic, due, ttr
}

// tick looks at the head of each bucket until none is due.
func (s *youzanServer) tick(at time.Time) {
	s.t.Helper()
	for n := 1; n <= 3; n++ {
		bucket := fmt.Sprintf("dq_bucket_%d", n)
		for {
			head, err := s.r.ZRangeWithScores(s.t.Context(), bucket, 0, 0).Result()
			if err != nil {
				s.t.Fatal(err)
			}
			if len(head) == 0 || int64(head[0].Score) > at.Unix() {
				break
			}
			id, _ := head[0].Member.(string)
			topic, due, _ := s.read(id)
			switch {
			case topic == "":
			case due > at.Unix():
				s.do("ZREM", bucket, id)
				s.do("ZADD", s.bucket(), due, id)
				continue
			default:
				s.do("RPUSH", "dq_queue_"+topic, id)
			}
			s.do("ZREM", bucket, id)
		}
	}
}

// pop hands out a job of a topic and returns its lease's end; the id is empty if none is ready or the one that was is gone.
func (s *youzanServer) pop(topic string, at time.Time) (id string, until time.Time) {
	s.t.Helper()
	id, ok := s.do("LPOP", "dq_queue_"+topic).(string)
	if !ok {
		return "", time.Time{}
	}
	got, _, ttr := s.read(id)
	if got == "" {
		return "", time.Time{}
	}
	until = at.Add(time.Duration(ttr) * time.Second)
	s.do("ZADD", s.bucket(), strconv.FormatInt(until.Unix(), 10), id)
	return id, until
}

// finish ends a job, and reports whether it was there.
func (s *youzanServer) finish(id string) bool {
	s.t.Helper()
	return s.do("DEL", id) == int64(1)
}
