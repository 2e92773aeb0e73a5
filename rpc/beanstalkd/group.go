package beanstalkd

import (
	"context"
	"slices"
	"sync"
)

// groups carries out the commands of several connections together: one group in flight, or a few,
// and the commands that come meanwhile are the next group. A connection whose command finds no group
// in flight carries it out itself, at once, so that a lone connection waits for nobody.
type groups[T any] struct {
	// carryOut carries out the commands of some calls and sets their answers.
	carryOut func(ctx context.Context, calls []*groupCall[T])

	mu       sync.Mutex
	waiting  []*groupCall[T]
	inFlight int
}

// groupsInFlightMax is how many groups of a shard are in flight. With two, one is on its way while
// the entry of the other is being written.
const groupsInFlightMax = 2

// groupCommandsMax bounds the commands of a group.
const groupCommandsMax = 1000

// groupCall is the commands of one connection.
type groupCall[T any] struct {
	commands []T
	answers  []answer
	// proceed gets true once the answers are there, and false if the call is to carry out the next group.
	proceed chan bool
}

// do carries out a call, alone or with others. The end of ctx does not end it: the others' connections
// may live on.
func (g *groups[T]) do(ctx context.Context, call *groupCall[T]) {
	g.mu.Lock()
	if g.inFlight >= groupsInFlightMax {
		g.waiting = append(g.waiting, call)
		g.mu.Unlock()
		if answered := <-call.proceed; answered {
			return
		}
		g.mu.Lock()
	} else {
		g.inFlight++
	}
	group := g.take(call)
	g.mu.Unlock()
	defer g.pass(group)
	g.carryOut(context.WithoutCancel(ctx), group)
}

// take returns a group of a call and as many of those that wait as there is room for. The caller
// holds mu.
func (g *groups[T]) take(first *groupCall[T]) []*groupCall[T] {
	n, commands := 0, len(first.commands)
	for n < len(g.waiting) && commands+len(g.waiting[n].commands) <= groupCommandsMax {
		commands += len(g.waiting[n].commands)
		n++
	}
	group := append(make([]*groupCall[T], 0, n+1), first)
	group = append(group, g.waiting[:n]...)
	g.waiting = slices.Delete(g.waiting, 0, n)
	return group
}

// pass reports to the other calls of a group that they are answered, and lets the first one of those
// that wait carry out the next group.
func (g *groups[T]) pass(group []*groupCall[T]) {
	for _, call := range group[1:] {
		call.proceed <- true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.inFlight--
		return
	}
	next := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	next.proceed <- false
}
