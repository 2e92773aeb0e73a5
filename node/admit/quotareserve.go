package admit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/outcome"
)

// Reservation is the quota that a request holds until it is applied, and the machine counts it, or
// never will be. A nil reservation holds nothing.
type Reservation struct {
	quotas  *Quotas
	charges []charge
}

// charge is what a reservation holds of one namespace. It keeps the pointer: by the time of the
// release, another namespaceQuota may have the name.
type charge struct {
	namespace *namespaceQuota
	amounts   Amounts
}

// quotaWaiter is a request that waits for quota. It is guarded by Quotas.mu.
type quotaWaiter struct {
	waits      bool
	namespace  *namespaceQuota // whose quota is short; nil if the quotas are not known yet
	needs      Amounts
	changed    <-chan struct{} // closed when another attempt may succeed
	retryAfter time.Duration   // after which another attempt may succeed in any case; 0 for never
}

// demand returns what a request needs of each namespace's quota; nil if it needs none.
func (q *Quotas) demand(req *fsm.Request) (all map[string]Amounts) {
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
		case *fsm.PutSchedule: // with the bytes that it has already; see replacedLocked
			add(c.Queue, Amounts{BytesLimit: fsm.ScheduleBytes(c.Name, &c.Job)})
		case *fsm.Reserve:
			for _, queue := range c.Queues {
				add(queue, Amounts{LeasesLimit: uint64(max(c.Max, 1))})
			}
		case *fsm.ReserveJob:
			add(c.Queue, Amounts{LeasesLimit: 1})
		}
	}
	for _, f := range q.view.firings(req) {
		if f.jobs > 0 {
			add(f.queue, Amounts{JobsLimit: f.jobs, BytesLimit: f.bytes})
		}
	}
	return all
}

// reserve reserves the quota that a request needs. If any quota is left, the whole request is
// admitted, so the use exceeds the quota by less than one request. If it may still grow, or
// time alone helps, reserve calls beforeWait, if it is not nil, and waits for up to QuotaWait. The
// caller must release the reservation once.
func (q *Quotas) reserve(ctx context.Context, req *fsm.Request, beforeWait func()) (*Reservation, error) {
	if !q.LimitsAny() {
		return nil, nil
	}
	all := q.demand(req)
	if all == nil {
		return nil, nil
	}
	var w quotaWaiter
	t, refused := q.tryReserve(req, all, &w)
	if !w.waits {
		return t, q.withLeaderHint(refused)
	}
	defer q.removeWaiter(&w)
	if beforeWait != nil {
		beforeWait()
	}
	timeout, refill := time.NewTimer(QuotaWait), time.NewTimer(2*QuotaWait) // refill is set below
	defer timeout.Stop()
	defer refill.Stop()
	for last := false; ; {
		if w.retryAfter > 0 {
			refill.Reset(w.retryAfter)
		}
		select {
		case <-w.changed:
		case <-refill.C:
		case <-timeout.C:
			last = true
		case <-ctx.Done():
			return nil, outcome.Canceled(ctx)
		}
		t, refused = q.tryReserve(req, all, &w)
		if !w.waits || last {
			return t, q.withLeaderHint(refused)
		}
	}
}

// withLeaderHint adds the known leader to ErrNoLeader.
func (q *Quotas) withLeaderHint(refused error) error {
	if errors.Is(refused, outcome.ErrNoLeader) {
		return q.noLeader()
	}
	return refused
}

// tryReserve is reserve without waiting. It sets w if the request is to wait.
func (q *Quotas) tryReserve(req *fsm.Request, all map[string]Amounts, w *quotaWaiter) (t *Reservation, refused error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeWaiterLocked(w)
	if q.term == 0 {
		// a leadership may begin before the request is proposed, and this check would not be its own
		return nil, outcome.ErrNoLeader
	}
	now := time.Now()
	if !q.known && q.nodeLimited.Load() {
		q.askForMoreLocked(now)
		q.addWaiterLocked(w, nil, Amounts{})
		return nil, fmt.Errorf("%s: %w: nor which namespaces have one", q.name, outcome.ErrQuotaUnknown)
	}
	for name, want := range all {
		s := q.namespaces[name]
		if s == nil || !s.limited {
			continue
		}
		lacks, more, refused := q.shortageLocked(s, want, now)
		if refused != nil {
			want[BytesLimit] -= q.replacedLocked(req, name)
			lacks, more, refused = q.shortageLocked(s, want, now)
		}
		if refused == nil {
			continue
		}
		if q.view.knows(req) {
			return nil, nil
		}
		if more {
			q.askForMoreLocked(now)
			q.addWaiterLocked(w, s, lacks)
		}
		if !w.waits {
			s.noteRefused(lacks, now)
		} else if lacks[PutRate] > 0 {
			w.retryAfter = s.putAllowedIn(now)
		}
		return nil, refused
	}
	return q.chargeLocked(all, now), nil
}

// replacedLocked returns how many bytes of what a request wants of a namespace take the place of bytes
// that its schedules have already. They are charged, since a deletion that is on its way may take the
// earlier ones first, but need no quota that is left.
func (q *Quotas) replacedLocked(req *fsm.Request, namespace string) (n uint64) {
	q.view(func(m *machine.Machine, _ fsm.Time) {
		for _, c := range req.Commands {
			if c, ok := c.(*fsm.PutSchedule); ok && fsm.NamespaceOf(c.Queue) == namespace {
				n += min(m.ScheduleBytes(c.Queue, c.Name), fsm.ScheduleBytes(c.Name, &c.Job))
			}
		}
	})
	return n
}

// addWaiterLocked makes a request wait for a namespace's quota, or to learn which namespaces have
// quotas. It does nothing if too many requests wait.
func (q *Quotas) addWaiterLocked(w *quotaWaiter, s *namespaceQuota, lacks Amounts) {
	if q.waiting >= quotaWaitersMax || s != nil && s.waiting >= namespaceWaitersMax {
		return
	}
	change := &q.change
	if s != nil {
		change = &s.change
		s.waiting++
		for l := range lacks {
			s.waitersNeed[l] += lacks[l]
		}
	}
	if *change == nil {
		*change = make(chan struct{})
	}
	q.waiting++
	*w = quotaWaiter{waits: true, namespace: s, needs: lacks, changed: *change}
}

// removeWaiter ends the wait of a request.
func (q *Quotas) removeWaiter(w *quotaWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeWaiterLocked(w)
}

func (q *Quotas) removeWaiterLocked(w *quotaWaiter) {
	if !w.waits {
		return
	}
	q.waiting--
	if w.namespace != nil {
		w.namespace.waiting--
		for l := range w.needs {
			w.namespace.waitersNeed[l] -= w.needs[l]
		}
	}
	*w = quotaWaiter{}
}

// shortageLocked checks what a request wants against the shard quota of a namespace. If that is too
// little, it returns an error and what is lacking; more says that waiting may help.
func (q *Quotas) shortageLocked(s *namespaceQuota, want Amounts, now time.Time) (lacks Amounts, more bool,
	refused error) {
	if s.Waiting {
		return lacks, true, fmt.Errorf("%s: %w: namespace %q", q.name, outcome.ErrQuotaUnknown, s.name)
	}
	var used Amounts
	read := false
	more = true
	for l := range Limits {
		if s.Quota[l] == 0 || want[l] == 0 {
			continue
		}
		e := &QuotaError{Namespace: s.name, Limit: l, Max: s.Quota[l], ShardMax: s.Granted[l], Wait: quotaRetry}
		if l == PutRate {
			if e.Wait = s.putAllowedIn(now); e.Wait == 0 {
				continue
			}
			e.Used = s.putRate
		} else {
			if !read {
				used, read = q.usedLocked(s), true
			}
			if used[l] < e.ShardMax {
				continue
			}
			e.Used, e.Growing = used[l], s.More[l]
		}
		if lacks[l] = want[l]; refused == nil {
			refused = e
		}
		more = more && (s.More[l] || l != PutRate && s.pending[l] > 0)
	}
	return lacks, more, refused
}

// chargeLocked reserves what a request needs.
func (q *Quotas) chargeLocked(all map[string]Amounts, now time.Time) *Reservation {
	var t *Reservation
	for name, want := range all {
		s := q.namespaces[name]
		if s == nil || !s.limited {
			continue
		}
		// the grant may be smaller; other requests wait for the rest instead of being refused
		if want[LeasesLimit] > 0 && s.Quota[LeasesLimit] > 0 {
			used := q.usedLocked(s)[LeasesLimit]
			want[LeasesLimit] = min(want[LeasesLimit], s.Granted[LeasesLimit]-min(used, s.Granted[LeasesLimit]))
		}
		if t == nil {
			t = &Reservation{quotas: q}
		}
		s.puts += want[PutRate]
		if s.Quota[PutRate] > 0 {
			s.refillTo(now)
			s.putDebt += float64(want[PutRate])
		}
		want[PutRate] = 0 // the rate has no pending part
		t.charges = append(t.charges, charge{s, want})
		for l := range want {
			s.pending[l] += want[l]
		}
	}
	return t
}

// reserveLeases reserves leases for a waiting Reserve that is served from queue, without waiting.
// ok is false if a namespace that it names has none left; full says that the namespace of queue
// itself has none.
func (q *Quotas) reserveLeases(req *fsm.Request, queue string) (t *Reservation, ok, full bool) {
	all := q.demand(req)
	if all == nil {
		return nil, true, false
	}
	own := fsm.NamespaceOf(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if !q.known && q.nodeLimited.Load() {
		q.askForMoreLocked(now)
		return nil, false, own != "" // the shard quotas are not known yet
	}
	ok = true
	for name, want := range all {
		s := q.namespaces[name]
		if s == nil || !s.limited {
			continue
		}
		if lacks, _, refused := q.shortageLocked(s, want, now); refused != nil {
			s.noteRefused(lacks, now)
			ok, full = false, full || name == own
		}
	}
	if !ok {
		q.askForMoreLocked(now)
		return nil, false, full
	}
	return q.chargeLocked(all, now), true, false
}

// NoteRefusedLeases records how many leases the waiters of a queue lack.
func (q *Quotas) NoteRefusedLeases(queue string, leases uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.namespaces[fsm.NamespaceOf(queue)]; s != nil && s.limited && s.Quota[LeasesLimit] > 0 {
		s.noteRefused(Amounts{LeasesLimit: leases}, time.Now())
	}
}

// EntryApplied wakes the requests that wait for quota that an applied entry may have freed.
func (q *Quotas) EntryApplied(requests iter.Seq[*fsm.Request]) {
	if !q.anyLimited.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == 0 {
		return
	}
	for req := range requests {
		for _, c := range req.Commands {
			switch c := c.(type) {
			case *fsm.Expire: // of any queue
				for _, s := range q.namespaces {
					q.wakeLocked(s)
				}
			case *fsm.DeleteQueue:
				q.wakeNamespaceLocked(c.Queue)
			default:
				q.wakeNamespaceLocked(Freed(c))
			}
		}
	}
}

// wakeNamespaceLocked wakes the requests that wait for the namespace of a queue.
func (q *Quotas) wakeNamespaceLocked(queue string) {
	if s := q.namespaces[fsm.NamespaceOf(queue)]; s != nil {
		q.wakeLocked(s)
	}
}

// Release releases a reservation: its request is applied, or never will be.
func (t *Reservation) Release() {
	if t != nil {
		ReleaseAll([]*Reservation{t})
	}
}

// ReleaseAll releases reservations of one shard.
func ReleaseAll(reservations []*Reservation) {
	if len(reservations) == 0 {
		return
	}
	q := reservations[0].quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range reservations {
		for _, took := range t.charges {
			for l, n := range took.amounts {
				took.namespace.pending[l] -= n
			}
			q.wakeLocked(took.namespace)
			q.forgetUnlimitedLocked(took.namespace)
		}
		t.charges = nil
	}
}
