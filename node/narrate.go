package node

import (
	"sync"
	"time"
)

// narrateInterval is the time between two messages about a slow start.
const narrateInterval = 3 * time.Second

// narrateStart logs every few seconds how far the groups are that do not serve yet, until end is
// called.
func (n *Node) narrateStart() (end func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(narrateInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			for _, s := range n.here() {
				if !s.Serves() && s.SoleVoter() {
					s.Logger().Info("replaying the log", "applied_index", s.Replica().AppliedIndex(), "last_index",
						s.LastIndex())
				}
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}
