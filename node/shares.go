package node

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Limit names one of the limits of a namespace.
type Limit uint8

// The limits. PutRate is in thousandths of a put per second.
const (
	JobsLimit Limit = iota
	BytesLimit
	LeasesLimit
	PutRate
	// Limits is how many there are.
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

// Amounts are one amount for each limit.
type Amounts [Limits]uint64

// Share is what one shard may use of a namespace's quota.
type Share struct {
	// Quota is the namespace's; 0 stands for no limit.
	Quota Amounts `json:"quota"`
	// Granted is what this shard may use. It counts where there is a limit.
	Granted Amounts `json:"granted"`
	// More says of which limits other shards may have some to give: who needs it waits for a moment.
	More [Limits]bool `json:"more"`
	// Waiting says that it is not known yet what the shard may use.
	Waiting bool `json:"waiting"`
}

// SpaceUse is what a shard uses of a namespace's quota, what is on its way to be logged included.
type SpaceUse struct {
	Use Amounts
	// Short says of which limits there is too little, or was within the last second, and how much more is wanted: what all those who wait lack, and the
	// most that one of those lacked who did not.
	Short Amounts
}

// QuotaError says that a namespace has used up what it may. Nothing was logged. It is an ErrQuota, or an ErrRateLimited if the limit is PutRate.
type QuotaError struct {
	Namespace string
	Limit     Limit
	// Max is the limit, Used what is used of it in this shard and Share what that may use. PutRate is in thousandths of a put per second.
	Max, Used, Share uint64
	// Wait is how long to wait before trying again.
	Wait time.Duration
}

// Error tells namespace, limit and use.
func (e *QuotaError) Error() string {
	if e.Limit == PutRate {
		return fmt.Sprintf("namespace %q takes %g puts per second, of which this shard has %g; they are used up", e.Namespace, float64(e.Max)/1000, float64(e.Share)/1000)
	}
	return fmt.Sprintf("namespace %q may have %d %s, of which this shard has %d and uses %d", e.Namespace, e.Max, e.Limit, e.Share, e.Used)
}

// Unwrap returns what kind of refusal it is.
func (e *QuotaError) Unwrap() error {
	if e.Limit == PutRate {
		return ErrRateLimited
	}
	return ErrQuota
}

const (
	// shareWait is how long a request waits for a share to grow, or to be known.
	shareWait = time.Second
	// shareWaitersMax is how many requests of a shard wait for that at a time. Those beyond are refused at once.
	shareWaitersMax = 1024
	// spaceWaitersMax is how many of them may be of one namespace, so that one leaves room for the others.
	spaceWaitersMax = shareWaitersMax / 4
	// quotaRetry is when trying again makes sense where a quota is used up.
	quotaRetry = time.Second
	// missedFor is how long it counts what a request lacked that did not wait: until its caller tries again, if it does as it is told.
	missedFor = quotaRetry + 500*time.Millisecond
	// kickPause is the least time between two calls that ask for more, as long as that changes nothing; it doubles up to kickPauseMax, at which shares are
	// looked at in any case.
	kickPause    = 20 * time.Millisecond
	kickPauseMax = 200 * time.Millisecond
)

// shares are the shares of a shard's leader: soft state of one leadership. Only requests that name a queue of a namespace with a quota are looked at.
type shares struct {
	shard *shard
	some  atomic.Bool // namespaces have a quota

	mu    sync.Mutex
	term  uint64 // of the leadership that they are of; 0 for none
	known bool   // which namespaces have one
	// spaces are the namespaces that have a quota, and those that had one of which something is on its way.
	spaces map[string]*spaceShare
	// waiting is how many requests wait for a share. change is closed when it is known which namespaces have quotas; nil while nobody waits for that.
	waiting int
	change  chan struct{}
	// kicked is when more was asked for last, pause for how long it is not from then on.
	kicked time.Time
	pause  time.Duration
}

// spaceShare is the share of one namespace.
type spaceShare struct {
	Share
	name    string
	limited bool    // it has a quota
	pending Amounts // what is on its way
	// owed are the thousandths of puts that were let in and that time had not paid for at paid.
	owed float64
	paid time.Time
	puts uint64 // thousandths of puts that were let in since it was told last
	told time.Time
	rate uint64 // as it was told last
	// lacking is what those lack together who wait, missed the most that one lacked who did not, and missedAt when that was last.
	lacking, missed Amounts
	waiting         int // those who wait
	missedAt        [Limits]time.Time
	change          chan struct{} // closed at the next change; nil while nobody waits
}

func newShares(s *shard) *shares { return &shares{shard: s} }

// ringLocked tells those who wait for a namespace to look again, all who wait to know which have quotas if it is nil.
func (sh *shares) ringLocked(s *spaceShare) {
	change := &sh.change
	if s != nil {
		change = &s.change
	}
	if *change != nil {
		close(*change)
		*change = nil
	}
}

// ring tells those to look again who wait to know which namespaces have quotas.
func (sh *shares) ring() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.ringLocked(nil)
}

// begin forgets what an earlier leadership had: what that logged is applied, or never will be.
func (sh *shares) begin(term uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, s := range sh.spaces {
		sh.ringLocked(s)
	}
	sh.ringLocked(nil)
	sh.term, sh.known, sh.spaces, sh.pause = term, false, nil, 0
	sh.some.Store(false)
}

// set takes over the shares of a leadership, those of all namespaces with a quota, and returns what is used of each.
func (sh *shares) set(term uint64, all map[string]Share) (used map[string]Amounts) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if term != sh.term || term == 0 {
		return nil
	}
	if sh.spaces == nil {
		sh.spaces = map[string]*spaceShare{}
	}
	now := time.Now()
	used = map[string]Amounts{}
	for name, share := range all {
		s := sh.spaces[name]
		if s == nil {
			s = &spaceShare{name: name, told: now, paid: now}
			sh.spaces[name] = s
		}
		s.pay(now) // at the rate that it had
		if share.Quota[PutRate] == 0 {
			s.owed = 0
		}
		if !s.limited || s.Share != share {
			s.limited, s.Share, sh.pause = true, share, 0
			sh.ringLocked(s)
		}
		used[name] = sh.usedLocked(s)
	}
	for name, s := range sh.spaces {
		if _, limited := all[name]; !limited {
			s.limited = false
			sh.ringLocked(s)
			sh.tidyLocked(s)
		}
	}
	sh.some.Store(len(all) > 0)
	if !sh.known {
		sh.known, sh.pause = true, 0
		sh.ringLocked(nil)
	}
	return used
}

// tidyLocked forgets a namespace that has no quota, unless something is on its way that one would count.
func (sh *shares) tidyLocked(s *spaceShare) {
	if !s.limited && s.pending == (Amounts{}) && sh.spaces[s.name] == s {
		delete(sh.spaces, s.name)
	}
}

// use returns what is used of each quota.
func (sh *shares) use() (term uint64, all map[string]SpaceUse) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all = map[string]SpaceUse{}
	now := time.Now()
	for name, s := range sh.spaces {
		if !s.limited {
			continue
		}
		u := SpaceUse{Use: sh.usedLocked(s), Short: s.lacking}
		for l := range s.missed {
			if now.Sub(s.missedAt[l]) > missedFor {
				s.missed[l] = 0
			}
			u.Short[l] += s.missed[l]
		}
		if past := now.Sub(s.told); past >= time.Second {
			s.rate = uint64(float64(s.puts) / past.Seconds())
			s.puts, s.told = 0, now
		}
		u.Use[PutRate] = s.rate
		all[name] = u
	}
	return sh.term, all
}

// usedLocked returns what is used in the shard. What was applied and not yet taken off what is on its way counts twice, nothing is missed.
func (sh *shares) usedLocked(s *spaceShare) (used Amounts) {
	used = s.pending
	sh.shard.view(func(m *fsm.Machine, _ fsm.Time) {
		u := m.UsageOf(s.name)
		used[JobsLimit] += u.Jobs
		used[BytesLimit] += u.Bytes
		used[LeasesLimit] += u.InFlight
	})
	return used
}

// pay takes off what is owed what time has paid for.
func (s *spaceShare) pay(now time.Time) {
	s.owed = max(0, s.owed-float64(s.Granted[PutRate])*float64(now.Sub(s.paid))/float64(time.Second))
	s.paid = now
}

// refill returns how long it takes until a put is let in; 0 for now. A second's worth may be taken at once, and at least one put.
func (s *spaceShare) refill(now time.Time) time.Duration {
	rate := float64(s.Granted[PutRate])
	if rate == 0 {
		return shareWait
	}
	s.pay(now)
	more := s.owed - max(0, rate-1000)
	if more <= 1 { // a thousandth, as time is not exact
		return 0
	}
	return max(time.Millisecond, time.Duration(min(more/rate, refillMax.Seconds())*float64(time.Second)))
}

// refillMax bounds what is said of how long it takes.
const refillMax = 24 * time.Hour

// miss notes what a request lacks that does not wait.
func (s *spaceShare) miss(lacks Amounts, now time.Time) {
	for l, n := range lacks {
		if n > 0 {
			s.missed[l], s.missedAt[l] = max(s.missed[l], n), now
		}
	}
}

// limits reports whether any namespace is limited here.
func (sh *shares) limits() bool { return sh.some.Load() || sh.shard.node.limitedSpaces.Load() }

// kickLocked has the shares looked at, ever more seldom while that changes nothing.
func (sh *shares) kickLocked(now time.Time) {
	if now.Sub(sh.kicked) < sh.pause {
		return
	}
	sh.kicked, sh.pause = now, min(max(kickPause, 2*sh.pause), kickPauseMax)
	if f := sh.shard.node.onShort.Load(); f != nil {
		(*f)()
	}
}

// SetShares says what a shard may use of the quotas of namespaces, all that have one, in a leadership of this node; those of another term are ignored. It
// returns what is used of each at that moment: where a share was lowered, no more than that or the share is from then on.
func (n *Node) SetShares(shard uint32, term uint64, all map[string]Share) (used map[string]Amounts) {
	s, err := n.replicaOf(shard)
	if err != nil {
		return nil
	}
	return s.shares.set(term, maps.Clone(all))
}

// SharesUsed returns what a shard that this node leads uses of the quotas of namespaces, and in which term it leads; 0 if it does not serve.
func (n *Node) SharesUsed(shard uint32) (term uint64, all map[string]SpaceUse) {
	s, err := n.replicaOf(shard)
	if err != nil || s.serving.Load() == nil {
		return 0, nil
	}
	return s.shares.use()
}

// LimitSpaces says how many namespaces have a quota; who does not know yet says one. While one has, a shard that begins to be led takes nothing into any namespace before SetShares.
func (n *Node) LimitSpaces(spaces int) {
	if n.limitedSpaces.Swap(spaces > 0) == (spaces > 0) {
		return
	}
	for _, s := range n.here() {
		s.shares.ring()
	}
}

// OnShort has f called, which must return at once, when a request waits for a share.
func (n *Node) OnShort(f func()) { n.onShort.Store(&f) }
