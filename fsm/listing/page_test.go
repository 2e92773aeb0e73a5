package listing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// shelf has jobs in an order by due and in one by priority, and their keys by due.
type shelf struct {
	in                *store.Store
	byDue, byPriority store.Order
	keys              []store.Key
}

func newShelf(rng *rand.Rand, jobs, dues, priorities int) *shelf {
	in := store.New(1)
	s := &shelf{in: in, byDue: in.Order(store.ByDue), byPriority: in.Order(store.ByPriority)}
	for i := range jobs {
		j := fsm.Job{
			Serial: uint64(i + 1), Generated: true, Due: fsm.Time(1 + rng.IntN(dues)),
			Priority: int64(rng.IntN(priorities) - priorities/2),
		}
		index := in.AddJob(1, &j, [16]byte{})
		s.byDue.Insert(index)
		s.byPriority.Insert(index)
		s.keys = append(s.keys, store.Key{At: j.Due, Serial: j.Serial, Index: index})
	}
	slices.SortFunc(s.keys, store.Key.Compare)
	return s
}

// wanted returns the keys that a query selects, in listing order.
func wanted(keys []store.Key, query *fsm.ListQuery) (list []store.Key) {
	for _, k := range keys {
		after := fsm.Cursor{Due: k.At, Serial: k.Serial}
		passed := query.After != fsm.Cursor{} &&
			(after.Due < query.After.Due || after.Due == query.After.Due && after.Serial <= query.After.Serial)
		if !passed && k.At >= query.DueAfter && (query.DueBefore == 0 || k.At < query.DueBefore) {
			list = append(list, k)
		}
	}
	return list
}

// check compares a page with all keys that it may have. It must have those up to where it was cut.
func check(t *testing.T, what string, p *Page, want []store.Key) {
	t.Helper()
	got := p.Keys()
	end, cut := p.Cut()
	if cut && !slices.Contains(got, end) {
		t.Fatalf("%s: the page is cut at %+v, which it does not have", what, end)
	}
	if !cut && len(got) != len(want) {
		t.Fatalf("%s: it has %d of %d keys and is not cut", what, len(got), len(want))
	}
	for i, k := range got {
		if !cut || !end.Less(k) {
			if k != want[i] {
				t.Fatalf("%s: key %d is %+v, want %+v", what, i, k, want[i])
			}
		} else if !slices.Contains(want, k) {
			t.Fatalf("%s: key %d is %+v, which is not wanted", what, i, k)
		}
	}
}

// checkByDue compares a page of an order by due, which has the first most+1 keys.
func checkByDue(t *testing.T, what string, p *Page, want []store.Key, most int) {
	t.Helper()
	check(t, what, p, want)
	end, cut := p.Cut()
	if n := len(p.Keys()); n != min(len(want), most+1) || cut != (len(want) > most) || cut && end != want[most] {
		t.Fatalf("%s: it has %d of %d keys, at most %d, and is cut at %+v, %v", what, n, len(want), most, end, cut)
	}
}

// TestPage compares pages of random queries with lists that are made one key at a time.
func TestPage(t *testing.T) {
	cuts := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		priorities := 1 + rng.IntN(9)
		s := newShelf(rng, 1+rng.IntN(400), 1+rng.IntN(60), priorities)
		query, now, most := &fsm.ListQuery{}, fsm.Time(rng.IntN(60)), 1+rng.IntN(100)
		if rng.IntN(2) == 0 {
			last := s.keys[rng.IntN(len(s.keys))]
			query.After = fsm.Cursor{Due: last.At, Serial: last.Serial}
		}
		if rng.IntN(2) == 0 {
			query.DueAfter = fsm.Time(rng.IntN(60))
		}
		if rng.IntN(2) == 0 {
			query.DueBefore = fsm.Time(1 + rng.IntN(60))
		}
		all := wanted(s.keys, query)

		p := New(query, most, now)
		p.Add(&s.byDue)
		p.Add(&s.byDue)
		checkByDue(t, "by due", p, all, most)
		if _, cut := p.Cut(); cut {
			cuts++
		}

		p = New(query, most, now)
		p.AddLater(&s.byDue)
		later := slices.DeleteFunc(slices.Clone(all), func(k store.Key) bool { return k.At <= now })
		checkByDue(t, "later", p, later, most)

		p = New(query, most, now)
		p.AddByPriority(&s.byPriority)
		check(t, "by priority", p, all)
		if n := len(p.Keys()); n > (most+1)*priorities {
			t.Fatalf("the page has %d keys, at most %d of each of %d priorities", n, most, priorities)
		}

		p = New(query, most, now)
		p.AddDue(&s.byDue, func(index uint32) (fsm.Cursor, bool) {
			return fsm.Cursor{Due: fsm.Time(100 + index%7), Serial: s.in.Slot(index).Serial}, index%3 > 0
		})
		check(t, "due", p, wanted(settled(s.keys, now), query))
	}
	if cuts == 0 {
		t.Error("no page was cut")
	}
}

// settled are the keys of the jobs that are due, as TestPage settles them.
func settled(keys []store.Key, now fsm.Time) (list []store.Key) {
	for _, k := range keys {
		if k.At <= now && k.Index%3 > 0 {
			list = append(list, store.Key{At: fsm.Time(100 + k.Index%7), Serial: k.Serial, Index: k.Index})
		}
	}
	slices.SortFunc(list, store.Key.Compare)
	return list
}

// TestCutOfTwoOrders: a page is complete up to where the first of its orders was cut.
func TestCutOfTwoOrders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	few, many := newShelf(rng, 5, 10, 1), newShelf(rng, 50, 10, 1)
	for _, orders := range [][2]*shelf{{few, many}, {many, few}} {
		p := New(&fsm.ListQuery{}, 4, 0)
		p.Add(&orders[0].byDue)
		p.Add(&orders[1].byDue)
		end, cut := p.Cut()
		if want := many.keys[4]; !cut || end != want {
			t.Errorf("it is cut at %+v, want %+v", end, want)
		}
	}
}
