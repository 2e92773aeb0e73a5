package cron_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/belfrydb/belfry/cron"
)

// randomSpec makes a specification of either kind, with excludes and bounds or without.
func randomSpec(g generator) *cron.Spec {
	spec := &cron.Spec{TimeZone: walkZoneNames[g.IntN(walkZones)], DST: cron.DST(g.IntN(3))}
	if g.IntN(4) == 0 {
		spec.Every = time.Duration(1000+g.IntN(10_000_000)) * time.Millisecond
		spec.Phase = time.Duration(g.Int64N(spec.Every.Milliseconds())) * time.Millisecond
	} else {
		spec.Cron = g.expression().text
	}
	for range g.IntN(4) {
		spec.Exclude = append(spec.Exclude, g.expression().text)
	}
	if g.IntN(2) == 0 {
		spec.Start = time.UnixMilli(g.Int64N(3e12))
	}
	if g.IntN(2) == 0 {
		spec.End = time.UnixMilli(3e12 + g.Int64N(3e12))
	}
	return spec
}

// TestProperties checks what holds for every rule: firings are in order and within the bounds, what
// comes next does not depend on where one asks from, the last before and the next after agree, and
// no firing is excluded.
func TestProperties(t *testing.T) {
	for seed := range uint64(600) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		spec := randomSpec(g)
		r, err := cron.Compile(spec, zones(t))
		if err != nil {
			if !strings.Contains(err.Error(), "never fires") && !strings.Contains(err.Error(), "every firing") {
				t.Fatalf("seed %d: %+v: %v", seed, spec, err)
			}
			continue
		}
		from := time.Unix(g.Int64N(3e9), g.Int64N(1e9))
		for i := range 40 {
			next, ok := r.Next(from)
			if !ok {
				break
			}
			checkNext(t, g, spec, r, from, next)
			if last, ok := r.Prev(next); i > 0 && (!ok || !last.Equal(from)) {
				t.Errorf("after %v comes %v, before which comes %v, %v", from, next, last, ok)
			}
			from = next
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, spec)
		}
	}
}

func checkNext(t *testing.T, g generator, spec *cron.Spec, r *cron.Rule, from, next time.Time) {
	t.Helper()
	if !next.After(from) {
		t.Errorf("after %v comes %v", from, next)
	}
	if !spec.Start.IsZero() && next.Before(spec.Start) || !spec.End.IsZero() && next.After(spec.End) {
		t.Errorf("%v is not from %v to %v", next, spec.Start, spec.End)
	}
	for i := range 5 {
		between := next.Add(-1)
		if i > 0 {
			between = from.Add(time.Duration(g.Int64N(int64(next.Sub(from)))))
		}
		if got, ok := r.Next(between); !ok || !got.Equal(next) {
			t.Errorf("after %v comes %v, and after %v, before that, %v, %v", from, next, between, got, ok)
		}
	}
	if last, ok := r.Prev(next); ok && last.After(from) {
		t.Errorf("after %v comes %v, before which comes %v", from, next, last)
	}
	if last, ok := r.Prev(next.Add(1)); !ok || !last.Equal(next) {
		t.Errorf("just after %v the last firing is %v, %v", next, last, ok)
	}
	if next.Unix() > 0 && isExcluded(t, spec, next) {
		t.Errorf("%v is excluded", next)
	}
}

// TestExcludesTakeNothingElse compares a rule that has excludes with one that has none, less what
// the excludes match. It leaves out fixed times with ONCE, which excludes meet before they are moved.
func TestExcludesTakeNothingElse(t *testing.T) {
	compared, excluded := 0, 0
	for seed := range uint64(400) {
		g := generator{rand.New(rand.NewPCG(seed, 4))}
		spec := randomSpec(g)
		if spec.DST == cron.Once {
			spec.DST = cron.Skip
		}
		spec.Start, spec.End = time.Time{}, time.Time{}
		r, err := cron.Compile(spec, zones(t))
		if err != nil {
			continue
		}
		all := *spec
		all.Exclude = nil
		from := time.Unix(8e8+g.Int64N(2e9), 0)
		last := from
		for at := range compile(t, &all).Times(from) {
			if compared++; compared%200 == 0 {
				break
			}
			if isExcluded(t, spec, at) {
				excluded++
				continue
			}
			next, ok := r.Next(last)
			if !ok || !next.Equal(at) {
				t.Fatalf("seed %d: %+v: after %v comes %v, %v; want %v", seed, spec, last, next, ok, at)
			}
			last = at
		}
	}
	if excluded == 0 || excluded == compared {
		t.Errorf("of %d firings %d are excluded: this shows nothing", compared, excluded)
	}
}

// isExcluded says whether a clock shows at a time what one of the excludes has.
func isExcluded(t testing.TB, spec *cron.Spec, at time.Time) bool {
	t.Helper()
	for _, text := range spec.Exclude {
		exclude := compile(t, &cron.Spec{Cron: text, TimeZone: spec.TimeZone, DST: cron.Literal})
		shown := at.Truncate(time.Second)
		if len(strings.Fields(text)) == 5 {
			shown = at.Truncate(time.Minute) // the offsets of these zones are whole minutes in these years
		}
		if next, ok := exclude.Next(shown.Add(-1)); ok && next.Equal(shown) {
			return true
		}
	}
	return false
}

// FuzzCron checks that no text makes Compile or Next fail, and that the canonical form of what
// compiles means the same.
func FuzzCron(f *testing.F) {
	for _, row := range syntaxTable {
		f.Add(row.cron)
	}
	for _, row := range refusedTable {
		f.Add(row.cron)
	}
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := cron.Compile(&cron.Spec{Cron: text}, zones(t))
		if err != nil {
			for field := range problemsOf(t, err) {
				if field != "cron" {
					t.Errorf("%q: there is a problem of %s: %v", text, field, err)
				}
			}
			return
		}
		canonical := r.String()
		again, err := cron.Compile(&cron.Spec{Cron: canonical}, zones(t))
		if err != nil {
			t.Fatalf("%q is %q, which is refused: %v", text, canonical, err)
		}
		if again.String() != canonical {
			t.Errorf("%q is %q, which is %q", text, canonical, again.String())
		}
		for a, b := from, from; ; {
			var inA, inB bool
			a, inA = r.Next(a)
			b, inB = again.Next(b)
			if inA != inB || !a.Equal(b) {
				t.Fatalf("%q fires at %v, %v, and %q at %v, %v", text, a, inA, canonical, b, inB)
			}
			if !inA || a.Sub(from) > 40*24*time.Hour {
				break
			}
			a = a.Add(time.Hour)
			b = a
		}
	})
}
