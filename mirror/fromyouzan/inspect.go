package fromyouzan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfrydb/belfry/mirror/oneway"
	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/redis/go-redis/v9"
)

// A Finding is a topic of ouqiang/delay-queue as Redis has it. Bad counts also values in buckets,
// which all topics share, that cannot be read at all, whosever they are.
type Finding struct {
	Topic string `json:"topic"`
	oneway.Finding
	// Unlooked is how many keys of the database, about, were not looked at for Unnamed.
	Unlooked int64 `json:"unlooked,omitempty"`
}

// lookedMax is how many keys an inspection looks at for jobs that nothing names: any key may be
// one.
const lookedMax = 100_000

// Survey is an inspection under way.
type survey struct {
	redis  redis.UniversalClient
	server Server
	topics map[string]*Finding
	all    bool            // whether topics are looked for
	looked int64           // how many keys are looked at for jobs that nothing names
	named  map[string]bool // ids of the topics that something names
	broken oneway.Finding  // has what cannot be read, whosever it is
}

// Inspect examines topics of ouqiang/delay-queue, by default all that have jobs, and returns them
// sorted. It changes nothing. It reads the names of all keys, all jobs of the buckets, and the
// first byte of up to 100,000 keys, because the names do not show which keys are jobs. It reads
// some keys at a time; concurrent changes make its numbers approximate.
func Inspect(ctx context.Context, r redis.UniversalClient, server Server, topics ...string) ([]*Finding, error) {
	return inspect(ctx, r, server, lookedMax, topics...)
}

// inspect is Inspect that looks at so many keys for jobs that nothing names.
func inspect(ctx context.Context, r redis.UniversalClient, server Server, looked int64,
	topics ...string) ([]*Finding, error) {
	server, err := server.checked()
	if err != nil {
		return nil, err
	}
	s := &survey{redis: r, server: server, topics: map[string]*Finding{}, all: len(topics) == 0, looked: looked,
		named: map[string]bool{}}
	for _, topic := range topics {
		s.topics[topic] = &Finding{Topic: topic}
	}
	for _, step := range []func(context.Context) error{s.types, s.buckets, s.find, s.types, s.ready, s.unnamed} {
		if err := step(ctx); err != nil {
			return nil, pair.Explain(err)
		}
	}
	found := make([]*Finding, 0, len(topics))
	for _, topic := range slices.Sorted(maps.Keys(s.topics)) {
		f := s.topics[topic]
		if err := f.ReadMirrored(ctx, r, "youzan:"+topic); err != nil {
			return nil, pair.Explain(err)
		}
		if s.broken.Bad > 0 {
			f.AddBad(s.broken.FirstBad)
			f.Bad += s.broken.Bad - 1
		}
		f.WarnOfAll("leaves them where they are")
		f.Warn(f.Unlooked, "about %d keys of the database were not looked at for jobs that nothing names; an import "+
			"with --stopped looks at all")
		found = append(found, f)
	}
	return found, nil
}

// finding is that of a topic, nil if it is not looked at.
func (s *survey) finding(topic string) *Finding {
	f := s.topics[topic]
	if f == nil && s.all {
		f = &Finding{Topic: topic}
		s.topics[topic] = f
	}
	return f
}

// types refuses keys that are of another type than they should be, and buckets that are not known.
func (s *survey) types(ctx context.Context) error {
	var types []redisconn.TypedKey
	for topic := range s.topics {
		types = append(types, typesOf(s.server, topic)...)
		types = append(types, redisconn.Hash("belfry_handover:youzan:"+topic), redisconn.Hash("belfry_aside:youzan:"+topic))
	}
	if len(types) == 0 { // there may be no such server
		return nil
	}
	return errors.Join(redisconn.CheckTypes(ctx, s.redis, types), s.server.tooFew(ctx, s.redis))
}

// read reads jobs of the topics, some at a time.
func (s *survey) read(ctx context.Context, ids []string, missing func(id string), f func(*Finding, topicJob)) error {
	for part := range slices.Chunk(ids, pair.BatchMin) {
		jobs, err := readJobs(ctx, s.redis, part, func(topic string) bool { return s.finding(topic) != nil },
			func(topic, id string, why error) {
				s.named[id] = true
				found := &s.broken
				if topic != "" {
					found = &s.finding(topic).Finding
				}
				found.AddBad(fmt.Sprintf("the job %.64q: %v", id, why))
			}, missing)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			f(s.finding(job.Topic), job)
		}
	}
	return nil
}

func (s *survey) buckets(ctx context.Context) error {
	kinds, err := redisconn.TypesOf(ctx, s.redis, s.server.bucketKeys()...)
	if err != nil {
		return err
	}
	for n, bucket := range s.server.bucketKeys() {
		if kinds[n] != "zset" {
			continue
		}
		if err := redisconn.ScanScores(ctx, s.redis, bucket, "", func(page []string) error {
			scores := map[string]string{}
			for n := 0; n+1 < len(page); n += 2 {
				scores[page[n]] = page[n+1]
			}
			return s.read(ctx, members(page), func(string) {}, func(f *Finding, job topicJob) {
				s.named[job.ID] = true
				if score, err := strconv.ParseInt(scores[job.ID], 10, 64); err == nil && score != job.Due {
					f.AddTimed(&f.Reserved, time.Unix(score, 0))
				} else {
					f.AddTimed(&f.Delayed, time.Unix(job.Due, 0))
				}
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// members are those of a page of members and scores.
func members(page []string) []string {
	names := make([]string, 0, len(page)/2)
	for n := 0; n+1 < len(page); n += 2 {
		names = append(names, page[n])
	}
	return names
}

// find looks for topics by the first jobs of ready lists.
func (s *survey) find(ctx context.Context) error {
	if !s.all {
		return nil
	}
	before, after, _ := strings.Cut(s.server.Names.Queue, "%s")
	return redisconn.ScanKeys(ctx, s.redis, redisconn.GlobEscape(before)+"*"+redisconn.GlobEscape(after),
		func(keys []string) error {
			kinds, err := redisconn.TypesOf(ctx, s.redis, keys...)
			for n, kind := range kinds {
				if kind != "list" {
					continue
				}
				ids, err := s.redis.LRange(ctx, keys[n], 0, pair.BatchMin-1).Result()
				if err != nil {
					return err
				}
				ours := func(topic string) bool { return keys[n] == s.server.Names.QueueKey(topic) && s.finding(topic) != nil }
				if _, err := readJobs(ctx, s.redis, ids, ours, func(string, string, error) {}, func(string) {}); err != nil {
					return err
				}
			}
			return err
		})
}

func (s *survey) ready(ctx context.Context) error {
	for topic, found := range s.topics {
		if err := redisconn.EachPage(ctx, s.redis, s.server.Names.QueueKey(topic), func(page []string) error {
			return s.read(ctx, page, func(string) { found.Ended++ }, func(f *Finding, job topicJob) {
				s.named[job.ID] = true
				f.Ready++
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a scan.
var errEnough = errors.New("enough keys were looked at")

// unnamed looks for jobs of the topics among all keys. What cannot be read there may be anything.
func (s *survey) unnamed(ctx context.Context) error {
	if s.looked == 0 || len(s.topics) == 0 {
		return nil
	}
	looked := int64(0)
	err := redisconn.ScanKeys(ctx, s.redis, "", func(keys []string) error {
		looked += int64(len(keys))
		keys, err := likeJobs(ctx, s.redis, keys)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(keys, pair.BatchMin) {
			jobs, err := readJobs(ctx, s.redis, part, func(topic string) bool { return s.topics[topic] != nil },
				func(string, string, error) {}, func(string) {})
			if err != nil {
				return err
			}
			for _, job := range jobs {
				if !s.named[job.ID] {
					s.named[job.ID] = true
					s.topics[job.Topic].Unnamed++
				}
			}
		}
		if looked >= s.looked {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		return err
	}
	all, err := s.redis.DBSize(ctx).Result()
	for _, f := range s.topics {
		f.Unlooked = max(0, all-looked)
	}
	return err
}
