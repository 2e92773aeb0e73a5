package admit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/outcome"
)

// Limit names one of the limits of a namespace.
type Limit uint8

// The limits. PutRate is in thousandths of a put per second.
const (
	JobsLimit Limit = iota
	BytesLimit
	LeasesLimit
	PutRate
	// Limits is the number of limits.
	Limits
)

// String returns the limit's name in words.
func (l Limit) String() string {
	switch l {
	case JobsLimit:
		return "jobs"
	case BytesLimit:
		return "bytes"
	case LeasesLimit:
		return "jobs in flight"
	case PutRate:
		return "puts per second"
	default:
		return fmt.Sprintf("limit %d", uint8(l))
	}
}

// Amounts holds one amount for each limit.
type Amounts [Limits]uint64

// ShardQuota is the part of a namespace's quota that one shard may use.
type ShardQuota struct {
	// Quota is the whole quota of the namespace; 0 stands for no limit.
	Quota Amounts `json:"quota"`
	// Granted is what this shard may use. It has a meaning only where there is a limit.
	Granted Amounts `json:"granted"`
	// More says for which limits other shards may have some to spare, so that a request waits a moment
	// for it.
	More [Limits]bool `json:"more"`
	// Waiting says that the quota of this shard is not known yet.
	Waiting bool `json:"waiting"`
}

// NamespaceUse is what a shard uses of a namespace's quota, requests in flight included.
type NamespaceUse struct {
	Use Amounts
	// Short is how much more of each limit is needed: the sum over the requests that wait, and the
	// most that one request needed that was refused within the last second and a half.
	Short Amounts
}

// QuotaError refuses a request of a namespace that has used up its quota. Nothing was logged. It is
// an ErrQuota, or an ErrRateLimited if the limit is PutRate.
type QuotaError struct {
	Namespace string
	Limit     Limit
	// Max is the limit of the namespace, Used what this shard uses of it and ShardMax what this
	// shard may use. PutRate is in thousandths of a put per second.
	Max, Used, ShardMax uint64
	// Growing says that other shards may have quota that they do not use, so that the same request may
	// succeed later.
	Growing bool
	// Wait is how long to wait before the next attempt.
	Wait time.Duration
}

// Error names the namespace, the limit, and the shard's part of it and its use.
func (e *QuotaError) Error() string {
	if e.Limit == PutRate {
		return fmt.Sprintf(
			"namespace %q has a quota of %g puts per second, divided between the shards: this shard may take %g and does so",
			e.Namespace, float64(e.Max)/1000, float64(e.ShardMax)/1000)
	}
	text := fmt.Sprintf("namespace %q has a quota of %d %s, divided between the shards: this shard may use %d and uses %d",
		e.Namespace, e.Max, e.Limit, e.ShardMax, e.Used)
	if e.Growing {
		text += "; a repeat may succeed, when other shards have given up quota that they do not use"
	}
	return text
}

// Unwrap returns ErrQuota or ErrRateLimited.
func (e *QuotaError) Unwrap() error {
	if e.Limit == PutRate {
		return outcome.ErrRateLimited
	}
	return outcome.ErrQuota
}

const (
	// QuotaWait is how long a request waits for the shard quota to grow, or to become known.
	QuotaWait = time.Second
	// quotaWaitersMax bounds how many requests of a shard wait at a time. Further ones are refused at
	// once.
	quotaWaitersMax = 1024
	// namespaceWaitersMax bounds how many of them belong to one namespace, so that there is room for
	// others.
	namespaceWaitersMax = quotaWaitersMax / 4
	// quotaRetry is the delay before the next attempt that a refused caller is told.
	quotaRetry = time.Second
	// shortageKept is how long the need of a refused request counts: until its caller tries again
	// after quotaRetry.
	shortageKept = quotaRetry + 500*time.Millisecond
	// askPause is the least time between two requests for a larger shard quota. It doubles up to
	// askPauseMax while they change nothing; shard quotas are recomputed that often in any case.
	askPause    = 20 * time.Millisecond
	askPauseMax = 200 * time.Millisecond
)

// Quotas holds the shard quotas of a shard's leader: soft state of one leadership. It checks only
// requests that name a queue of a namespace with a quota.
type Quotas struct {
	name string // of the shard
	view View
	// nodeLimited says that some namespace of the cluster has a quota, askForMore asks for larger
	// shard quotas, and noLeader returns ErrNoLeader with the known leader.
	nodeLimited *atomic.Bool
	askForMore  func()
	noLeader    func() error
	anyLimited  atomic.Bool // some namespace has a quota

	mu    sync.Mutex
	term  uint64 // of the leadership; 0 for none
	known bool   // the namespaces that have a quota are known
	// namespaces are those that have a quota, and those that had one and still have requests in
	// flight.
	namespaces map[string]*namespaceQuota
	// waiting is how many requests wait. change is closed when it becomes known which namespaces have
	// quotas; nil if no request waits for that.
	waiting int
	change  chan struct{}
	// askedAt is when a larger shard quota was asked for last, askAgainAfter the pause until the next
	// such request.
	askedAt       time.Time
	askAgainAfter time.Duration
}

// namespaceQuota is the shard quota of one namespace and its use.
type namespaceQuota struct {
	ShardQuota
	name    string
	limited bool    // has a quota
	pending Amounts // of requests in flight
	// putDebt are the thousandths of puts that were admitted ahead of the rate, as of debtAsOf.
	putDebt   float64
	debtAsOf  time.Time
	puts      uint64 // thousandths of puts that were admitted since putsSince
	putsSince time.Time
	putRate   uint64 // of the last second
	// waitersNeed is the sum of what the waiting requests lack, refusedNeed the most that one refused
	// request lacked, and refusedAt the time of the last refusal.
	waitersNeed, refusedNeed Amounts
	waiting                  int // the number of waiting requests
	refusedAt                [Limits]time.Time
	change                   chan struct{} // closed at the next change; nil if no request waits
}

// wakeLocked wakes the requests that wait for a namespace. With nil it wakes those that wait to
// learn which namespaces have quotas.
func (q *Quotas) wakeLocked(s *namespaceQuota) {
	change := &q.change
	if s != nil {
		change = &s.change
	}
	if *change != nil {
		close(*change)
		*change = nil
	}
}

// WakeAll wakes the requests that wait to learn which namespaces have quotas.
func (q *Quotas) WakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked(nil)
}

// Reset forgets the quotas of an earlier leadership: its entries are applied, or never will be.
func (q *Quotas) Reset(term uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.namespaces {
		q.wakeLocked(s)
	}
	q.wakeLocked(nil)
	q.term, q.known, q.namespaces, q.askAgainAfter = term, false, nil, 0
	q.anyLimited.Store(false)
}

// SetShardQuotas sets the quotas of the shard in a leadership, those of all namespaces with a
// quota, and returns what is used of each.
func (q *Quotas) SetShardQuotas(term uint64, all map[string]ShardQuota) (used map[string]Amounts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if term != q.term || term == 0 {
		return nil
	}
	if q.namespaces == nil {
		q.namespaces = map[string]*namespaceQuota{}
	}
	now := time.Now()
	used = map[string]Amounts{}
	for name, quota := range all {
		s := q.namespaces[name]
		if s == nil {
			s = &namespaceQuota{name: name, putsSince: now, debtAsOf: now}
			q.namespaces[name] = s
		}
		s.refillTo(now) // at the old rate
		if quota.Quota[PutRate] == 0 {
			s.putDebt = 0
		}
		if !s.limited || s.ShardQuota != quota {
			s.limited, s.ShardQuota, q.askAgainAfter = true, quota, 0
			q.wakeLocked(s)
		}
		used[name] = q.usedLocked(s)
	}
	for name, s := range q.namespaces {
		if _, limited := all[name]; !limited {
			s.limited = false
			q.wakeLocked(s)
			q.forgetUnlimitedLocked(s)
		}
	}
	q.anyLimited.Store(len(all) > 0)
	if !q.known {
		q.known, q.askAgainAfter = true, 0
		q.wakeLocked(nil)
	}
	return used
}

// forgetUnlimitedLocked forgets a namespace without a quota, unless it has requests in flight: a
// new quota would have to count them.
func (q *Quotas) forgetUnlimitedLocked(s *namespaceQuota) {
	if !s.limited && s.pending == (Amounts{}) && q.namespaces[s.name] == s {
		delete(q.namespaces, s.name)
	}
}

// Use returns the use of each quota.
func (q *Quotas) Use() (term uint64, all map[string]NamespaceUse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = map[string]NamespaceUse{}
	now := time.Now()
	for name, s := range q.namespaces {
		if !s.limited {
			continue
		}
		u := NamespaceUse{Use: q.usedLocked(s), Short: s.waitersNeed}
		for l := range s.refusedNeed {
			if now.Sub(s.refusedAt[l]) > shortageKept {
				s.refusedNeed[l] = 0
			}
			u.Short[l] += s.refusedNeed[l]
		}
		if past := now.Sub(s.putsSince); past >= time.Second {
			s.putRate = uint64(float64(s.puts) / past.Seconds())
			s.puts, s.putsSince = 0, now
		}
		u.Use[PutRate] = s.putRate
		all[name] = u
	}
	return q.term, all
}

// Usage returns the applied use of each quota, for metrics. It changes nothing, unlike Use.
func (q *Quotas) Usage() map[string]Amounts {
	q.mu.Lock()
	all := make(map[string]Amounts, len(q.namespaces))
	for name, s := range q.namespaces {
		all[name] = Amounts{PutRate: s.putRate}
	}
	q.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	q.view(func(m *machine.Machine, _ fsm.Time) {
		for name, used := range all {
			u := m.UsageOf(name)
			used[JobsLimit], used[BytesLimit], used[LeasesLimit] = u.Jobs, u.Bytes, u.InFlight
			all[name] = used
		}
	})
	return all
}

// usedLocked returns what a namespace uses in the shard. A request that is applied and still
// pending counts twice; none is missed.
func (q *Quotas) usedLocked(s *namespaceQuota) (used Amounts) {
	used = s.pending
	q.view(func(m *machine.Machine, _ fsm.Time) {
		u := m.UsageOf(s.name)
		used[JobsLimit] += u.Jobs
		used[BytesLimit] += u.Bytes
		used[LeasesLimit] += u.InFlight
	})
	return used
}

// refillTo reduces putDebt by what the rate allows until now.
func (s *namespaceQuota) refillTo(now time.Time) {
	s.putDebt = max(0, s.putDebt-float64(s.Granted[PutRate])*float64(now.Sub(s.debtAsOf))/float64(time.Second))
	s.debtAsOf = now
}

// putAllowedIn returns how long it takes until the next put is admitted; 0 for now. The burst is
// one second of the rate, and at least one put.
func (s *namespaceQuota) putAllowedIn(now time.Time) time.Duration {
	rate := float64(s.Granted[PutRate])
	if rate == 0 {
		return QuotaWait
	}
	s.refillTo(now)
	more := s.putDebt - max(0, rate-1000)
	if more <= 1 { // a thousandth, for rounding
		return 0
	}
	return max(time.Millisecond, time.Duration(min(more/rate, putAllowedInMax.Seconds())*float64(time.Second)))
}

// putAllowedInMax bounds the result of putAllowedIn.
const putAllowedInMax = 24 * time.Hour

// noteRefused records what a refused request lacked.
func (s *namespaceQuota) noteRefused(lacks Amounts, now time.Time) {
	for l, n := range lacks {
		if n > 0 {
			s.refusedNeed[l], s.refusedAt[l] = max(s.refusedNeed[l], n), now
		}
	}
}

// LimitsAny reports whether any namespace has a quota.
func (q *Quotas) LimitsAny() bool { return q.anyLimited.Load() || q.nodeLimited.Load() }

// askForMoreLocked asks for larger shard quotas, less and less often while that changes nothing.
func (q *Quotas) askForMoreLocked(now time.Time) {
	if now.Sub(q.askedAt) < q.askAgainAfter {
		return
	}
	q.askedAt, q.askAgainAfter = now, min(max(askPause, 2*q.askAgainAfter), askPauseMax)
	q.askForMore()
}
