package sourcetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Youzan is a server of ouqiang/delay-queue without settings: single commands, none of them atomic
// with the next. Bytes are packed by its own code, and read by Redis' cmsgpack. Its methods may be
// called from any goroutine. What fails may have been done, in part as well.
type Youzan struct {
	Redis *redis.Client
	// Turn is how many buckets were chosen; the next one follows.
	Scans atomic.Uint64
}

const buckets = 3

// Pack writes a job as a server does: due is a second since 1970, ttr in seconds.
func (s *Youzan) Pack(topic, id string, due, ttr int64, body string) string {
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
	return "\x85\xa11" + text(topic) + "\xa12" + text(id) + "\xa13" + number(due) + "\xa14" + number(ttr) + "\xa15" +
		text(body)
}

// bucket is the next bucket in turn.
func (s *Youzan) bucket() string { return fmt.Sprintf("dq_bucket_%d", s.Scans.Add(1)%buckets+1) }

// Push adds a job, or gives it another life.
func (s *Youzan) Push(ctx context.Context, topic, id string, due time.Time, ttr int64, body string) error {
	if err := s.Redis.Set(ctx, id, s.Pack(topic, id, due.Unix(), ttr, body), 0).Err(); err != nil {
		return err
	}
	return s.wait(ctx, due.Unix(), id)
}

// wait puts a job into a bucket.
func (s *Youzan) wait(ctx context.Context, until int64, id string) error {
	return s.Redis.ZAdd(ctx, s.bucket(), redis.Z{Score: float64(until), Member: id}).Err()
}

// read is a job's topic, due second and TTR; the topic is empty if there is none.
func (s *Youzan) read(ctx context.Context, id string) (topic string, due, ttr int64, err error) {
	value, err := s.Redis.Get(ctx, id).Result()
	if errors.Is(err, redis.Nil) {
		return "", 0, 0, nil
	}
	if err != nil {
		return "", 0, 0, err
	}
	parts, err := s.Redis.Eval(ctx, `local job = cmsgpack.unpack(ARGV[1]) return {job['1'], job['3'], job['4']}`, nil,
		value).Slice()
	if err != nil {
		return "", 0, 0, err
	}
	topic, _ = parts[0].(string)
	due, _ = parts[1].(int64)
	ttr, _ = parts[2].(int64)
	return topic, due, ttr, nil
}

// Tick looks at the head of each bucket until none is due.
func (s *Youzan) Tick(ctx context.Context, at time.Time) error {
	for n := 1; n <= buckets; n++ {
		for more := true; more; {
			var err error
			if more, err = s.look(ctx, fmt.Sprintf("dq_bucket_%d", n), at); err != nil {
				return err
			}
		}
	}
	return nil
}

// look moves the head of a bucket to where it belongs, and reports whether it was due.
func (s *Youzan) look(ctx context.Context, bucket string, at time.Time) (bool, error) {
	head, err := s.Redis.ZRangeWithScores(ctx, bucket, 0, 0).Result()
	if err != nil || len(head) == 0 || int64(head[0].Score) > at.Unix() {
		return false, err
	}
	id, _ := head[0].Member.(string)
	topic, due, _, err := s.read(ctx, id)
	if err != nil {
		return false, err
	}
	if topic != "" && due > at.Unix() {
		if err := s.Redis.ZRem(ctx, bucket, id).Err(); err != nil {
			return false, err
		}
		return true, s.wait(ctx, due, id)
	}
	if topic != "" {
		if err := s.Redis.RPush(ctx, "dq_queue_"+topic, id).Err(); err != nil {
			return false, err
		}
	}
	return true, s.Redis.ZRem(ctx, bucket, id).Err()
}

// Pop hands out a job of a topic and returns its lease's end; the id is empty if none is ready or
// the one that was is gone. It reads the clock when it has the job, as [Lmstfy.Consume] does.
func (s *Youzan) Pop(ctx context.Context, topic string, now func() time.Time) (id string, until time.Time, err error) {
	id, err = s.Redis.LPop(ctx, "dq_queue_"+topic).Result()
	if errors.Is(err, redis.Nil) {
		return "", time.Time{}, nil
	}
	if err != nil {
		return "", time.Time{}, err
	}
	got, _, ttr, err := s.read(ctx, id)
	if got == "" || err != nil {
		return "", time.Time{}, err
	}
	until = now().Add(time.Duration(ttr) * time.Second)
	return id, until, s.wait(ctx, until.Unix(), id)
}

// Finish ends a job, and reports whether it was there.
func (s *Youzan) Finish(ctx context.Context, id string) (bool, error) {
	n, err := s.Redis.Del(ctx, id).Result()
	return n == 1, err
}
