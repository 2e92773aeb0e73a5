package soak

import (
	"context"

	"github.com/belfrydb/belfry/node/clock"
)

// clocks are the other members' clocks as a life can ask them: over links that may be cut, lossy or
// slow, of nodes that may be paused or dead.
type clocks struct {
	world *World
	from  *life
}

// ReadClock implements clock.Peers.
func (k clocks) ReadClock(ctx context.Context, serverID string) (clock.Reading, error) {
	name, err := nameOf(serverID)
	if err != nil {
		return clock.Reading{}, err
	}
	if err := k.travel(ctx, way{k.from.name, name}); err != nil {
		return clock.Reading{}, err
	}
	for _, m := range k.world.all() {
		if m.name != name || k.world.idOf(m) != serverID {
			continue
		}
		there := k.world.lifeOf(m)
		if there == nil {
			break
		}
		there.gate.pass(ctx.Done())
		reading := there.node.ReadClock()
		return reading, k.travel(ctx, way{name, k.from.name})
	}
	return clock.Reading{}, errCut
}

// travel is the way of a message.
func (k clocks) travel(ctx context.Context, at way) error {
	k.from.gate.pass(ctx.Done())
	net := k.world.network
	net.mu.Lock()
	refused, lossy, delay := net.refused[at] > 0, net.lossy[at] > 0, net.delay[at]
	net.mu.Unlock()
	if refused {
		return errCut
	}
	if lossy {
		<-ctx.Done() // it never arrives
		return context.Cause(ctx)
	}
	if !wait(ctx, delay) {
		return context.Cause(ctx)
	}
	return nil
}
