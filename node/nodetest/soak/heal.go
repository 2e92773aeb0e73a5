package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

const (
	// recovery is how long a healed cluster may take to serve, and to bring every replica to the same
	// entry.
	recovery = 60 * time.Second
	// punctual is how late a job may be handed to a consumer who waits, when nothing is wrong.
	punctual = time.Second
)

// heal ends what is wrong and waits until the cluster is whole.
func (w *World) heal(ctx context.Context) {
	begun := time.Now()
	w.history.narrate("all is healed")
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for _, m := range w.all() {
		// A clock that was wildly wrong is put right, as by the time service: each node is to lead in
		// turn, which that one would not be let.
		m.clock.off.Store(max(-int64(skewMax), min(m.clock.off.Load(), int64(skewMax))))
		w.release(m)
		w.startMember(m)
	}
	for _, m := range w.all() {
		if m.visits() {
			w.removeVisitor(ctx, m)
		} else if m.outside {
			if err := w.makeVoter(ctx, m); err != nil {
				w.history.violated("recovery", "%v", err)
			}
		}
	}
	if !w.await(ctx, func() bool {
		w.expel(ctx)
		return w.whole() == ""
	}) {
		w.history.violated("recovery", "%v after all was healed %s", recovery, w.whole())
		return
	}
	w.history.narrate("whole again after %v", time.Since(begun).Round(time.Millisecond))
}

// expel removes server ids that no node has any more: a change of members with an unknown outcome
// may take effect late.
func (w *World) expel(ctx context.Context) {
	known := map[string]bool{}
	for _, m := range w.all() {
		known[w.idOf(m)] = true
	}
	for _, group := range []string{catalogGroup, shardGroup} {
		_, l := w.leader(group)
		if l == nil {
			continue
		}
		st := l.status(group)
		for _, id := range slices.Concat(st.Voters, st.Nonvoters) {
			if !known[id] {
				attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
				_ = l.node.RemoveServer(attempt, group, id, 0) // it is tried again
				cancel()
			}
		}
	}
}

// whole returns what is missing; empty if every node runs, every group has a leader, and every
// replica has applied the same.
func (w *World) whole() string {
	for _, group := range []string{catalogGroup, shardGroup} {
		_, leads := w.leader(group)
		if leads == nil {
			return "nobody leads " + group
		}
		want := leads.status(group)
		for _, m := range w.all() {
			l := w.lifeOf(m)
			if l == nil {
				return m.name + " is down"
			}
			st := l.status(group)
			if st.AppliedIndex < want.CommitIndex || !slices.Contains(want.Voters, w.idOf(m)) {
				return fmt.Sprintf("%s has applied %d of %d entries of %s (%+v)", m.name, st.AppliedIndex, want.CommitIndex, group,
					st)
			}
		}
		if len(want.Voters) != w.plan.nodes {
			return fmt.Sprintf("%s has the voters %v", group, want.Voters)
		}
	}
	return ""
}

// drain takes out all that is left, through each node in turn, and compares what is left then with
// what must be.
func (w *World) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*recovery)
	defer cancel()
	for i, m := range w.all() {
		if !w.leadTo(ctx, m) {
			w.history.violated("liveness", "%s does not become the leader", m.name)
			return
		}
		c := &client{
			world: w, name: fmt.Sprintf("drain%d", i), random: rand.New(rand.NewPCG(w.options.Seed, uint64(i)+2_000)), guess: i,
			patient: true,
		}
		if !c.probe(ctx) {
			return
		}
		if i == 0 && w.plan.keyed {
			c.endKeys(ctx)
		}
		if i == 0 { // by then every job that clients put with a delay is due
			w.sleep(ctx, delayMax+10*time.Second)
		}
		for c.takeSome(ctx) {
		}
	}
	if !w.await(ctx, func() bool { return w.whole() == "" }) {
		w.history.violated("recovery", "after the drain %s", w.whole())
	}
	w.compare()
}

// leadTo moves the leadership of the shard to a member.
func (w *World) leadTo(ctx context.Context, m *member) bool {
	return w.await(ctx, func() bool {
		leads, l := w.leader(shardGroup)
		if leads == m {
			return true
		}
		if l != nil {
			attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_ = l.node.TransferLeader(attempt, shardGroup, w.idOf(m)) // it may fail
		}
		return false
	})
}

// probe puts a job that a consumer is already waiting for, and sees that it comes in time.
func (c *client) probe(ctx context.Context) bool {
	const delay = 2 * time.Second
	type handed struct {
		result fsm.Result
		at     time.Time
	}
	got := make(chan handed, 1)
	go func() {
		waiting := &client{
			world: c.world, name: c.name + "-waiting", random: rand.New(rand.NewPCG(1, 1)), guess: c.guess, patient: true,
		}
		var h handed
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && len(h.result.Grants) == 0; {
			h.result, _ = waiting.do(ctx, &fsm.Reserve{Queues: []string{"probe"}, Max: 1, TTR: time.Minute}, 15*time.Second)
		}
		h.at = time.Now()
		got <- h
	}()
	c.pause(ctx, time.Second)
	put, ok := c.do(ctx, &fsm.Put{Queue: "probe", Partitions: 1, Given: fsm.GivenDelay, Delay: delay}, 0)
	known := time.Now()
	h := <-got
	if !ok || len(h.result.Grants) == 0 {
		c.world.history.violated("liveness", "a job put on the healed cluster was not handed out (put: %v)", ok)
		return false
	}
	if late := h.at.Sub(known) - delay; late > punctual && h.result.Grants[0].Serial == put.Serial {
		c.world.history.violated("no lost wake-up", "a consumer who waited got a job %v after it was due", late)
	}
	if ack, ok := c.do(ctx, &fsm.Ack{Ref: refOf(h.result.Grants[0])}, 0); !ok || ack.Code != fsm.OK {
		c.world.history.violated("liveness", "the ack on the healed cluster ended with %v, %v", ack.Code, ok)
		return false
	}
	return true
}

// takeSome takes and acks some jobs. It reports false when nothing is left to be had.
func (c *client) takeSome(ctx context.Context) bool {
	result, ok := c.do(ctx, &fsm.Reserve{Queues: allQueues(), Max: 20, TTR: time.Minute}, time.Second)
	if !ok || len(result.Grants) == 0 {
		return !ok && ctx.Err() == nil
	}
	for _, g := range result.Grants {
		c.do(ctx, &fsm.Ack{Ref: refOf(g)}, 0)
	}
	return ctx.Err() == nil
}

// compare reads what is left on each node.
func (w *World) compare() {
	w.left = map[string]map[uint64]fsm.Job{}
	for _, m := range w.all() {
		l := w.lifeOf(m)
		if l == nil {
			continue
		}
		held := map[uint64]fsm.Job{}
		for _, queue := range append(allQueues(), "probe") {
			for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead} {
				r, _, err := l.node.Peek(0, &fsm.ListQuery{Queue: queue, State: state, Max: 1_000_000})
				if err != nil {
					w.history.violated("reading", "%s: %v", m.name, err)
				}
				for _, job := range r.Jobs {
					held[job.Serial] = job
				}
			}
			w.conserved(m, l.node, queue)
		}
		w.left[m.name] = held
		var tokens []uint64
		l.catalog.View(func(machine node.Machine) { tokens = slices.Clone(machine.(*tally).tokens) })
		w.judgeTokens(m.name, tokens)
	}
}

// conserved checks that what went into a queue is what is there and what went out.
func (w *World) conserved(m *member, n *node.Node, queue string) {
	r, _, err := n.Peek(0, &fsm.QueueQuery{Queue: queue})
	if err != nil || len(r.Queues) == 0 {
		return
	}
	counts, out := r.Queues[0].Counts, r.Queues[0].Counters
	if gone := out.Acked + out.Cancelled + out.Expired + out.Purged; out.Put != counts.Jobs()+gone {
		w.history.violated("conservation", "%s: queue %s had %d jobs put, holds %d, and %d are gone", m.name, queue, out.Put,
			counts.Jobs(), gone)
	}
}
