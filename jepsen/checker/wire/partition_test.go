package wire

import (
	"fmt"
	"testing"

	"github.com/belfrydb/belfry/node"
)

// TestPartitionOf holds the hash of the checker against that of the server.
func TestPartitionOf(t *testing.T) {
	for i := range 1000 {
		id, n := fmt.Sprint("job-", i), 1+i%17
		if got, want := PartitionOf(id, uint32(n)), node.PartitionOf(id, n); got != want {
			t.Errorf("%q of %d partitions is in %d, should be in %d", id, n, got, want)
		}
	}
}
