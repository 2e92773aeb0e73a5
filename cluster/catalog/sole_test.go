package catalog

import (
	"bytes"
	"testing"

	"github.com/belfrydb/belfry/node/identity"
)

// TestRecoveredQuotas: a recovery keeps the quotas of namespaces and drops those of shards. Their
// terms belong to groups that no longer exist.
func TestRecoveredQuotas(t *testing.T) {
	m := newMachine()
	apply(t, m, limitJobs(100), changeJobsQuota(1, 57, 0, 0))
	sole := &soleMachine{machine: m, self: identity.Identity{Shards: 3}, clusterID: "new"}
	var b bytes.Buffer
	if _, err := sole.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := newMachine().Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	r := restored.(*machine).state.Namespaces[0]
	if len(r.ShardQuotas) != 0 || r.Quota != m.state.Namespaces[0].Quota || len(m.state.Namespaces[0].ShardQuotas) != 1 {
		t.Errorf("recovered as %+v from %+v", r, m.state.Namespaces[0])
	}
}
