package soak

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// plan is what a seed makes of a schedule, apart from the choices that depend on what the cluster
// is like at the time.
type plan struct {
	nodes   int
	clients int
	length  time.Duration
	// clientPauseMax is the longest pause of a client between two calls.
	clientPauseMax time.Duration
	// keyed has the clients use keys and schedules too; ordered is that setting of their queue.
	keyed, ordered bool
	faults         []fault
	// calendar is that of all nodes.
	calendar func(*fsm.Schedule) (schedules.Calendar, error)

	// What follows plants mistakes. All of it is nil or false in earnest.

	// wrapDisk changes what a node's storage sees of its disk, wrapDoor what clients see of the node.
	wrapDisk func(*diskfault.Disk) disk.FS
	wrapDoor func(*node.Node, *World) door
	// mistake is what a replica of the catalog makes of a token.
	mistake func(owner string, token uint64) uint64
	// forgetful leaves the last token out of the catalog's snapshots.
	forgetful bool
	// skew is how wrong clocks may be; skewMax in earnest.
	skew time.Duration
}

// fault is something that goes wrong for a while.
type fault struct {
	at, length time.Duration
	kind       *kind
	choice     uint64 // seeds what the fault chooses
}

// kind is a kind of fault. strike returns when the fault is over; until then ctx lasts.
type kind struct {
	name   string
	weight int
	// longest is the longest that it lasts.
	longest time.Duration
	strike  func(ctx context.Context, w *World, random *rand.Rand)
}

// newPlan draws a plan.
func newPlan(random *rand.Rand) plan {
	p := plan{
		nodes: 3, clients: 6, length: 5 * time.Minute, clientPauseMax: 2 * time.Second, skew: skewMax, calendar: newCalendar,
	}
	if random.IntN(4) == 0 {
		p.nodes = 5
	}
	if random.IntN(4) == 0 { // a busy one
		p.clients, p.clientPauseMax = 9, 500*time.Millisecond
	}
	known := kinds()
	if random.IntN(2) == 0 { // few kinds in many combinations find other things than all kinds at once
		random.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
		known = known[:3]
	}
	p.draw(random, known)
	p.keyed, p.ordered = random.IntN(4) > 0, random.IntN(3) == 0
	return p
}

// draw fills the plan with faults of the given kinds.
func (p *plan) draw(random *rand.Rand, known []*kind) {
	total := 0
	for _, k := range known {
		total += k.weight
	}
	rest := time.Duration(2+random.IntN(14)) * time.Second
	p.faults = nil
	for at := rest; at < p.length; at += time.Duration(random.Int64N(int64(2 * rest))) {
		n := random.IntN(total)
		for _, k := range known {
			if n -= k.weight; n < 0 {
				length := 100*time.Millisecond + time.Duration(random.Int64N(int64(k.longest)))
				p.faults = append(p.faults, fault{at: at, length: length, kind: k, choice: random.Uint64()})
				break
			}
		}
	}
}
