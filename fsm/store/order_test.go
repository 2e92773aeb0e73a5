package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// ordered is an order of finished leases beside a sorted list of the same keys.
type ordered struct {
	t      *testing.T
	rng    *rand.Rand
	leases *pages[FinishedLease]
	order  Order
	want   []Key
	serial uint64
}

func newOrdered(t *testing.T, seed uint64) *ordered {
	s := New(0)
	return &ordered{
		t: t, rng: rand.New(rand.NewPCG(seed, 9)), leases: &s.Finished.records, order: s.orders.by(byExpiry),
	}
}

func (o *ordered) insert(at fsm.Time) {
	o.serial++
	index := o.leases.alloc()
	*o.leases.edit(index) = FinishedLease{Fence: o.serial, Expiry: at}
	o.order.Insert(index)
	k := Key{At: at, Serial: o.serial, Index: index}
	i, _ := slices.BinarySearchFunc(o.want, k, Key.Compare)
	o.want = slices.Insert(o.want, i, k)
}

func (o *ordered) remove(i int) {
	index := o.want[i].Index
	o.order.Remove(index)
	o.leases.release(index)
	o.want = slices.Delete(o.want, i, i+1)
}

// check compares all that can be asked of an order, from and up to some time.
func (o *ordered) check(at fsm.Time) {
	o.t.Helper()
	if first, ok := o.order.Min(); o.order.Len() != len(o.want) || ok != (len(o.want) > 0) || ok && first != o.want[0] {
		o.t.Fatalf("first of %d is %+v, %v; there are %d", o.order.Len(), first, ok, len(o.want))
	}
	from := Key{At: at}
	i, _ := slices.BinarySearchFunc(o.want, from, Key.Compare)
	var got []Key
	most := o.rng.IntN(2*len(o.want) + 1)
	o.order.Ascend(from, func(k Key) bool {
		got = append(got, k)
		return len(got) < most
	})
	if want := o.want[i:][:min(max(most, 1), len(o.want)-i)]; !slices.Equal(got, want) {
		o.t.Fatalf("from %d on there are %d keys, should be %d", at, len(got), len(want))
	}
	if k, ok := o.order.From(from); ok != (i < len(o.want)) || ok && k != o.want[i] {
		o.t.Fatalf("the first from %d on is %+v, %v", at, k, ok)
	}
	n, next := o.order.UpTo(at-1, fsm.StepMax)
	wantN, wantNext := uint64(i), fsm.Time(0)
	if i >= fsm.StepMax {
		wantN = fsm.StepMax
	} else if i < len(o.want) {
		wantNext = o.want[i].At
	}
	if n != wantN || next != wantNext {
		o.t.Fatalf("%d keys below %d and the next at %d, should be %d and %d", n, at, next, wantN, wantNext)
	}
}

// TestOrderAgainstSortedList grows and shrinks an order at random, in its order, and from its
// front, with few and with many times.
func TestOrderAgainstSortedList(t *testing.T) {
	for _, times := range []int64{1, 50, 1 << 40} {
		o := newOrdered(t, uint64(times))
		for _, phase := range []struct{ steps, insert, pop, rising int }{
			{3000, 90, 0, 0}, {3000, 50, 25, 50}, {4000, 70, 0, 100}, {6000, 20, 20, 0}, {12000, 55, 45, 30}, {20000, 0, 0, 0},
		} {
			for step := range phase.steps {
				switch {
				case o.rng.IntN(100) < phase.insert:
					at := fsm.Time(1 + o.rng.Int64N(times))
					if n := len(o.want); n > 0 && o.rng.IntN(100) < phase.rising {
						at = o.want[n-1].At + fsm.Time(o.rng.IntN(2))
					}
					o.insert(at)
				case len(o.want) == 0:
				case o.rng.IntN(100) < phase.pop:
					o.remove(0)
				default:
					o.remove(o.rng.IntN(len(o.want)))
				}
				if step%23 == 0 || len(o.want) < 3 {
					at := fsm.Time(o.rng.Int64N(times + 2))
					if n := len(o.want); n > 0 && step%2 == 0 {
						at = o.want[o.rng.IntN(n)].At + fsm.Time(o.rng.IntN(2))
					}
					o.check(at)
				}
			}
		}
		if len(o.want) > 0 {
			t.Fatalf("%d keys are left", len(o.want))
		}
		if n := o.order.in.slices.count(); n != 0 {
			t.Errorf("an order that is empty holds %d slices", n)
		}
	}
}

// TestOrderTakesLittleRoom has keys come at random and in their order, and nearly all of them go:
// slices are neither many for few keys nor left behind.
func TestOrderTakesLittleRoom(t *testing.T) {
	for name, at := range map[string]func(rng *rand.Rand, i int) fsm.Time{
		"random":  func(rng *rand.Rand, _ int) fsm.Time { return fsm.Time(rng.Int64()) },
		"rising":  func(_ *rand.Rand, i int) fsm.Time { return fsm.Time(i) },
		"falling": func(_ *rand.Rand, i int) fsm.Time { return fsm.Time(1<<20 - i) },
		"equal":   func(*rand.Rand, int) fsm.Time { return 1 },
	} {
		const keys = 80000
		o := newOrdered(t, 1)
		for i := range keys {
			o.leases.alloc()
			*o.leases.edit(uint32(i + 1)) = FinishedLease{Fence: uint64(i + 1), Expiry: at(o.rng, i)}
			o.order.Insert(uint32(i + 1))
		}
		if n := o.order.in.slices.count(); n*sliceMax > 9*keys/4 {
			t.Errorf("%s: %d slices for %d keys", name, n, keys)
		}
		for i, index := range o.rng.Perm(keys) {
			if i%50 != 0 {
				o.order.Remove(uint32(index + 1))
			}
		}
		var last Key
		found := 0
		o.order.Ascend(Key{}, func(k Key) bool {
			if found > 0 && !last.Less(k) {
				t.Fatalf("%s: %+v comes after %+v", name, k, last)
			}
			last, found = k, found+1
			return true
		})
		if found != o.order.Len() || found != keys/50 {
			t.Errorf("%s: %d keys are found, %d counted, %d left", name, found, o.order.Len(), keys/50)
		}
		if n := o.order.in.slices.count(); n*sliceMax > keys/2 {
			t.Errorf("%s: %d slices for %d keys that are left of many", name, n, o.order.Len())
		}
	}
}

// TestOrderOfSurvivors has keys come in their order and go soon after, but for one in many: what is
// left is not spread over a slice each.
func TestOrderOfSurvivors(t *testing.T) {
	const keys, behind, survive = 200_000, 3000, 500
	o := newOrdered(t, 1)
	for i := range keys + behind {
		if index := i + 1; i < keys {
			o.leases.alloc()
			*o.leases.edit(uint32(index)) = FinishedLease{Fence: uint64(index), Expiry: fsm.Time(index)}
			o.order.Insert(uint32(index))
		}
		if gone := i - behind; gone >= 0 && gone%survive != 0 {
			o.order.Remove(uint32(gone + 1))
		}
	}
	if n, left := o.order.in.slices.count(), o.order.Len(); left != keys/survive || n > 10 {
		t.Errorf("%d keys that are left are in %d slices", left, n)
	}
}

// TestNextToLeaveIsAtHand: of a slice of which records leave in the order in which they came, the
// next is found at once, and any other all the same.
func TestNextToLeaveIsAtHand(t *testing.T) {
	o := newOrdered(t, 1)
	for range frontMax + 2 {
		o.insert(1)
	}
	for range sliceMax / 4 {
		o.insert(2)
	}
	for len(o.want) > frontMax+2+10 { // from what came last: the front stays
		i := len(o.want) - 10
		k := o.want[i]
		found, ok := o.order.sliceOf(k)
		if !ok {
			t.Fatal("the front reaches as far as the key")
		}
		indexes := o.order.in.slices.at(found.Index)[:o.order.in.fill[found.Index]]
		at := slices.Index(indexes, k.Index)
		o.remove(i)
		if o.order.after != at+1 {
			t.Fatalf("the next is looked for at %d, the last was at %d", o.order.after, at)
		}
	}
	o.check(1)
}
