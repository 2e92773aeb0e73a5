package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/nodetest/pipetest"
	"github.com/belfrydb/belfry/node/peer"
)

// machineFormat returns the format of what shard 0 has applied.
func machineFormat(n *Node) (format fsm.Format) {
	n.shards[0].Load().view(func(m *machine.Machine, _ fsm.Time) { format = m.Format() })
	return format
}

// formatTold returns the format that the node behind a listener tells strangers.
func formatTold(t *testing.T, l *pipetest.Listener) fsm.Format {
	t.Helper()
	intro, err := peer.Hello(t.Context(), l.Dial, "")
	if err != nil {
		t.Fatal(err)
	}
	return intro.Format
}

// TestFormatThatANodeSpeaks: it is the first until the node is told, then the one that it was told,
// also after a start.
func TestFormatThatANodeSpeaks(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t, dir)
		n := openNode(t, cfg)
		log := func(n *Node) {
			t.Helper()
			if _, err := n.Do(t.Context(), 0, &fsm.Request{Commands: []fsm.Command{put("orders", "", 0)}}); err != nil {
				t.Fatal(err)
			}
		}
		log(n)
		if n.Format() != fsm.FirstFormat || machineFormat(n) != fsm.FirstFormat {
			t.Errorf("a new node speaks format %d and has logged %d", n.Format(), machineFormat(n))
		}
		// the second is lower, or the same, and changes nothing
		for _, format := range []fsm.Format{fsm.LatestFormat, fsm.FirstFormat} {
			if err := n.Speak(format); err != nil {
				t.Fatal(err)
			}
		}
		log(n)
		if n.Format() != fsm.LatestFormat || machineFormat(n) != fsm.LatestFormat {
			t.Errorf("the node was told format %d, speaks %d and has logged %d", fsm.LatestFormat, n.Format(), machineFormat(n))
		}
		closeNode(t, n)
		listener := pipetest.Listen("pipe")
		cfg.Peers = listener
		again := openNode(t, cfg)
		if again.Format() != fsm.LatestFormat || formatTold(t, listener) != fsm.LatestFormat {
			t.Errorf("after a start it speaks format %d, and tells strangers %d", again.Format(), formatTold(t, listener))
		}
	})
}

// TestFormatThatANodeCannotSpeak leaves everything as it is.
func TestFormatThatANodeCannotSpeak(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := openNode(t, testConfig(t, dir))
		before, err := os.ReadFile(filepath.Join(dir, identity.File))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Speak(fsm.LatestFormat + 1); !errors.Is(err, fsm.ErrVersion) || n.Format() != fsm.FirstFormat {
			t.Errorf("told a format that it does not read, the node speaks %d, %v", n.Format(), err)
		}
		after, err := os.ReadFile(filepath.Join(dir, identity.File))
		if diff := cmp.Diff(string(before), string(after)); err != nil || diff != "" {
			t.Errorf("%v (-before +after):\n%s", err, diff)
		}
	})
}
