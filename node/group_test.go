package node

import (
	"errors"
	"testing"

	"github.com/belfrydb/belfry/node/outcome"
)

func TestNothingIsStartedBesideAStop(t *testing.T) {
	n := openNode(t, testConfig(t, t.TempDir()))
	closeNode(t, n)
	run := func() { t.Error("it ran") }
	if n.spawn(run) || n.shards[0].Load().Spawn(run) {
		t.Error("a goroutine was started after the stop")
	}
	if _, err := n.StartGroup(t.Context(), GroupConfig{Name: "counter", Machine: &counter{}}); !errors.Is(err,
		outcome.ErrShuttingDown) {
		t.Errorf("starting a group ended with %v", err)
	}
}
