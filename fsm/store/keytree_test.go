package store

import (
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
