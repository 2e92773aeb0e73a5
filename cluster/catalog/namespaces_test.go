package catalog

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cluster/quota"
	"github.com/belfrydb/belfry/node"
)

// limitJobs sets a quota of jobs.
func limitJobs(n uint64) command {
	return command{Limit: &limitation{Name: "t", Set: [node.Limits]bool{node.JobsLimit: true},
		Quota: node.Amounts{node.JobsLimit: n}}}
}

// changeJobsQuota changes the jobs quota of a shard from a version.
func changeJobsQuota(shard uint32, term, version, granted uint64) command {
	return command{ShardQuotas: &quota.ShardChanges{Shard: shard, Term: term, Changes: []quota.Change{
		{Name: "t", Created: 1, Version: version, Granted: node.Amounts{node.JobsLimit: granted}},
	}}}
}

// TestShardQuotas applies entries of which the first makes the record. It compares the quotas of
// the shards, in their order.
func TestShardQuotas(t *testing.T) {
	limit, remove := limitJobs(100), command{Limit: &limitation{Name: "t", Remove: true}}
	tests := []struct {
		name     string
		commands []command
		want     []uint64
	}{
		{"nothing", []command{limit}, nil},
		{"taken over", []command{limit, changeJobsQuota(1, 5, 0, 70)}, []uint64{0}},
		{"grows", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70)}, []uint64{70}},
		{"grows by what is free", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70),
			changeJobsQuota(2, 9, 0, 0), changeJobsQuota(2, 9, 4, 70)}, []uint64{70, 30}},
		{"what was given back is free", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70),
			changeJobsQuota(2, 9, 0, 0), changeJobsQuota(1, 5, 3, 20), changeJobsQuota(2, 9, 4, 70)}, []uint64{20, 70}},
		{"not from an old version", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70),
			changeJobsQuota(1, 5, 2, 10)}, []uint64{70}},
		{"not before it is taken over", []command{limit, changeJobsQuota(1, 5, 2, 70)}, []uint64{0}},
		{"a later leader has what the earlier had", []command{limit, changeJobsQuota(1, 5, 0, 0),
			changeJobsQuota(1, 5, 2, 70), changeJobsQuota(1, 6, 0, 0)}, []uint64{70}},
		{"an earlier leader changes nothing", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70),
			changeJobsQuota(1, 6, 0, 0), changeJobsQuota(1, 5, 4, 10)}, []uint64{70}},
		{"nor takes over again", []command{limit, changeJobsQuota(1, 6, 0, 0), changeJobsQuota(1, 5, 0, 0),
			changeJobsQuota(1, 6, 2, 10)}, []uint64{10}},
		{"a lower quota takes nothing away", []command{limit, changeJobsQuota(1, 5, 0, 0), changeJobsQuota(1, 5, 2, 70),
			limitJobs(10), changeJobsQuota(1, 5, 3, 80)}, []uint64{70}},
		{"removed", []command{limit, changeJobsQuota(1, 5, 0, 0), remove}, nil},
		{"another record of the name", []command{limit, remove, limit, changeJobsQuota(1, 5, 0, 0)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine()
			apply(t, m, tt.commands...)
			var got []uint64
			for _, r := range m.state.Namespaces {
				for _, s := range r.ShardQuotas {
					got = append(got, s.Granted[node.JobsLimit])
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("quotas (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPendingShards: a quota is pending in a shard until the shard's leader has said that it
// enforces the present one, or has taken the shard's quota over since.
func TestPendingShards(t *testing.T) {
	_, c, _ := open(t, t.TempDir())
	limitBytes := command{Limit: &limitation{Name: "t", Set: [node.Limits]bool{node.BytesLimit: true},
		Quota: node.Amounts{node.BytesLimit: 1000}}}
	says := func(shard uint32, term, seen uint64) command {
		s := changeJobsQuota(shard, term, 0, 0)
		if seen > 0 {
			s.ShardQuotas.Changes[0].Seen = seen
		}
		return s
	}
	m := newMachine()
	apply(t, m, limitJobs(100), says(0, 5, 0), says(1, 5, 0), says(2, 5, 0), says(3, 5, 0))
	expect := func(what string, want ...uint32) {
		t.Helper()
		if diff := cmp.Diff(want, c.namespaceOf(m.state.Namespaces[0]).Pending); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	next := uint64(6) // after those
	step := func(cmd command) {
		t.Helper()
		if cmd.ShardQuotas != nil && cmd.ShardQuotas.Changes[0].Seen > 0 {
			cmd.ShardQuotas.Changes[0].Version = m.state.Namespaces[0].ShardQuotas[cmd.ShardQuotas.Shard].Version
		}
		applyFrom(t, m, next, cmd)
		next++
	}
	expect("taken over")
	step(limitJobs(100))
	expect("the same again")
	step(limitBytes)
	expect("another limit", 0, 1, 2, 3)
	step(says(0, 5, 1))
	expect("one that knows the old one", 0, 1, 2, 3)
	step(says(0, 5, 7))
	expect("one that knows it", 1, 2, 3)
	step(says(1, 4, 0))
	expect("an earlier leader", 1, 2, 3)
	step(says(1, 6, 0))
	expect("a later leader", 2, 3)
	step(limitJobs(0))
	expect("one limit less", 0, 1, 2, 3)
}

// TestRemovingAQuotaSaysWhetherThereWasOne: a caller that misspells a name learns of it, and a
// repeat is no error.
func TestRemovingAQuotaSaysWhetherThereWasOne(t *testing.T) {
	_, c, _ := open(t, t.TempDir())
	if _, err := c.propose(t.Context(), limitJobs(5)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if found, err := c.RemoveNamespace(t.Context(), "t"); found != want || err != nil {
			t.Errorf("removing it for time %d: %v, %v; want %v", i+1, found, err, want)
		}
	}
	if all := c.Namespaces(); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}
