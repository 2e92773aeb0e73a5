package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// ticket is what a request has taken of shares until it has landed: until it is applied, and counted there, or never will be. A nil one has taken nothing.
type ticket struct {
	shares *shares
	taken  []taking
}

// taking is what was taken of one namespace's share, of which the name may be another's by the time that it is given back.
type taking struct {
	space   *spaceShare
	amounts Amounts
}

// lacker is a request that waits for a share. It is guarded by shares.mu.
type lacker struct {
	waits bool
	space *spaceShare // of which it lacks something; nil if it is not known what there is
	lacks Amounts
	again <-chan struct{} // closed when trying again may help
	pause time.Duration   // after which it may in any case; 0 for never
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
// request. A share that may still grow is waited for, and so is time where that alone helps. The ticket must leave once.
func (sh *shares) enter(ctx context.Context, req *fsm.Request) (*ticket, error) {
	if !sh.limits() {
		return nil, nil
	}
	all := demand(req)
	if all == nil {
		return nil, nil
	}
	var w lacker
	t, refused := sh.try(req, all, &w)
	if !w.waits {
		return t, sh.named(refused)
	}
	defer sh.leaveLine(&w)
	patience, refill := time.NewTimer(shareWait), time.NewTimer(never)
	defer patience.Stop()
	defer refill.Stop()
	for last := false; ; {
		if w.pause > 0 {
			refill.Reset(w.pause)
		}
		select {
		case <-w.again:
		case <-refill.C:
		case <-patience.C:
			last = true
		case <-ctx.Done():
			return nil, canceled(ctx)
		}
		t, refused = sh.try(req, all, &w)
		if !w.waits || last {
			return t, sh.named(refused)
		}
	}
}

// named returns a refusal with what is known of who leads.
func (sh *shares) named(refused error) error {
	if errors.Is(refused, ErrNoLeader) {
		return sh.shard.refusal(ErrNoLeader)
	}
	return refused
}

// try is enter without waiting; it says in w whether to wait, and for what.
func (sh *shares) try(req *fsm.Request, all map[string]Amounts, w *lacker) (t *ticket, refused error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.leaveLineLocked(w)
	if sh.term == 0 {
		return nil, ErrNoLeader // it may lead by the time that the request is proposed, which was let in by nobody then
	}
	now := time.Now()
	if !sh.known && sh.shard.node.limitedSpaces.Load() {
		sh.kickLocked(now)
		sh.waitLocked(w, nil, Amounts{})
		return nil, fmt.Errorf("%s: %w: nor which namespaces have one", sh.shard.name, ErrShareUnknown)
	}
	for name, want := range all {
		s := sh.spaces[name]
		if s == nil || !s.limited {
			continue
		}
		lacks, more, refused := sh.shortLocked(s, want, now)
		if refused == nil {
			continue
		}
		if sh.repeats(req) {
			return nil, nil
		}
		if more {
			sh.kickLocked(now)
			sh.waitLocked(w, s, lacks)
		}
		if !w.waits {
			s.miss(lacks, now)
		} else if lacks[PutRate] > 0 {
			w.pause = s.refill(now)
		}
		return nil, refused
	}
	return sh.takeLocked(all, now), nil
}

// waitLocked has a request wait for a namespace's share, or to know which there are, unless too many do.
func (sh *shares) waitLocked(w *lacker, s *spaceShare, lacks Amounts) {
	if sh.waiting >= shareWaitersMax || s != nil && s.waiting >= spaceWaitersMax {
		return
	}
	change := &sh.change
	if s != nil {
		change = &s.change
		s.waiting++
		for l := range lacks {
			s.lacking[l] += lacks[l]
		}
	}
	if *change == nil {
		*change = make(chan struct{})
	}
	sh.waiting++
	*w = lacker{waits: true, space: s, lacks: lacks, again: *change}
}

// leaveLine is called when a request waits no more.
func (sh *shares) leaveLine(w *lacker) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.leaveLineLocked(w)
}

func (sh *shares) leaveLineLocked(w *lacker) {
	if !w.waits {
		return
	}
	sh.waiting--
	if w.space != nil {
		w.space.waiting--
		for l := range w.lacks {
			w.space.lacking[l] -= w.lacks[l]
		}
	}
	*w = lacker{}
}

// shortLocked returns why a request that wants something of a namespace is refused, nil if it is not, and what it lacks; more says that waiting may help.
func (sh *shares) shortLocked(s *spaceShare, want Amounts, now time.Time) (lacks Amounts, more bool, refused error) {
	if s.Waiting {
		return lacks, true, fmt.Errorf("%s: %w: namespace %q", sh.shard.name, ErrShareUnknown, s.name)
	}
	var used Amounts
	read := false
	more = true
	for l := range Limits {
		if s.Quota[l] == 0 || want[l] == 0 {
			continue
		}
		e := &QuotaError{Namespace: s.name, Limit: l, Max: s.Quota[l], Share: s.Granted[l], Wait: quotaRetry}
		if l == PutRate {
			if e.Wait = s.refill(now); e.Wait == 0 {
				continue
			}
			e.Used = s.rate
		} else {
			if !read {
				used, read = sh.usedLocked(s), true
			}
			if used[l] < e.Share {
				continue
			}
			e.Used = used[l]
		}
		if lacks[l] = want[l]; refused == nil {
			refused = e
		}
		more = more && (s.More[l] || l != PutRate && s.pending[l] > 0)
	}
	return lacks, more, refused
}

// takeLocked takes what a request asks for.
func (sh *shares) takeLocked(all map[string]Amounts, now time.Time) *ticket {
	var t *ticket
	for name, want := range all {
		s := sh.spaces[name]
		if s == nil || !s.limited {
			continue
		}
		if want[LeasesLimit] > 0 && s.Quota[LeasesLimit] > 0 { // it may be granted fewer; others wait for that rather than being refused
			used := sh.usedLocked(s)[LeasesLimit]
			want[LeasesLimit] = min(want[LeasesLimit], s.Granted[LeasesLimit]-min(used, s.Granted[LeasesLimit]))
		}
		if t == nil {
			t = &ticket{shares: sh}
		}
		s.puts += want[PutRate]
		if s.Quota[PutRate] > 0 {
			s.pay(now)
			s.owed += float64(want[PutRate])
		}
		want[PutRate] = 0 // what is on its way is nothing that time pays for
		t.taken = append(t.taken, taking{s, want})
		for l := range want {
			s.pending[l] += want[l]
		}
	}
	return t
}

// offer lets a waiter's reservation on behalf of a queue have leases of its namespaces, as many as it may be granted; ok is false if there are none, and full
// says that there are none for anybody who waits for that queue.
func (sh *shares) offer(req *fsm.Request, queue string) (t *ticket, ok, full bool) {
	all := demand(req)
	if all == nil {
		return nil, true, false
	}
	own := fsm.NamespaceOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := time.Now()
	if !sh.known && sh.shard.node.limitedSpaces.Load() {
		sh.kickLocked(now)
		return nil, false, own != "" // what the namespaces may use is not known yet
	}
	ok = true
	for name, want := range all {
		s := sh.spaces[name]
		if s == nil || !s.limited {
			continue
		}
		if lacks, _, refused := sh.shortLocked(s, want, now); refused != nil {
			s.miss(lacks, now)
			ok, full = false, full || name == own
		}
	}
	if !ok {
		sh.kickLocked(now)
		return nil, false, full
	}
	return sh.takeLocked(all, now), true, false
}

// miss notes how many leases those lack who wait for a queue.
func (sh *shares) miss(queue string, leases uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s := sh.spaces[fsm.NamespaceOf(queue)]; s != nil && s.limited && s.Quota[LeasesLimit] > 0 {
		s.miss(Amounts{LeasesLimit: leases}, time.Now())
	}
}

// repeats reports whether a request is a repeat that adds nothing.
func (sh *shares) repeats(req *fsm.Request) (repeats bool) {
	sh.shard.view(func(m *fsm.Machine, now fsm.Time) { repeats = m.Knows(req, now) })
	return repeats
}

// touched is told the proposals of an entry that was applied: what ended in it leaves room for who waits.
func (sh *shares) touched(batch []*proposal) {
	if !sh.some.Load() {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.waiting == 0 {
		return
	}
	for _, pr := range batch {
		for _, c := range pr.request.Commands {
			switch c := c.(type) {
			case *fsm.Expire: // of any queues
				for _, s := range sh.spaces {
					sh.ringLocked(s)
				}
			case *fsm.DeleteQueue:
				sh.ringOf(c.Queue)
			default:
				sh.ringOf(freed(c))
			}
		}
	}
}

// ringOf tells those who wait for the namespace of a queue to look again. mu is held.
func (sh *shares) ringOf(queue string) {
	if s := sh.spaces[fsm.NamespaceOf(queue)]; s != nil {
		sh.ringLocked(s)
	}
}

// leave gives back what a request had taken: it is applied, or never will be.
func (t *ticket) leave() {
	if t != nil {
		leaveAll([]*ticket{t})
	}
}

// leaveAll gives back what requests of one shard had taken.
func leaveAll(tickets []*ticket) {
	if len(tickets) == 0 {
		return
	}
	sh := tickets[0].shares
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, t := range tickets {
		for _, took := range t.taken {
			for l, n := range took.amounts {
				took.space.pending[l] -= n
			}
			sh.ringLocked(took.space)
			sh.tidyLocked(took.space)
		}
		t.taken = nil
	}
}
