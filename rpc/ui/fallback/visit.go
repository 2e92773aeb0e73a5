package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Age says whether replicas gave the figures of a page, and from when the oldest are.
type Age struct {
	Stale bool
	// AsOf is zero if it is not known.
	AsOf time.Time
	// Kept is for how long figures were kept that the page shares with others; 0 if it shares none.
	Kept time.Duration
}

// visit is what is remembered of one page or act.
type visit struct {
	// lost says that a leader did not answer.
	lost atomic.Bool

	mu  sync.Mutex
	age Age
}

type visitKey struct{}

// Visit returns the context for the calls of one page.
func Visit(ctx context.Context) context.Context { return context.WithValue(ctx, visitKey{}, &visit{}) }

// Dated is what was read for several pages, with its age at that time.
type Dated[T any] struct {
	Value T
	age   Age
	at    time.Time
}

// Age returns the age now.
func (d *Dated[T]) Age() Age {
	age := d.age
	age.Kept += time.Since(d.at)
	return age
}

// Read makes a read that several pages share, beside the visit of ctx. The value of a failed read is
// what read returned with the error.
func Read[T any](ctx context.Context, read func(context.Context) (T, error)) (Dated[T], error) {
	lost := visitOf(ctx).lost.Load()
	ctx = Visit(ctx)
	visitOf(ctx).lost.Store(lost)
	began := time.Now()
	value, err := read(ctx)
	return Dated[T]{value, AgeOf(ctx), began}, err
}

// visitOf returns the visit of a call; a new one if it is part of none.
func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// AgeOf returns the age of all that the calls of a visit have read.
func AgeOf(ctx context.Context) Age {
	v := visitOf(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.age
}

// Join adds the age of what was read elsewhere to that of a visit. If replicas gave it, they give what
// the visit reads from then on, too.
func Join(ctx context.Context, age Age) {
	v := visitOf(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.age.Kept = max(v.age.Kept, age.Kept)
	if !age.Stale {
		return
	}
	v.lost.Store(true)
	v.age.Stale = true
	if v.age.AsOf.IsZero() || !age.AsOf.IsZero() && age.AsOf.Before(v.age.AsOf) {
		v.age.AsOf = age.AsOf
	}
}
