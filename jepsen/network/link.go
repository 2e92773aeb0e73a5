package network

import (
	"context"
	"slices"
	"sync"
	"time"
)

// way names a directed link of a service.
type way struct {
	from, to string
	service  Service
}

// link is a way in use. Its methods may be called from any goroutine.
type link struct {
	way
	mu      sync.Mutex
	rule    Rule
	changed chan struct{} // closed when the rule is another
	free    time.Time     // when the bound of bytes lets the next one pass
	last    chan struct{} // what was held back to come after the next one; nil if nothing is
}

// now returns the rule, and a channel that is closed when another one holds.
func (l *link) now() (Rule, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule, l.changed
}

// set gives the link another rule.
func (l *link) set(r Rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r == l.rule {
		return
	}
	l.rule, l.free = r, time.Time{}
	close(l.changed)
	l.changed = make(chan struct{})
}

// reserve returns when n more bytes may have passed.
func (l *link) reserve(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.rule.BytesPerSecond == 0 {
		return now
	}
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rule.BytesPerSecond) * float64(time.Second)))
	return l.free
}

// holdBack puts the caller behind the next one: it waits for the channel. ok is false if another
// caller waits already.
func (l *link) holdBack() (overtaken <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		return nil, false
	}
	l.last = make(chan struct{})
	return l.last, true
}

// overtake releases the caller that was held back.
func (l *link) overtake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil {
		close(l.last)
		l.last = nil
	}
}

// until waits until the time at, or until another rule holds, or until ctx ends.
func (l *link) until(ctx context.Context, at time.Time, changed <-chan struct{}) {
	left := time.Until(at)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}

// table holds the rules of all ways, also of those that nothing has used yet.
type table struct {
	mu     sync.Mutex
	rules  map[way]Rule
	groups [][]string
	links  map[way]*link
}

func newTable() *table { return &table{rules: map[way]Rule{}, links: map[way]*link{}} }

// link returns the link of a way.
func (t *table) link(w way) *link {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.links[w]
	if l == nil {
		l = &link{way: w, rule: t.effective(w), changed: make(chan struct{})}
		t.links[w] = l
	}
	return l
}

// effective returns the rule of a way with the partition. The caller holds mu.
func (t *table) effective(w way) Rule {
	if t.apart(w.from, w.to) {
		return Rule{Drop: true}
	}
	return t.rules[w]
}

// apart reports whether two are in groups, and in none together. The caller holds mu.
func (t *table) apart(a, b string) bool {
	grouped := [2]bool{}
	for _, group := range t.groups {
		hasA, hasB := slices.Contains(group, a), slices.Contains(group, b)
		if hasA && hasB {
			return false
		}
		grouped[0], grouped[1] = grouped[0] || hasA, grouped[1] || hasB
	}
	return grouped[0] && grouped[1]
}

// change carries out f and tells the links. The caller of f holds mu.
func (t *table) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
	for w, l := range t.links {
		l.set(t.effective(w))
	}
}

// dropped returns whether a way is silent.
func (t *table) dropped(w way) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.effective(w).Drop
}
