package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestLinksGoWithTheirJobs: the links of a page of jobs are dropped when its last job goes, whether
// that has a key or not.
func TestLinksGoWithTheirJobs(t *testing.T) {
	t.Parallel()
	for _, unkeyed := range []int{-1, 0, 1<<slotShift - 2} {
		s := New(1)
		empty := s.Memory().Held
		var jobs []uint32
		for i := range 1<<slotShift - 1 { // index 0 is no job
			v := fsm.Job{Serial: uint64(1 + i), Generated: true, Key: "k"}
			if i == unkeyed {
				v.Key = ""
			}
			jobs = append(jobs, s.AddJob(1, &v, [16]byte{}))
		}
		if s.Keys.linkPages != 1 {
			t.Fatalf("%d pages of links, want 1", s.Keys.linkPages)
		}
		if held := s.Memory().Held; held < empty+linkBytes<<slotShift {
			t.Errorf("the account grew from %d to %d bytes", empty, held)
		}
		if unkeyed >= 0 { // it goes last
			last := jobs[unkeyed]
			jobs = append(slices.Delete(jobs, unkeyed, unkeyed+1), last)
		}
		for _, job := range jobs {
			s.RemoveJob(job)
		}
		if s.Keys.linkPages != 0 || slices.ContainsFunc(s.Keys.links, func(p []keyLink) bool { return p != nil }) {
			t.Errorf("%d pages of links are left after job %d without a key", s.Keys.linkPages, unkeyed)
		}
	}
}

// TestKeyTree holds the tree of a key against a sorted list, over random changes: its order, the states
// that each node knows, and searches for each set of states.
func TestKeyTree(t *testing.T) {
	t.Parallel()
	for _, order := range []KeyOrder{ByRank, ByPlace} {
		s, rng := New(1), rand.New(rand.NewPCG(3, uint64(order)))
		var jobs []uint32
		for n := range 3000 {
			if i := rng.IntN(len(jobs) + 1); i < len(jobs) && rng.IntN(5) < 2 {
				s.Keys.Remove(order, jobs[i])
				s.RemoveJob(jobs[i])
				jobs = slices.Delete(jobs, i, i+1)
				continue
			}
			v := fsm.Job{Serial: uint64(1 + n), Generated: true, Key: "k", Due: fsm.Time(rng.IntN(9))}
			job := s.AddJob(1, &v, [16]byte{})
			s.EditSlot(job).SetState(pick(rng, fsm.Delayed, fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead))
			s.Keys.Insert(order, job)
			jobs = append(jobs, job)
			if n%100 == 0 {
				checkKeyTree(t, s, order, jobs)
			}
		}
	}
}

func pick[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

func checkKeyTree(t *testing.T, s *Store, order KeyOrder, jobs []uint32) {
	t.Helper()
	k, sorted := &s.Keys, slices.Clone(jobs)
	slices.SortFunc(sorted, func(a, b uint32) int {
		if k.less(order, a, b) {
			return -1
		}
		return 1
	})
	group := k.Find(1, "k")
	if head := k.At(group).Head; head != sorted[0] {
		t.Fatalf("the head is job %d, want %d", head, sorted[0])
	}
	var walk func(node uint32) fsm.StateSet
	walk = func(node uint32) fsm.StateSet {
		if node == 0 {
			return 0
		}
		want := walk(k.linkOf(node).left) | walk(k.linkOf(node).right) | fsm.Set(s.Slot(node).State())
		if got := k.statesOf(node); got != want || k.GroupOf(node) != group {
			t.Fatalf("job %d of group %d knows states %05b, want %05b", node, k.GroupOf(node), got, want)
		}
		return want
	}
	walk(k.At(group).root)
	for states := range fsm.Set(fsm.Dead) << 1 {
		var got, want []uint32
		for job := k.After(order, group, 0, states); job != 0; job = k.After(order, group, job, states) {
			got = append(got, job)
		}
		for _, job := range sorted {
			if states.Has(s.Slot(job).State()) {
				want = append(want, job)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the jobs in states %05b are %v, want %v", states, got, want)
		}
	}
}
