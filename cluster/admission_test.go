package cluster

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestRefusalsThatMatter: what passes within a moment is not worth a word, what is final is at
// once, and nothing is said too often.
func TestRefusalsThatMatter(t *testing.T) {
	passing, final := fmt.Errorf("catalog: %w", node.ErrNoLeader), fmt.Errorf("%w: x", catalog.ErrNameTaken)
	synctest.Test(t, func(t *testing.T) {
		var r refusal
		for _, step := range []struct {
			after time.Duration
			err   error
			want  bool
		}{
			{0, passing, false}, {enrolNotice - 1, passing, false}, {1, passing, true}, {time.Hour, passing, true},
			{1, nil, false}, {1, passing, false}, {enrolNotice, passing, true}, {1, nil, false}, {1, final, true},
		} {
			<-time.After(step.after)
			if got := r.update(step.err); got != step.want {
				t.Errorf("after %v more, %v: %v", step.after, step.err, got)
			}
		}
		said := 0
		for range 25 {
			if r.isDue() {
				said++
			}
			<-time.After(enrolNotice / 10)
		}
		if said != 3 {
			t.Errorf("in two and a half times the pause it was said %d times", said)
		}
	})
}

// TestNodeThatIsNotAdmitted says why, as part of whether it is ready.
func TestNodeThatIsNotAdmitted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		twin := &member{t: t, name: "a", addr: "elsewhere", dir: t.TempDir(), network: network}
		twin.start(a)
		t.Cleanup(twin.stop)
		await(t, "the reason", func() bool {
			why := twin.cluster.members.unrecorded.Load()
			return why != nil && twin.cluster.Router().Unreached(t.Context())[catalog.GroupName] == *why
		})
		if err := twin.cluster.members.enrol(t.Context()); !errors.Is(err, catalog.ErrNameTaken) {
			t.Error(err)
		}
		if why := a.cluster.members.unrecorded.Load(); why != nil {
			t.Errorf("a recorded node says %q", *why)
		}
	})
}

// TestTwoNewNodesOfOneName ask two nodes at the same time, which both find the name free.
func TestTwoNewNodesOfOneName(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, all := threeMembers(t, dir)
		admitted := make(chan error, 2)
		for i, joining := range []catalog.Node{
			{Name: "x", ServerID: "x.1", Format: fsm.LatestFormat},
			{Name: "x", ServerID: "x.2", Format: fsm.LatestFormat},
		} {
			go func() { admitted <- all[i].cluster.Admit(t.Context(), joining) }()
		}
		one, other := <-admitted, <-admitted
		if (one == nil) == (other == nil) || !errors.Is(errors.Join(one, other), catalog.ErrNameTaken) {
			t.Errorf("the two were answered %v and %v", one, other)
		}
	})
}
