package node

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/outcome"
)

// AbstainFor is how long a replica abstains after Abstain. The caller repeats Abstain while the reason lasts; when it
// stops, ordinary elections return.
const AbstainFor = 3 * time.Second

// errAbstains is the answer to a leader that transfers its leadership to this node.
var errAbstains = errors.New("this node abstains from elections, because a majority of the voters cannot reach it")

// Abstain keeps this node from elections in a group for AbstainFor: it does not stand, and refuses a transfer of the
// leadership. A leadership that it has goes on.
//
// It is for a node that other nodes cannot connect to while its own connections work. Raft would elect it and keep it,
// because a leader sends and followers answer.
func (n *Node) Abstain(group string) error {
	for _, g := range n.allGroups() {
		if g.name == group {
			g.instance().transport.standing.abstain()
			return nil
		}
	}
	return fmt.Errorf("abstaining in %s: %w", group, outcome.ErrNotHere)
}

// abstention is the time until which a node abstains from the elections of a group. The zero value does not abstain.
type abstention struct {
	mu    sync.Mutex
	until time.Time
}

func (a *abstention) abstain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Now().Add(AbstainFor)
}

func (a *abstention) abstains() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until)
}
