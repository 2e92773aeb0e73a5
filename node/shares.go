package node

import (
	"context"
	"fmt"
	"maps"
	"math"
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
	// Short says of which limits there was too little since it was asked last, and how much more was wanted.
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
	// quotaRetry is when trying again makes sense where a quota is used up.
	quotaRetry = time.Second
)

// shares are the shares of a shard's leader: soft state of one leadership. Only requests that name a queue of a namespace with a quota are looked at.
type shares struct {
	shard *shard
	some  atomic.Bool

	mu     sync.Mutex
	term   uint64 // of the leadership that they are of; 0 for none
	spaces map[string]*spaceShare
	change chan struct{} // closed at the next change
}

// spaceShare is the share of one namespace.
type spaceShare struct {
	Share
	pending Amounts   // what is on its way
	refill  time.Time // when all of the second's puts are to be had again
	puts    uint64    // thousandths of puts that were asked for since it was told last
	told    time.Time
	rate    uint64 // as it was told last
	short   Amounts
}

// ticket is what a request has taken of shares until it is applied.
type ticket struct {
	shares *shares
	term   uint64
	taken  map[string]Amounts
}

func newShares(s *shard) *shares { return &shares{shard: s, change: make(chan struct{})} }

// ring tells everybody who waits to look again. mu is held.
func (sh *shares) ring() {
	close(sh.change)
	sh.change = make(chan struct{})
}

// begin forgets what an earlier leadership had.
func (sh *shares) begin(term uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.term, sh.spaces = term, nil
	sh.some.Store(false)
	sh.ring()
}

// set takes over the shares of a leadership, those of all namespaces with a quota, and returns what is used of each.
func (sh *shares) set(term uint64, all map[string]Share) (used map[string]Amounts) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if term != sh.term || term == 0 {
		return nil
	}
	used = map[string]Amounts{}
	altered := sh.spaces == nil || len(all) != len(sh.spaces)
	spaces := map[string]*spaceShare{}
	for name, share := range all {
		s := sh.spaces[name]
		if s == nil {
			s = &spaceShare{told: time.Now(), refill: time.Now()}
		}
		altered = altered || s.Share != share
		s.Share = share
		spaces[name], used[name] = s, sh.usedLocked(name, s)
	}
	sh.spaces = spaces
	sh.some.Store(len(spaces) > 0)
	if altered {
		sh.ring()
	}
	return used
}

// use returns what is used of each quota; Short begins anew.
func (sh *shares) use() (term uint64, all map[string]SpaceUse) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	all = map[string]SpaceUse{}
	now := time.Now()
	for name, s := range sh.spaces {
		u := SpaceUse{Use: sh.usedLocked(name, s), Short: s.short}
		if past := now.Sub(s.told); past >= time.Second {
			s.rate = uint64(float64(s.puts) / past.Seconds())
			s.puts, s.told = 0, now
		}
		u.Use[PutRate] = s.rate
		s.short = Amounts{}
		all[name] = u
	}
	return sh.term, all
}

// usedLocked returns what is used in the shard. What was applied and not yet taken off what is on its way counts twice, nothing is missed.
func (sh *shares) usedLocked(name string, s *spaceShare) (used Amounts) {
	used = s.pending
	sh.shard.view(func(m *fsm.Machine, _ fsm.Time) {
		u := m.UsageOf(name)
		used[JobsLimit] += u.Jobs
		used[BytesLimit] += u.Bytes
		used[LeasesLimit] += u.InFlight
	})
	return used
}

// demand returns what a request asks for, by namespace; nil if it adds nothing to any.
func demand(req *fsm.Request) (all map[string]Amounts) {
	add := func(queue string, a Amounts) {
		name := fsm.NamespaceOf(queue)
		if name == "" {
			return
		}
		if all == nil {
			all = map[string]Amounts{}
		}
		sum := all[name]
		for l := range sum {
			sum[l] += a[l]
		}
		all[name] = sum
	}
	for _, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Put:
			add(c.Queue, Amounts{JobsLimit: 1, BytesLimit: fsm.PutBytes(c), PutRate: 1000})
		case *fsm.Reserve:
			for _, queue := range c.Queues {
				add(queue, Amounts{LeasesLimit: uint64(max(c.Max, 1))})
			}
		}
	}
	return all
}

// enter lets a request have what it asks for. Where there is any room, the request gets in as a whole: what is used exceeds a share by less than one
// request. A share that may still grow is waited for.
func (sh *shares) enter(ctx context.Context, req *fsm.Request) (*ticket, error) {
	if !sh.limits() {
		return nil, nil
	}
	all := demand(req)
	if all == nil {
		return nil, nil
	}
	var patience *time.Timer
	for {
		t, again, refused := sh.try(req, all)
		if refused == nil {
			return t, nil
		}
		if again == nil {
			return nil, refused
		}
		if patience == nil {
			patience = time.NewTimer(shareWait)
			defer patience.Stop()
		}
		select {
		case <-again:
		case <-patience.C:
			return nil, refused
		case <-ctx.Done():
			return nil, canceled(ctx)
		}
	}
}

// try is enter without waiting; again is closed when trying once more may help, nil if it will not help soon.
func (sh *shares) try(req *fsm.Request, all map[string]Amounts) (t *ticket, again <-chan struct{}, refused error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.term == 0 {
		return nil, nil, nil // who does not lead leaves it to the leader
	}
	if sh.spaces == nil && sh.shard.node.limitedSpaces.Load() {
		sh.shard.node.kickShares()
		return nil, sh.change, fmt.Errorf("%s: %w: what the namespaces may use is not known yet", sh.shard.name, ErrOverloaded)
	}
	now := time.Now()
	for name, want := range all {
		if s := sh.spaces[name]; s != nil {
			if refused, more := sh.shortLocked(name, s, want, now); refused != nil {
				if sh.known(req) {
					return nil, nil, nil
				}
				if more {
					again = sh.change
					sh.shard.node.kickShares()
				}
				return nil, again, refused
			}
		}
	}
	return sh.takeLocked(all, now), nil, nil
}

// takeLocked takes what a request asks for.
func (sh *shares) takeLocked(all map[string]Amounts, now time.Time) *ticket {
	taken := map[string]Amounts{}
	for name, want := range all {
		s := sh.spaces[name]
		if s == nil {
			continue
		}
		if want[LeasesLimit] > 0 && s.Quota[LeasesLimit] > 0 { // it may be granted fewer; others wait for that rather than being refused
			used := sh.usedLocked(name, s)[LeasesLimit]
			want[LeasesLimit] = min(want[LeasesLimit], s.Granted[LeasesLimit]-min(used, s.Granted[LeasesLimit]))
		}
		taken[name] = want
		for _, l := range [...]Limit{JobsLimit, BytesLimit, LeasesLimit} {
			s.pending[l] += want[l]
		}
		s.puts += want[PutRate]
		if rate := s.Granted[PutRate]; s.Quota[PutRate] > 0 && want[PutRate] > 0 {
			if s.refill.Before(now) {
				s.refill = now
			}
			s.refill = s.refill.Add(ratePart(want[PutRate], rate))
		}
	}
	return &ticket{shares: sh, term: sh.term, taken: taken}
}

// offer lets a waiter's reservation have leases of its namespaces, as many as it may be granted; ok is false if there are none.
func (sh *shares) offer(req *fsm.Request) (taken *ticket, ok bool) {
	all := demand(req)
	if all == nil {
		return nil, true
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.spaces == nil && sh.shard.node.limitedSpaces.Load() {
		sh.shard.node.kickShares()
		return nil, false // what the namespaces may use is not known yet
	}
	for name, want := range all {
		if s := sh.spaces[name]; s != nil {
			if refused, _ := sh.shortLocked(name, s, want, time.Now()); refused != nil {
				sh.shard.node.kickShares()
				return nil, false
			}
		}
	}
	return sh.takeLocked(all, time.Now()), true
}

// limits reports whether any namespace is limited here.
func (sh *shares) limits() bool { return sh.some.Load() || sh.shard.node.limitedSpaces.Load() }

// ratePart returns how long it takes until so many thousandths of a put are to be had.
func ratePart(puts, rate uint64) time.Duration {
	if rate == 0 {
		return shareWait
	}
	return time.Duration(min(float64(puts)/float64(rate)*float64(time.Second), math.MaxInt64/4))
}

// known reports whether a request is a repeat that adds nothing.
func (sh *shares) known(req *fsm.Request) (known bool) {
	sh.shard.view(func(m *fsm.Machine, now fsm.Time) { known = m.Knows(req, now) })
	return known
}

// shortLocked returns why a request that wants something of a namespace is refused, nil if it is not; more says that waiting may help.
func (sh *shares) shortLocked(name string, s *spaceShare, want Amounts, now time.Time) (refused error, more bool) {
	if s.Waiting {
		return fmt.Errorf("%s: %w: what namespace %q may use is not known yet", sh.shard.name, ErrOverloaded, name), true
	}
	var used Amounts
	read := false
	for l := range Limits {
		if s.Quota[l] == 0 || want[l] == 0 {
			continue
		}
		e := &QuotaError{Namespace: name, Limit: l, Max: s.Quota[l], Share: s.Granted[l], Wait: quotaRetry}
		if l == PutRate {
			// A second's worth may be taken at once, and at least one put.
			ahead := s.refill.Sub(now)
			burst := max(0, time.Second-ratePart(1000, e.Share))
			if e.Share > 0 && ahead <= burst {
				continue
			}
			e.Used, e.Wait = s.rate, max(ahead-burst, time.Millisecond)
		} else {
			if !read {
				used, read = sh.usedLocked(name, s), true
			}
			if used[l] < e.Share {
				continue
			}
			e.Used = used[l]
		}
		s.short[l] = max(s.short[l], want[l])
		return e, s.More[l] || l != PutRate && s.pending[l] > 0
	}
	return nil, false
}

// leave takes off what a request had taken: it is applied, and counted there, or never will be.
func (t *ticket) leave() {
	if t == nil {
		return
	}
	sh := t.shares
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.term != t.term {
		return
	}
	for name, want := range t.taken {
		if s := sh.spaces[name]; s != nil {
			for _, l := range [...]Limit{JobsLimit, BytesLimit, LeasesLimit} {
				s.pending[l] -= min(s.pending[l], want[l])
			}
		}
	}
	sh.ring()
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
		s.shares.mu.Lock()
		s.shares.ring()
		s.shares.mu.Unlock()
	}
}

// OnShort has f called, which must return at once, when a request waits for a share.
func (n *Node) OnShort(f func()) { n.onShort.Store(&f) }

func (n *Node) kickShares() {
	if f := n.onShort.Load(); f != nil {
		(*f)()
	}
}
