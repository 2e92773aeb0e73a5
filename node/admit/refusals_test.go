package admit

import (
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/node/outcome"
)

// TestRefusalsOfSpacesAreBounded: names of namespaces beyond the bound take no memory.
func TestRefusalsOfSpacesAreBounded(t *testing.T) {
	var c NamespaceRefusals
	for i := range refusedNamespacesMax + 10 {
		c.Note(fmt.Errorf("shard: %w", &QuotaError{Namespace: fmt.Sprint(i), Limit: PutRate}), 1)
	}
	c.Note(&QuotaError{Namespace: "0", Limit: JobsLimit}, 2)
	c.Note(outcome.ErrQuota, 1)
	got := c.Value()
	if len(got) != refusedNamespacesMax+1 || got["0"] != (Amounts{JobsLimit: 2, PutRate: 1}) ||
		got[otherNamespaces] != (Amounts{PutRate: 10}) {
		t.Errorf("%d namespaces, %v, %v", len(got), got["0"], got[otherNamespaces])
	}
}
