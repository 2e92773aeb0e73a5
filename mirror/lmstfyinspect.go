package mirror

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
)

// A LmstfyFinding is a queue of lmstfy as Redis has it.
type LmstfyFinding struct {
	// Queue is its namespace and its name, with a slash between.
	Queue string `json:"queue"`
	// Delayed jobs wait for their time, Reserved ones are held by consumers, Ready ones wait for a consumer, Dead are dead letters. Each is counted whether or not its value is there.
	Delayed  int64 `json:"delayed"`
	Reserved int64 `json:"reserved"`
	Ready    int64 `json:"ready"`
	Dead     int64 `json:"dead"`
	// Ended are those of all these whose value is gone: they were finished or cancelled, or have expired. Lapsing will expire before they are due.
	Ended   int64 `json:"ended"`
	Lapsing int64 `json:"lapsing"`
	// Unnamed are values that nothing names: lmstfy has lost their jobs, or a server is just moving them.
	Unnamed int64 `json:"unnamed"`
	// Bad cannot be brought over: names that cannot be read, values that are no text, bodies that are too long. FirstBad says why of one.
	Bad      int64  `json:"bad"`
	FirstBad string `json:"firstBad,omitempty"`
	// Earliest and Latest are when the first and the last of Delayed and Reserved is due; zero if there is none.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// HandedOver are jobs that an import has claimed and not put yet, Aside those that it set aside.
	HandedOver int64 `json:"handedOver"`
	Aside      int64 `json:"aside"`
	// Owner is the cluster that the queue is brought to; empty if to none.
	Owner string `json:"owner,omitempty"`
	// Warnings say what an import should know.
	Warnings []string `json:"warnings,omitempty"`
}

// FindLmstfy returns the queues of lmstfy that Redis has, sorted: those that its servers have written down, and those that have jobs. It reads the names of all keys and the whole timer, a page at a time.
func FindLmstfy(ctx context.Context, r redis.UniversalClient) ([]lmstfy.Queue, error) {
	found := map[lmstfy.Queue]bool{}
	if err := findLmstfy(ctx, r, found); err != nil {
		return nil, explain(err)
	}
	queues := make([]lmstfy.Queue, 0, len(found))
	for q := range found {
		queues = append(queues, q)
	}
	slices.SortFunc(queues, func(a, b lmstfy.Queue) int { return strings.Compare(lmstfyName(a), lmstfyName(b)) })
	return queues, nil
}

func findLmstfy(ctx context.Context, r redis.UniversalClient, found map[lmstfy.Queue]bool) error {
	// A key of another type belongs to another program, and has no queues for us.
	kinds, err := kindsOf(ctx, r, lmstfy.NamespacesKey, lmstfy.TimerKey)
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
		if err := scanScores(ctx, r, lmstfy.TimerKey, "", func(page []string) error {
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
		if err := scanKeys(ctx, r, pattern, func(keys []string) error {
			kinds, err := kindsOf(ctx, r, keys...)
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

// kindsOf asks for the types of keys.
func kindsOf(ctx context.Context, r redis.UniversalClient, keys ...string) ([]string, error) {
	kinds := make([]string, len(keys))
	replies := make([]*redis.StatusCmd, len(keys))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, key := range keys {
			replies[n] = p.Type(ctx, key)
		}
		return nil
	})
	for n, reply := range replies {
		kinds[n] = reply.Val()
	}
	return kinds, err
}

// timerPattern matches the members of a queue in the timer.
func timerPattern(q lmstfy.Queue) string { return globEscape(timerPrefix(q)) + "*" }

// timerPrefix is what the members of a queue in the timer begin with.
func timerPrefix(q lmstfy.Queue) string {
	var b []byte
	for _, part := range []string{q.Namespace, q.Name} {
		b = append(binary.LittleEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return string(b)
}

// globEscape makes a pattern that matches a text and nothing else.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// timed is what a member of the timer says about a job.
type timed struct {
	lmstfy.TimerMember
	ours     bool // whether it is of the queue
	reserved bool
	due      time.Time
	err      error // why it cannot be read
}

// readTimer reads a member of the timer. A job was never handed out if it is due when its id says; the delay of an id is zero for jobs that were ready at once, which come here only when reserved.
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
	t.reserved = id.Delay == 0 || t.due.After(expected.Add(lmstfySlack))
	return t
}

// eachElement calls f with each element of a list.
func eachElement(ctx context.Context, r redis.UniversalClient, list string, f func(element string)) error {
	for at := int64(0); ; at += scanPage {
		page, err := r.LRange(ctx, list, at, at+scanPage-1).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		for _, element := range page {
			f(element)
		}
	}
}

// lmstfySurvey is an inspection under way.
type lmstfySurvey struct {
	redis  redis.UniversalClient
	source lmstfy.Queue
	now    time.Time // of Redis
	found  *LmstfyFinding
	page   []timed // jobs whose values are not looked at yet; due is zero unless they are in the timer
	values int64   // of those that something names
}

// InspectLmstfy looks at one queue of lmstfy. It changes nothing, and reads all names a page at a time; what others do meanwhile makes its numbers approximate.
func InspectLmstfy(ctx context.Context, r redis.UniversalClient, q lmstfy.Queue) (*LmstfyFinding, error) {
	s := &lmstfySurvey{redis: r, source: q, found: &LmstfyFinding{Queue: lmstfyName(q)}}
	for _, step := range []func(context.Context) error{s.sizes, s.timer, s.lists, s.unnamed} {
		if err := step(ctx); err != nil {
			return nil, explain(err)
		}
	}
	s.warn()
	return s.found, nil
}

func (s *lmstfySurvey) sizes(ctx context.Context) error {
	name := "lmstfy:" + s.found.Queue
	if err := checkTypes(ctx, s.redis, map[string]string{
		lmstfy.TimerKey: "zset", s.source.ReadyKey(): "list", s.source.DeadLetterKey(): "list", "belfry_handover:" + name: "hash", "belfry_aside:" + name: "hash",
	}); err != nil {
		return err
	}
	handed, aside := s.redis.HLen(ctx, "belfry_handover:"+name), s.redis.HLen(ctx, "belfry_aside:"+name)
	owner, now := s.redis.HGet(ctx, "belfry_mirror:"+name, "cluster"), s.redis.Time(ctx)
	if err := errors.Join(handed.Err(), aside.Err(), now.Err()); err != nil {
		return err
	}
	if err := owner.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	s.found.HandedOver, s.found.Aside, s.found.Owner, s.now = handed.Val(), aside.Val(), owner.Val(), now.Val()
	return nil
}

// timer looks at what is delayed or reserved.
func (s *lmstfySurvey) timer(ctx context.Context) error {
	f := s.found
	return scanScores(ctx, s.redis, lmstfy.TimerKey, timerPattern(s.source), func(page []string) error {
		for n := 0; n+1 < len(page); n += 2 {
			one := readTimer(s.source, page[n], page[n+1])
			switch {
			case !one.ours:
				continue
			case one.err != nil:
				s.bad("the member %x of the timer: %v", page[n], one.err)
				continue
			case one.reserved:
				f.Reserved++
			default:
				f.Delayed++
			}
			if f.Earliest.IsZero() || one.due.Before(f.Earliest) {
				f.Earliest = one.due
			}
			if one.due.After(f.Latest) {
				f.Latest = one.due
			}
			s.page = append(s.page, one)
		}
		return s.look(ctx)
	})
}

// lists looks at what is ready or dead.
func (s *lmstfySurvey) lists(ctx context.Context) error {
	for _, list := range []struct {
		key   string
		count *int64
	}{{s.source.ReadyKey(), &s.found.Ready}, {s.source.DeadLetterKey(), &s.found.Dead}} {
		var failed error
		err := eachElement(ctx, s.redis, list.key, func(element string) {
			e, err := lmstfy.ParseElement([]byte(element))
			if err != nil {
				s.bad("the element %x of the list %s: %v", element, list.key, err)
				return
			}
			*list.count++
			if s.page = append(s.page, timed{TimerMember: lmstfy.TimerMember{ID: e.ID}}); len(s.page) >= scanPage && failed == nil {
				failed = s.look(ctx)
			}
		})
		if err := errors.Join(err, failed, s.look(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (s *lmstfySurvey) bad(format string, args ...any) {
	if s.found.Bad++; s.found.FirstBad == "" {
		s.found.FirstBad = fmt.Sprintf(format, args...)
	}
}

// look looks at the values of a page of jobs.
func (s *lmstfySurvey) look(ctx context.Context) error {
	page := s.page
	s.page = s.page[:0]
	lengths, lives := make([]*redis.IntCmd, len(page)), make([]*redis.DurationCmd, len(page))
	if len(page) == 0 {
		return nil
	}
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n, one := range page {
			lengths[n], lives[n] = p.StrLen(ctx, s.source.JobKey(one.ID)), p.PTTL(ctx, s.source.JobKey(one.ID))
		}
		return nil
	})
	if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for n, one := range page {
		key := s.source.JobKey(one.ID)
		left := lives[n].Val()
		if left == -2 { // as go-redis says that there is no such key
			s.found.Ended++
			continue
		}
		s.values++
		if redis.HasErrorPrefix(lengths[n].Err(), "WRONGTYPE") {
			s.bad("the value %s is no text", key)
			continue
		}
		if !one.due.IsZero() && left >= 0 && s.now.Add(left).Before(one.due) {
			s.found.Lapsing++
		}
		if lengths[n].Val() <= bodyMax {
			continue
		}
		value, err := s.redis.Get(ctx, key).Bytes()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if body, _ := lmstfyBody(one.ID, value); len(body) > bodyMax {
			s.bad("the body of job %s has %d bytes, at most %d", one.ID, len(body), bodyMax)
		}
	}
	return nil
}

// unnamed counts values, and compares with those that something names.
func (s *lmstfySurvey) unnamed(ctx context.Context) error {
	all := int64(0)
	err := scanKeys(ctx, s.redis, globEscape(s.source.JobKey(""))+"*", func(keys []string) error {
		all += int64(len(keys))
		return nil
	})
	s.found.Unnamed = max(0, all-s.values-s.found.HandedOver-s.found.Aside)
	return err
}

// warn says what an import should know.
func (s *lmstfySurvey) warn() {
	f := s.found
	add := func(when bool, format string, args ...any) {
		if when {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
		}
	}
	add(f.Bad > 0, "%d jobs cannot be brought over: the import refuses to begin, or sets them aside with --set-aside; the first: %s", f.Bad, f.FirstBad)
	add(f.Reserved > 0, "%d jobs are held by consumers: the import leaves them until they are let go, or takes them with --stopped", f.Reserved)
	add(f.Dead > 0, "%d dead letters: the import leaves them, or takes them with --dead queue or --dead respawn", f.Dead)
	add(f.Lapsing > 0, "%d jobs will expire before they are due, here as at lmstfy", f.Lapsing)
	add(f.Unnamed > 0, "%d values are named by nothing: lmstfy will not deliver them, unless a server is just moving them; --stopped --unnamed takes them", f.Unnamed)
	add(f.HandedOver > 0, "an import was interrupted: %d jobs are claimed; run it again", f.HandedOver)
}
