package node

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// AbstainFor is how long a replica abstains after Abstain. Whoever finds that it should goes on saying so; if that ends, ordinary elections are back.
const AbstainFor = 3 * time.Second

// errAbstains is the answer to a leader that hands over to this node.
var errAbstains = errors.New("this node abstains from elections, because a majority of the voters cannot reach it")

// Abstain has this node not stand for election in a group for AbstainFor, nor take the leadership from a leader that hands over. What it leads it leads on.
//
// It is for a node that other nodes cannot connect to while its own connections work: Raft would elect it, and keep it, since a leader sends and
// followers answer.
func (n *Node) Abstain(group string) error {
	for _, g := range n.allGroups() {
		if g.name == group {
			g.instance().transport.standing.abstain()
			return nil
		}
	}
	return fmt.Errorf("abstaining in %s: %w", group, ErrNotHere)
}

// abstention is until when a node abstains from the elections of a group. The zero value abstains from none.
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
