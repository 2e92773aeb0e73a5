package peer

import (
	"errors"
	"sync"
	"time"
)

// AbstainFor is how long a replica abstains after Abstain. The caller repeats Abstain while the
// reason lasts; when it stops, ordinary elections return.
const AbstainFor = 3 * time.Second

// errAbstains is the answer to a leader that transfers its leadership to this node.
var errAbstains = errors.New("this node abstains from elections, because a majority of the voters cannot reach it")

// Abstain keeps this node from elections in the group for AbstainFor. See node.Abstain.
func (t *Transport) Abstain() { t.standing.abstain() }

// abstention is the time until which a node abstains from the elections of a group. The zero value
// does not abstain.
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
