package checker

import (
	"strings"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/mirror"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model/ledger"
)

const (
	// mirrorControl begins the names of the queues in which the mirror keeps what it remembers.
	mirrorControl = "belfry.mirror/"
)

// ofMirror reports whether a command is about a queue on which the mirror acts, beside the clients
// of the run: what it sends is in no history.
func (c *check) ofMirror(command fsm.Command) bool {
	if k := command.Kind(); k == fsm.KindConfigure || k == fsm.KindOpen {
		return false // the mirror sends neither
	}
	queue := fsm.QueueOf(command)
	return c.mirrored && (strings.HasPrefix(queue, mirror.Queues) || strings.HasPrefix(queue, mirrorControl))
}

// remembered reports whether a job is what the mirror remembers, and never ends.
func (c *check) remembered(a *ledger.Job) bool {
	return c.mirrored && strings.HasPrefix(a.Queue.Name, mirrorControl)
}

// mirror holds what went through Redis against what clients did in Belfry.
func (c *check) mirror(found *finding.Set) {
	if !c.mirrored {
		return
	}
	mirror.Check(&mirror.Run{Ops: c.ops, Passages: c.run.History.Passages(), Start: c.run.History.Start,
		Drained: c.run.Drained > 0, Ahead: c.ahead.at}, found)
}
