package node

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/outcome"
)

// TestStatsOfSpaces: what a namespace uses of its quota, and how often it was refused for which limit.
func TestStatsOfSpaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share := limitOf(JobsLimit, 10, 2)
		share.Quota[PutRate], share.Granted[PutRate] = 3000, 3000
		n := openLimited(t, share)
		do(t, n, 0, put("t/q", "1", 0), put("t/q", "2", 0), put("plain", "3", 0))
		do(t, n, 0, &fsm.Reserve{Queues: []string{"t/q"}, Max: 1, TTR: 1})
		for range 3 {
			if err := tryPut(t, n, put("t/q", "4", 0)); !errors.Is(err, outcome.ErrQuota) {
				t.Fatal(err)
			}
		}
		got := n.Stats().Shards[0]
		if diff := cmp.Diff(map[string]Amounts{"t": {JobsLimit: 3}}, got.QuotaRefusals); diff != "" {
			t.Errorf("refusals (-want +got):\n%s", diff)
		}
		var usage fsm.Usage
		s, err := n.replicaOf(0)
		if err != nil {
			t.Fatal(err)
		}
		s.view(func(m *fsm.Machine, _ fsm.Time) { usage = m.UsageOf("t") })
		want := Amounts{JobsLimit: 2, BytesLimit: usage.Bytes, LeasesLimit: 1, PutRate: got.Spaces["t"][PutRate]}
		if diff := cmp.Diff(map[string]Amounts{"t": want}, got.Spaces); diff != "" || usage.Bytes == 0 {
			t.Errorf("what is used (-want +got):\n%s", diff)
		}
	})
}

// TestRefusalsOfSpacesAreBounded: names of namespaces beyond the bound take no memory.
func TestRefusalsOfSpacesAreBounded(t *testing.T) {
	c := newShardCounters(0)
	for i := range refusedNamespacesMax + 10 {
		c.failed(fmt.Errorf("shard: %w", &QuotaError{Namespace: fmt.Sprint(i), Limit: PutRate}), 1)
	}
	c.failed(&QuotaError{Namespace: "0", Limit: JobsLimit}, 2)
	c.failed(outcome.ErrQuota, 1)
	got := c.quotas.value()
	if len(got) != refusedNamespacesMax+1 || got["0"] != (Amounts{JobsLimit: 2, PutRate: 1}) || got[OtherQueues] != (Amounts{PutRate: 10}) {
		t.Errorf("%d namespaces, %v, %v", len(got), got["0"], got[OtherQueues])
	}
}
