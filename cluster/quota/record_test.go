package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/node"
)

// recordOf returns a record of the namespace t: the jobs quota, what shard 1 has of it, and what
// the other shards have together.
func recordOf(quota, own, others uint64, othersWant bool, version uint64) *Record {
	return &Record{Name: "t", Created: 1, Quota: node.Amounts{node.JobsLimit: quota}, ShardQuotas: []ShardQuota{
		{Shard: 0, Term: 3, Version: 2, Granted: node.Amounts{node.JobsLimit: others},
			Wanted: [node.Limits]bool{node.JobsLimit: othersWant}},
		{Shard: 1, Term: 5, Version: version, Granted: node.Amounts{node.JobsLimit: own}},
	}}
}

func useOf(used, short uint64) map[string]node.NamespaceUse {
	return map[string]node.NamespaceUse{"t": {Use: node.Amounts{node.JobsLimit: used},
		Short: node.Amounts{node.JobsLimit: short}}}
}

// TestQuotaIsReleasedFirst: a shard does without a part of its quota from the moment at which it
// proposes to give that back. That holds also while the outcome of the change is unknown, and
// whatever the shard needs meanwhile.
func TestQuotaIsReleasedFirst(t *testing.T) {
	s := &shardQuotas{term: 5, states: map[string]*namespaceState{}}
	granted := func(r *Record, use map[string]node.NamespaceUse) (jobs, asked uint64) {
		got, change := s.quotaFor(r, 1, 3, use)
		if change != nil {
			asked = change.Granted[node.JobsLimit]
		}
		return got.Granted[node.JobsLimit], asked
	}
	type step struct {
		what         string
		record       *Record
		use          map[string]node.NamespaceUse
		jobs, change uint64
	}
	for _, st := range []step{
		{"as recorded", recordOf(100, 60, 40, false, 7), useOf(50, 0), 60, 0},
		{"another wants some", recordOf(100, 60, 40, true, 7), useOf(50, 0), 50, 50},
		{"it is not known whether that was carried out", recordOf(100, 60, 40, false, 7), useOf(50, 0), 50, 0},
		{"more is wanted here", recordOf(100, 60, 20, false, 7), useOf(55, 5), 50, 0},
		{"an old record is seen", recordOf(100, 90, 0, false, 6), useOf(55, 0), 50, 0},
		{"it was carried out", recordOf(100, 50, 40, false, 8), useOf(50, 0), 50, 55},
		{"and grown", recordOf(100, 55, 40, false, 9), useOf(50, 0), 55, 0},
	} {
		jobs, change := granted(st.record, st.use)
		if jobs != st.jobs || st.change != 0 && change != st.change {
			t.Errorf("%s: it may use %d and asks for %d, want %d and %d", st.what, jobs, change, st.jobs, st.change)
		}
	}
}

// TestQuotaOfALeadership: a shard's quota counts in the term that has taken it over.
func TestQuotaOfALeadership(t *testing.T) {
	r := recordOf(100, 60, 40, false, 7)
	for term, want := range map[uint64]struct {
		waiting bool
		change  *Change
	}{
		4: {true, nil},
		5: {false, nil},
		6: {true, &Change{Name: "t", Created: 1}},
	} {
		s := &shardQuotas{term: term, states: map[string]*namespaceState{}}
		got, change := s.quotaFor(r, 1, 3, useOf(50, 0))
		if got.Waiting != want.waiting {
			t.Errorf("in term %d it waits: %t, want %t", term, got.Waiting, want.waiting)
		}
		if diff := cmp.Diff(want.change, change); diff != "" {
			t.Errorf("in term %d (-want +got):\n%s", term, diff)
		}
	}
}

// TestWantedQuotas: a shard asks for quota by its use and by what other shards have.
func TestWantedQuotas(t *testing.T) {
	tests := []struct {
		name               string
		quota, own, others uint64
		othersWant         bool
		used, short        uint64
		granted            uint64
		wanted, tight      bool
	}{
		{name: "a little for a shard that uses nothing", quota: 2400, granted: 100},
		{name: "an eighth more than is used", quota: 2400, own: 1000, used: 990, granted: 1113},
		{name: "half of what is free for a shard that does not need it yet", quota: 2400, own: 1000, others: 1300, used: 990,
			granted: 1050},
		{name: "all of it for a shard that does", quota: 2400, own: 1000, others: 1300, used: 1000, short: 100,
			granted: 1100},
		{name: "what is missing is wanted", quota: 2400, own: 1000, others: 1300, used: 1000, short: 200, granted: 1100,
			wanted: true},
		{name: "what is not used any more is given back", quota: 2400, own: 1000, others: 100, used: 10, granted: 110},
		{name: "all that is not used, if others want it", quota: 2400, own: 1000, others: 1400, othersWant: true, used: 600,
			granted: 600, tight: true},
		{name: "nothing is left", quota: 2400, own: 1000, others: 1400, othersWant: true, used: 1000, granted: 1000,
			tight: true},
		{name: "twice as much for a shard that lacks a little", quota: 2400, own: 400, others: 100, used: 400, short: 1,
			granted: 800},
		{name: "what all lack at once", quota: 2400, own: 100, others: 100, used: 100, short: 900, granted: 1125},
		{name: "half of what is free if another lacks something too", quota: 2400, own: 1000, others: 1200, othersWant: true,
			used: 1000, short: 500, granted: 1100, wanted: true},
		{name: "the last one that is free", quota: 2400, own: 1000, others: 1399, othersWant: true, used: 1000, short: 500,
			granted: 1001, wanted: true},
		{name: "wanted no more", quota: 2400, own: 1000, others: 1400, used: 1000, granted: 1000},
		{name: "the quota was lowered", quota: 500, own: 1000, others: 1400, used: 600, granted: 600},
		{name: "there is no limit", own: 1000, used: 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recordOf(tt.quota, tt.own, tt.others, tt.othersWant, 7)
			r.ShardQuotas[1].Wanted[node.JobsLimit] = true // it has said so before
			w := wantedQuota(r, &r.ShardQuotas[1], useOf(tt.used, tt.short)["t"], 3)
			const l = node.JobsLimit
			if w.Granted[l] != tt.granted || w.Wanted[l] != tt.wanted || w.Tight[l] != tt.tight {
				t.Errorf("granted %d, wanted %t, tight %t; want %d, %t, %t", w.Granted[l], w.Wanted[l], w.Tight[l], tt.granted,
					tt.wanted, tt.tight)
			}
		})
	}
}
