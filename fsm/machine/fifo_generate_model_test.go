package machine_test

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

func (g *generator) release() *fsm.Release {
	c := &fsm.Release{Ref: g.ref(), Delay: pick(g, 0, 0, g.duration())}
	if c.PriorityGiven = g.chance(20); c.PriorityGiven {
		c.Priority = g.priority()
	}
	return c
}

// priority returns a priority, often one that two formats do not share or that another one counts as.
func (g *generator) priority() int64 {
	return pick[int64](g, -128, -1, 0, 1, 127, 128, 1023, 1024, 1<<31, fsm.PriorityMax-128, fsm.PriorityMax, 1<<40)
}

// oneJob returns a command that names a job by its serial: in most cases one that is held.
func (g *generator) oneJob() fsm.Command {
	queue, serial := g.queue(), 1+g.r.Uint64N(20)
	if jobs := g.m.Jobs(queue); len(jobs) > 0 && g.chance(85) {
		serial = pick(g, jobs...).Serial
	}
	if g.chance(50) {
		return &fsm.ReserveJob{Queue: queue, Serial: serial, TTR: pick(g, 0, g.duration())}
	}
	return &fsm.Kick{Queue: queue, Serial: pick(g, 0, serial), Max: uint32(g.r.IntN(3))}
}

// withoutFIFO returns requests as a leader of a format before fsm.FIFOFormat logs them.
func withoutFIFO(requests []fsm.Request) []fsm.Request {
	requests = slices.Clone(requests)
	for i := range requests {
		commands := slices.Clone(requests[i].Commands)
		for j, c := range commands {
			switch c := c.(type) {
			case *fsm.Put:
				p := narrowed(c)
				commands[j] = &p
			case *fsm.PutSchedule:
				p := *c
				p.Job = narrowed(&c.Job)
				commands[j] = &p
			case *fsm.Nack:
				p := *c
				p.PriorityGiven, p.Priority = false, 0
				commands[j] = &p
			case *fsm.Release:
				p := *c
				p.PriorityGiven, p.Priority = false, 0
				commands[j] = &p
			case *fsm.Kick, *fsm.ReserveJob:
				commands[j] = &fsm.Expire{}
			}
		}
		requests[i].Commands = commands
	}
	return requests
}

func narrowed(c *fsm.Put) fsm.Put {
	p := *c
	p.FIFO, p.Priority = false, min(p.Priority, fsm.PriorityNarrow)
	return p
}
