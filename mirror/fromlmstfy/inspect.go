package fromlmstfy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/lmstfy"
	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
)

// A Finding is a queue of lmstfy as Redis has it.
type Finding struct {
	// Queue is its namespace and its name, with a slash between.
	Queue string `json:"queue"`
	oneway.Finding
	// Dead are dead letters, and jobs whose last lease has ended.
	Dead int64 `json:"dead"`
	// Lapsing will expire before they are due.
	Lapsing int64 `json:"lapsing"`
}

// Find returns the queues of lmstfy that Redis has, sorted: those that its servers have written
// down, and those that have jobs. It reads the names of all keys and the whole timer, a page at a
// time.
func Find(ctx context.Context, r redis.UniversalClient) ([]lmstfy.Queue, error) {
	found := map[lmstfy.Queue]bool{}
	if err := find(ctx, r, found); err != nil {
		return nil, pair.Explain(err)
	}
	queues := make([]lmstfy.Queue, 0, len(found))
	for q := range found {
		queues = append(queues, q)
	}
	slices.SortFunc(queues, func(a, b lmstfy.Queue) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return queues, nil
}

func find(ctx context.Context, r redis.UniversalClient, found map[lmstfy.Queue]bool) error {
	// A key of another type belongs to another program, and has no queues for us.
	kinds, err := redisconn.TypesOf(ctx, r, lmstfy.NamespacesKey, lmstfy.TimerKey)
	if err != nil {
		return err
	}
	if kinds[0] == "hash" {
		namespaces, err := r.HKeys(ctx, lmstfy.NamespacesKey).Result()
		if err != nil {
			return err
		}
		for _, namespace := range namespaces {
			queues, err := r.HKeys(ctx, lmstfy.QueuesKey(namespace)).Result()
			if err != nil {
				return err
			}
			for _, name := range queues {
				found[lmstfy.Queue{Namespace: namespace, Name: name}] = true
			}
		}
	}
	if kinds[1] == "zset" {
		if err := redisconn.ScanScores(ctx, r, lmstfy.TimerKey, "", func(page []string) error {
			for n := 0; n+1 < len(page); n += 2 {
				if m, err := lmstfy.ParseTimerMember([]byte(page[n])); err == nil {
					found[lmstfy.Queue{Namespace: m.Namespace, Name: m.Queue}] = true
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for _, pattern := range []string{"q/*/*", "d/*/*"} {
		if err := redisconn.ScanKeys(ctx, r, pattern, func(keys []string) error {
			kinds, err := redisconn.TypesOf(ctx, r, keys...)
			for n, kind := range kinds {
				parts := strings.Split(keys[n], "/")
				if kind != "list" || len(parts) != 3 {
					continue
				}
				element, err := r.LIndex(ctx, keys[n], -1).Bytes()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				if e, err := lmstfy.ParseElement(element); err == nil {
					if _, err := lmstfy.ParseID(e.ID); err == nil {
						found[lmstfy.Queue{Namespace: parts[1], Name: parts[2]}] = true
					}
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// timerPattern matches the members of a queue in the timer.
func timerPattern(q lmstfy.Queue) string { return redisconn.GlobEscape(timerPrefix(q)) + "*" }

// timerPrefix is what the members of a queue in the timer begin with.
func timerPrefix(q lmstfy.Queue) string {
	var b []byte
	for _, part := range []string{q.Namespace, q.Name} {
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return string(b)
}

// timed is what a member of the timer says about a job.
type timed struct {
	lmstfy.TimerMember
	ours     bool // whether it is of the queue
	reserved bool
	due      time.Time
	err      error // why it cannot be read
}

// readTimer reads a member of the timer. A job was never handed out if it is due when its id says;
// the delay of an id is zero for jobs that were ready at once, which come here only when reserved.
func readTimer(q lmstfy.Queue, member, score string) (t timed) {
	if !strings.HasPrefix(member, timerPrefix(q)) {
		return timed{}
	}
	t.ours = true
	if t.TimerMember, t.err = lmstfy.ParseTimerMember([]byte(member)); t.err != nil {
		return t
	}
	seconds, err := strconv.ParseInt(score, 10, 64)
	if err != nil || seconds < 0 {
		t.err = fmt.Errorf("the score %s is no Unix time in seconds", score)
		return t
	}
	t.due = time.Unix(seconds, 0)
	id, err := lmstfy.ParseID(t.ID)
	if err != nil {
		t.err = err
		return t
	}
	expected := id.Created.Truncate(time.Second).Add(id.Delay)
	t.reserved = id.Delay == 0 || t.due.After(expected.Add(slack))
	return t
}

// Survey is an inspection under way.
type survey struct {
	redis  redis.UniversalClient
	source lmstfy.Queue
	now    time.Time // of Redis
	found  *Finding
	page   []named // jobs whose values are not looked at yet
	values int64   // of those that something names
}

// named is the name of a job, and what counts it.
type named struct {
	id    string
	due   time.Time // zero unless it is in the timer
	count *int64
}

// Inspect looks at one queue of lmstfy. It changes nothing, and reads all names a page at a time;
// what others do meanwhile makes its numbers approximate.
func Inspect(ctx context.Context, r redis.UniversalClient, q lmstfy.Queue) (*Finding, error) {
	s := &survey{redis: r, source: q, found: &Finding{Queue: nameOf(q)}}
	for _, step := range []func(context.Context) error{s.sizes, s.timer, s.lists, s.unnamed} {
		if err := step(ctx); err != nil {
			return nil, pair.Explain(err)
		}
	}
	f := s.found
	f.WarnOfAll("sets them aside")
	f.Warn(f.Dead, "%d dead letters: the import leaves them, or takes them with --dead queue or --dead respawn")
	f.Warn(f.Lapsing, "%d jobs will expire before they are due, here as at lmstfy")
	return f, nil
}

func (s *survey) sizes(ctx context.Context) (err error) {
	source := "lmstfy:" + s.found.Queue
	if err := redisconn.CheckTypes(ctx, s.redis, append(typesOf(s.source), redisconn.Hash("belfry_handover:"+source),
		redisconn.Hash("belfry_aside:"+source))); err != nil {
		return err
	}
	if s.now, err = s.redis.Time(ctx).Result(); err != nil {
		return err
	}
	return s.found.ReadMirrored(ctx, s.redis, source)
}

// timer looks at what is delayed or reserved.
func (s *survey) timer(ctx context.Context) error {
	f := s.found
	return redisconn.ScanScores(ctx, s.redis, lmstfy.TimerKey, timerPattern(s.source), func(page []string) error {
		for n := 0; n+1 < len(page); n += 2 {
			one := readTimer(s.source, page[n], page[n+1])
			count := &f.Delayed
			switch {
			case !one.ours:
				continue
			case one.err != nil:
				f.AddBad(fmt.Sprintf("the member %x of the timer: %v", page[n], one.err))
				continue
			case one.Tries == 0 && !one.due.After(s.now):
				count = &f.Dead
			case one.reserved:
				count = &f.Reserved
			}
			s.page = append(s.page, named{one.ID, one.due, count})
		}
		return s.look(ctx)
	})
}

// lists looks at what is ready or dead.
func (s *survey) lists(ctx context.Context) error {
	for _, list := range []struct {
		key   string
		count *int64
	}{{s.source.ReadyKey(), &s.found.Ready}, {s.source.DeadLetterKey(), &s.found.Dead}} {
		if err := redisconn.EachPage(ctx, s.redis, list.key, func(page []string) error {
			for _, element := range page {
				e, err := lmstfy.ParseElement([]byte(element))
				if err != nil {
					s.found.AddBad(fmt.Sprintf("the element %x of the list %s: %v", element, list.key, err))
					continue
				}
				s.page = append(s.page, named{id: e.ID, count: list.count})
			}
			return s.look(ctx)
		}); err != nil {
			return err
		}
	}
	return nil
}

// look looks at the values of a page of jobs.
func (s *survey) look(ctx context.Context) error {
	page := s.page
	s.page = s.page[:0]
	lengths, lives := make([]*redis.IntCmd, len(page)), make([]*redis.DurationCmd, len(page))
	if len(page) == 0 {
		return nil
	}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, one := range page {
			lengths[n], lives[n] = p.StrLen(ctx, s.source.JobKey(one.id)), p.PTTL(ctx, s.source.JobKey(one.id))
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for n, one := range page {
		key := s.source.JobKey(one.id)
		left := lives[n].Val()
		if left == -2 { // as go-redis says that there is no such key
			s.found.Ended++
			continue
		}
		s.values++
		if redis.HasErrorPrefix(lengths[n].Err(), "WRONGTYPE") {
			s.found.AddBad(fmt.Sprintf("the value %s is no text", key))
			continue
		}
		if one.due.IsZero() {
			*one.count++
		} else {
			s.found.AddTimed(one.count, one.due)
		}
		if !one.due.IsZero() && left >= 0 && s.now.Add(left).Before(one.due) {
			s.found.Lapsing++
		}
		if lengths[n].Val() <= pair.BodyMax {
			continue
		}
		value, err := s.redis.Get(ctx, key).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if body, _ := bodyOf(one.id, value); len(body) > pair.BodyMax {
			s.found.AddBad(fmt.Sprintf("the body of job %s has %d bytes, at most %d", one.id, len(body), pair.BodyMax))
		}
	}
	return nil
}

// unnamed counts values, and compares with those that something names.
func (s *survey) unnamed(ctx context.Context) error {
	all := int64(0)
	err := redisconn.ScanKeys(ctx, s.redis, redisconn.GlobEscape(s.source.JobKey(""))+"*", func(keys []string) error {
		all += int64(len(keys))
		return nil
	})
	s.found.Unnamed = max(0, all-s.values-s.found.HandedOver-s.found.Aside)
	return err
}
