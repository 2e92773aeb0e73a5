package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/youzan"
)

// A YouzanFinding is a topic of ouqiang/delay-queue as Redis has it.
type YouzanFinding struct {
	Topic string `json:"topic"`
	// Delayed jobs wait for their due second, Reserved ones are held by consumers, Ready ones wait for a consumer.
	Delayed  int64 `json:"delayed"`
	Reserved int64 `json:"reserved"`
	Ready    int64 `json:"ready"`
	// Ended are ids in the ready list whose value is gone: their jobs were finished.
	Ended int64 `json:"ended"`
	// Unnamed are jobs that neither a bucket nor the ready list names: the service has lost them, or a server is just moving them.
	Unnamed int64 `json:"unnamed"`
	// Bad cannot be brought over, FirstBad says why of one. In buckets, which all topics share, it counts values that cannot be read at all, whosever they are.
	Bad      int64  `json:"bad"`
	FirstBad string `json:"firstBad,omitempty"`
	// Earliest and Latest are when the first and the last of Delayed is due; zero if there is none.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// HandedOver are jobs that an import has claimed and not put yet, Aside those that it set aside.
	HandedOver int64 `json:"handedOver"`
	Aside      int64 `json:"aside"`
	// Owner is the cluster that the topic is brought to; empty if to none.
	Owner string `json:"owner,omitempty"`
	// Warnings say what an import should know.
	Warnings []string `json:"warnings,omitempty"`
}

// FindYouzan returns the topics of which a server of ouqiang/delay-queue has jobs, sorted. It reads the names of all keys, and the jobs of the buckets, a page at a time.
func FindYouzan(ctx context.Context, r redis.UniversalClient, server YouzanServer) ([]string, error) {
	server, err := server.checked()
	if err != nil {
		return nil, err
	}
	topics := map[string]bool{}
	note := func(ids []string) error {
		for part := range slices.Chunk(ids, batchMin) {
			values := make([]*redis.StringCmd, len(part))
			_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
				for n, id := range part {
					values[n] = p.GetRange(ctx, id, 0, youzanValueMax)
				}
				return nil
			})
			if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return err
			}
			for n, value := range values {
				if job, err := youzan.Parse([]byte(value.Val())); err == nil && job.ID == part[n] {
					topics[job.Topic] = true
				}
			}
		}
		return nil
	}
	for _, bucket := range server.bucketKeys() {
		if kinds, err := kindsOf(ctx, r, bucket); err != nil || kinds[0] != "zset" {
			if err != nil {
				return nil, explain(err)
			}
			continue
		}
		if err := scanScores(ctx, r, bucket, "", func(page []string) error { return note(members(page)) }); err != nil {
			return nil, explain(err)
		}
	}
	before, after, _ := strings.Cut(server.Names.Queue, "%s")
	err = scanKeys(ctx, r, globEscape(before)+"*"+globEscape(after), func(keys []string) error {
		kinds, err := kindsOf(ctx, r, keys...)
		for n, kind := range kinds {
			if kind != "list" {
				continue
			}
			ids, err := r.LRange(ctx, keys[n], 0, batchMin-1).Result()
			if err == nil {
				err = note(ids)
			}
			if err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, explain(err)
	}
	return slices.Sorted(maps.Keys(topics)), nil
}

// members are those of a page of members and scores.
func members(page []string) []string {
	names := make([]string, 0, len(page)/2)
	for n := 0; n+1 < len(page); n += 2 {
		names = append(names, page[n])
	}
	return names
}

// youzanSurvey is an inspection under way.
type youzanSurvey struct {
	redis  redis.UniversalClient
	server YouzanServer
	named  map[string]bool // ids of the topic that something names
	found  *YouzanFinding
}

// InspectYouzan looks at one topic of ouqiang/delay-queue. It changes nothing. It reads all jobs of the buckets and all texts of the database, whose keys alone do not say which are jobs, some at a time; what others do
// meanwhile makes its numbers approximate.
func InspectYouzan(ctx context.Context, r redis.UniversalClient, server YouzanServer, topic string) (*YouzanFinding, error) {
	server, err := server.checked()
	if err != nil {
		return nil, err
	}
	s := &youzanSurvey{redis: r, server: server, named: map[string]bool{}, found: &YouzanFinding{Topic: topic}}
	for _, step := range []func(context.Context) error{s.sizes, s.buckets, s.ready, s.unnamed} {
		if err := step(ctx); err != nil {
			return nil, explain(err)
		}
	}
	s.warn()
	return s.found, nil
}

func (s *youzanSurvey) sizes(ctx context.Context) error {
	name := "youzan:" + s.found.Topic
	types := map[string]string{s.server.Names.QueueKey(s.found.Topic): "list", "belfry_handover:" + name: "hash", "belfry_aside:" + name: "hash"}
	for _, bucket := range s.server.bucketKeys() {
		types[bucket] = "zset"
	}
	if err := checkTypes(ctx, s.redis, types); err != nil {
		return err
	}
	if err := s.server.tooFew(ctx, s.redis); err != nil {
		return err
	}
	handed, aside := s.redis.HLen(ctx, "belfry_handover:"+name), s.redis.HLen(ctx, "belfry_aside:"+name)
	owner := s.redis.HGet(ctx, "belfry_mirror:"+name, "cluster")
	if err := errors.Join(handed.Err(), aside.Err()); err != nil {
		return err
	}
	if err := owner.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	s.found.HandedOver, s.found.Aside, s.found.Owner = handed.Val(), aside.Val(), owner.Val()
	return nil
}

// read reads jobs of the topic, some at a time.
func (s *youzanSurvey) read(ctx context.Context, ids []string, missing func(id string), f func(youzanJob)) error {
	bad := func(id string, why error) {
		s.named[id] = true
		if s.found.Bad++; s.found.FirstBad == "" {
			s.found.FirstBad = fmt.Sprintf("the job %.64q: %v", id, why)
		}
	}
	for part := range slices.Chunk(ids, batchMin) {
		jobs, err := readYouzan(ctx, s.redis, s.found.Topic, part, bad, missing)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			f(job)
		}
	}
	return nil
}

func (s *youzanSurvey) buckets(ctx context.Context) error {
	f := s.found
	for _, bucket := range s.server.bucketKeys() {
		if err := scanScores(ctx, s.redis, bucket, "", func(page []string) error {
			scores := map[string]string{}
			for n := 0; n+1 < len(page); n += 2 {
				scores[page[n]] = page[n+1]
			}
			return s.read(ctx, members(page), func(string) {}, func(job youzanJob) {
				s.named[job.ID] = true
				if scores[job.ID] != fmt.Sprint(job.Due) {
					f.Reserved++
					return
				}
				f.Delayed++
				due := time.Unix(job.Due, 0)
				if f.Earliest.IsZero() || due.Before(f.Earliest) {
					f.Earliest = due
				}
				if due.After(f.Latest) {
					f.Latest = due
				}
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *youzanSurvey) ready(ctx context.Context) error {
	key := s.server.Names.QueueKey(s.found.Topic)
	for at := int64(0); ; at += scanPage {
		page, err := s.redis.LRange(ctx, key, at, at+scanPage-1).Result()
		if err != nil || len(page) == 0 {
			return err
		}
		if err := s.read(ctx, page, func(string) { s.found.Ended++ }, func(job youzanJob) {
			s.named[job.ID] = true
			s.found.Ready++
		}); err != nil {
			return err
		}
	}
}

// unnamed looks for jobs of the topic among all keys. What cannot be read there may be anything.
func (s *youzanSurvey) unnamed(ctx context.Context) error {
	return scanKeys(ctx, s.redis, "", func(keys []string) error {
		for part := range slices.Chunk(keys, batchMin) {
			jobs, err := readYouzan(ctx, s.redis, s.found.Topic, part, func(string, error) {}, func(string) {})
			if err != nil {
				return err
			}
			for _, job := range jobs {
				if !s.named[job.ID] {
					s.named[job.ID] = true
					s.found.Unnamed++
				}
			}
		}
		return nil
	})
}

// warn says what an import should know.
func (s *youzanSurvey) warn() {
	f := s.found
	add := func(when bool, format string, args ...any) {
		if when {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
		}
	}
	add(f.Bad > 0, "%d jobs cannot be brought over: the import refuses to begin, or leaves them where they are with --set-aside; the first: %s", f.Bad, f.FirstBad)
	add(f.Reserved > 0, "%d jobs are held by consumers: the import leaves them until they are let go, or takes them with --stopped", f.Reserved)
	add(f.Unnamed > 0, "%d jobs are named by nothing: the service will not deliver them, unless a server is just moving them; --stopped --unnamed takes them", f.Unnamed)
	add(f.HandedOver > 0, "an import was interrupted: %d jobs are claimed; run it again", f.HandedOver)
}
