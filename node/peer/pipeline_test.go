package peer

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// TestFollowersGetNoPipeline: a pipeline to a follower whose disk stalled wedges until the leader
// changes, so there is none.
func TestFollowersGetNoPipeline(t *testing.T) {
	m, _ := startMux(t)
	transport := m.Transport("spare")
	defer transport.Close()
	if _, err := transport.AppendEntriesPipeline("b.1", "b.1"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("a pipeline to a follower: %v", err)
	}
}
