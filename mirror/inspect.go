package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/belfrydb/belfry/mirror/pair"
	"github.com/belfrydb/belfry/mirror/redisconn"
	"github.com/belfrydb/belfry/mirror/redisson"
)

// A Finding is a delayed queue of Redisson as Redis has it.
type Finding struct {
	// Queue is the name that Redisson's processes use.
	Queue string `json:"queue"`
	// Timer is how many entries will be delivered, List how many places the order list has, Ready how
	// many are due and wait for a consumer.
	Timer int64 `json:"timer"`
	List  int64 `json:"list"`
	Ready int64 `json:"ready"`
	// Orphans are places of the list without an entry in the timer: they are never delivered. Ghosts
	// are entries of the timer that are not in the list.
	Orphans int64 `json:"orphans"`
	Ghosts  int64 `json:"ghosts"`
	// Old and New are entries in the format of Redisson up to 3.21.0, and since 3.21.1. Bad are
	// those that Belfry cannot take, FirstBad says why of one.
	Old      int64  `json:"old"`
	New      int64  `json:"new"`
	Bad      int64  `json:"bad"`
	FirstBad string `json:"firstBad,omitempty"`
	// Codecs are guesses at how payloads are encoded, with how many looked so.
	Codecs map[string]int64 `json:"codecs,omitempty"`
	// Overdue are entries that were due at the time of Redis; Due counts the others by how soon
	// they are, in the order of [DueBounds].
	Overdue int64   `json:"overdue"`
	Due     []int64 `json:"due,omitempty"`
	// Earliest and Latest are due times; zero if there is no entry.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// Processes is how many connections listen for new entries: at least one for each live process
	// of Redisson.
	Processes int64 `json:"processes"`
	// HandedOver are entries that an import has claimed and not put yet, Aside those that it set
	// aside, Lost the orphans that it found.
	HandedOver int64 `json:"handedOver"`
	Aside      int64 `json:"aside"`
	Lost       int64 `json:"lost"`
	// Listed are the bad entries and the orphans, those that an import set aside too: up to
	// [ListedMax] of each key. A scan may give one twice.
	Listed []Listed `json:"listed,omitempty"`
	// Owner is the cluster that mirrors the queue; empty if none did.
	Owner string `json:"owner,omitempty"`
	// Warnings say what an import should know, Would what it would do.
	Warnings []string `json:"warnings,omitempty"`
	Would    []string `json:"would"`
	// Target is the queue of Belfry; set by [Rehearse] only.
	Target *Target `json:"target,omitempty"`
}

// DueBounds returns the upper bounds of Finding.Due; the last class has none.
func DueBounds() []time.Duration {
	return []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
		30 * 24 * time.Hour}
}

const (
	// sniffed is how many payloads are looked at.
	sniffed = 2000
)

// FindQueues returns the names of the delayed queues of Redisson that Redis has, sorted. It reads
// the names of all keys, a page at a time.
func FindQueues(ctx context.Context, r redis.UniversalClient) ([]string, error) {
	var mu sync.Mutex
	names := map[string]bool{}
	find := func(ctx context.Context, one redis.Cmdable) error {
		some := keysOf("x")
		for _, key := range []string{some.Timer, some.List, some.state} {
			prefix := strings.TrimSuffix(key, "{x}")
			scan := one.Scan(ctx, 0, prefix+"*", redisconn.ScanPage).Iterator()
			for scan.Next(ctx) {
				tagged := strings.TrimPrefix(scan.Val(), prefix)
				if !strings.Contains(tagged, "{") {
					continue // the mirror's own, for other services
				}
				mu.Lock()
				names[nameOf(tagged)] = true
				mu.Unlock()
			}
			if err := scan.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if cluster, ok := r.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error { return find(ctx, one) })
	} else {
		err = find(ctx, r)
	}
	if err != nil {
		return nil, pair.Explain(err)
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// nameOf is the name of a queue by what follows the prefix in its keys. Of "orders" and "{orders}",
// which have the same keys, it is the first.
func nameOf(tagged string) string {
	if inner, ok := strings.CutPrefix(tagged, "{"); ok && strings.HasSuffix(inner, "}") && !strings.Contains(inner, "{") {
		return strings.TrimSuffix(inner, "}")
	}
	return tagged
}

// Inspect examines one delayed queue of Redisson. It changes nothing, and reads all entries a page
// at a time; concurrent changes make its numbers approximate. The error is [ErrNoQueue] if Redis
// has no key of the queue, not even one of the mirror, and no process listens.
func Inspect(ctx context.Context, r redis.UniversalClient, queue string) (*Finding, error) {
	found, err := inspect(ctx, r, queue)
	if err != nil || found.Processes > 0 {
		return found, err
	}
	names := make([]string, 0, len(keysOf(queue).all()))
	for _, key := range keysOf(queue).all() {
		names = append(names, key.Key)
	}
	// each for itself: of some names a Redis Cluster has them in different slots
	kinds, err := redisconn.TypesOf(ctx, r, names...)
	if err != nil {
		return nil, pair.Explain(err)
	}
	if !slices.ContainsFunc(kinds, func(kind string) bool { return kind != "none" }) {
		return nil, fmt.Errorf("%w %q: there is no key %s; without a name 'belfry mirror inspect' shows those that there "+
			"are", pair.ErrNoQueue, queue, names[0])
	}
	return found, nil
}

// inspect is Inspect also for a queue that is not there yet.
func inspect(ctx context.Context, r redis.UniversalClient, queue string) (*Finding, error) {
	s := &survey{redis: r, keys: keysOf(queue), found: &Finding{Queue: queue, Codecs: map[string]int64{},
		Due: make([]int64, len(DueBounds())+1)}, listed: map[string]int{}}
	for _, step := range []func(context.Context) error{s.types, s.sizes, s.entries, s.order, s.quarantine,
		s.circumstances} {
		if err := step(ctx); err != nil {
			return nil, pair.Explain(err)
		}
	}
	s.warn()
	s.found.Would = s.found.would()
	return s.found, nil
}

// survey is an inspection under way.
type survey struct {
	redis    redis.UniversalClient
	keys     keys
	now      time.Time // of Redis
	found    *Finding
	ttl      bool
	bound    bool  // whether the ready list is that of a bounded queue
	returned int64 // jobs that an export wrote and Belfry may still have
	// listed is how many entries are listed, by key.
	listed map[string]int
}

// types refuses keys that are not what Redisson or the mirror makes of them.
func (s *survey) types(ctx context.Context) error {
	return redisconn.CheckTypes(ctx, s.redis, s.keys.all())
}

// sizes reads how much there is.
func (s *survey) sizes(ctx context.Context) error {
	var timer, list, ready, handed, aside, lost, returned *redis.IntCmd
	var owner *redis.SliceCmd
	var now *redis.TimeCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		timer, list, ready = p.ZCard(ctx, s.keys.Timer), p.LLen(ctx, s.keys.List), p.LLen(ctx, s.keys.Ready)
		handed, aside, lost = p.ZCard(ctx, s.keys.handover), p.ZCard(ctx, s.keys.aside), p.LLen(ctx, s.keys.orphans)
		returned = p.SCard(ctx, s.keys.returned)
		owner, now = p.HMGet(ctx, s.keys.state, "cluster"), p.Time(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	f := s.found
	f.Timer, f.List, f.Ready, f.HandedOver, f.Aside, f.Lost = timer.Val(), list.Val(), ready.Val(), handed.Val(),
		aside.Val(), lost.Val()
	f.Owner, _ = owner.Val()[0].(string)
	s.returned = returned.Val()
	s.now = now.Val()
	return nil
}

// entries looks at each entry of the timer. A scan may give one twice.
func (s *survey) entries(ctx context.Context) error {
	for cursor := uint64(0); ; {
		page, next, err := s.redis.ZScan(ctx, s.keys.Timer, cursor, "", redisconn.ScanPage).Result()
		if err != nil {
			return err
		}
		for n := 0; n+1 < len(page); n += 2 {
			s.entry(entry{page[n], page[n+1]})
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (s *survey) entry(e entry) {
	f := s.found
	member, due, err := e.read(redisson.New, s.now)
	if err != nil {
		if f.Bad++; f.FirstBad == "" {
			f.FirstBad = (&BadEntry{Member: []byte(e.member), Score: e.score, Reason: err}).Error()
		}
		s.list(s.keys.Timer, e, err.Error())
		return
	}
	if member.Generation == redisson.Old {
		f.Old++
	} else {
		f.New++
	}
	if f.Old+f.New <= sniffed {
		f.Codecs[redisson.Sniff(member.Payload)]++
	}
	if f.Earliest.IsZero() || due.Before(f.Earliest) {
		f.Earliest = due
	}
	if due.After(f.Latest) {
		f.Latest = due
	}
	wait := due.Sub(s.now)
	if wait <= 0 {
		f.Overdue++
		return
	}
	class, _ := slices.BinarySearch(DueBounds(), wait)
	f.Due[class]++
}

// order counts places of the list that have no entry in the timer, and the other way round.
func (s *survey) order(ctx context.Context) error {
	places := int64(0)
	for {
		members, err := s.redis.LRange(ctx, s.keys.List, places, places+redisconn.ScanPage-1).Result()
		if err != nil {
			return err
		}
		if len(members) == 0 {
			s.found.Ghosts = max(0, s.found.Timer-(places-s.found.Orphans))
			return nil
		}
		scores := make([]*redis.FloatCmd, len(members))
		_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n, member := range members {
				scores[n] = p.ZScore(ctx, s.keys.Timer, member)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for n, score := range scores {
			if errors.Is(score.Err(), redis.Nil) {
				s.found.Orphans++
				s.list(s.keys.List, entry{member: members[n]}, whyOrphan)
			}
		}
		places += int64(len(members))
	}
}

// circumstances looks at what is around the queue.
func (s *survey) circumstances(ctx context.Context) error {
	var err error
	if s.found.Processes, err = redisconn.Subscribers(ctx, s.redis, s.keys.Channel); err != nil {
		return err
	}
	for _, key := range []string{s.keys.Timer, s.keys.List} {
		left, err := s.redis.PTTL(ctx, key).Result()
		if err != nil {
			return err
		}
		s.ttl = s.ttl || left > 0
	}
	exists, err := s.redis.Exists(ctx, s.keys.Semaphore).Result()
	s.bound = exists > 0
	return err
}

// warn says what an import should know.
func (s *survey) warn() {
	f := s.found
	add := func(when bool, format string, args ...any) {
		if when {
			f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...))
		}
	}
	add(!canBeName(f.Queue), "no queue of Belfry can have this name: name another with --belfry-queue")
	add(f.Old+f.New > sniffed, "codecs are guessed from %d of %d payloads", sniffed, f.Old+f.New)
	add(f.Bad > 0, "%d entries cannot be brought over: the import refuses to begin, or sets them aside with "+
		"--set-aside", f.Bad)
	add(f.Old > 0 && f.New > 0, "entries are in both formats: no version of Redisson can read all of them; the import can")
	add(f.Orphans > 0,
		"%d places of the list have no due time and will never be delivered: the import sets them aside", f.Orphans)
	add(f.Ghosts > 0, "%d entries will be delivered although size() and contains() do not see them: the import takes them",
		f.Ghosts)
	add(s.ttl, "the keys have a time to live: Redis will delete all entries at its end")
	add(s.bound, "the destination is a bounded queue: its consumers release a semaphore, which an import of the ready "+
		"list would not")
	add(!redisson.SameSlot(f.Queue), "Redis Cluster would keep the keys of this name in different slots: Redisson "+
		"cannot use it there")
	add(f.Timer+f.List > 0 && f.Processes == 0, "no process of Redisson listens: nothing is delivered until one does")
	add(f.Aside+f.Lost > 0, "%d entries and %d orphans were set aside by an import: 'belfry mirror rollback' gives "+
		"them back", f.Aside, f.Lost)
	add(f.HandedOver > 0, "an import was interrupted: %d entries are claimed; run it again, or roll back", f.HandedOver)
	add(s.returned > 0, "an export was killed: %d jobs are here, and Belfry may hand them out too once the queue is "+
		"resumed; run it again before", s.returned)
}

// nameLetters may be in a part of a queue's name.
const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-"

// canBeName reports whether a queue of Belfry can have a name: one part or two, with a slash
// between.
func canBeName(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || strings.Trim(part, nameLetters) != "" {
			return false
		}
	}
	return len(name) <= pair.NameMax && strings.Count(name, "/") <= 1
}
