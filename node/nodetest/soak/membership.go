package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// lag keeps a follower away while snapshots cut the log, so that it needs one to come back.
func lag(ctx context.Context, w *World, random *rand.Rand) {
	leads, _ := w.leader(shardGroup)
	m := w.any(random)
	if m == leads {
		all := w.all()
		m = all[(slices.Index(all, m)+1)%len(all)]
	}
	ways := around(m.name, w.names())
	w.network.alter(w.network.refused, ways, 1)
	w.sleep(ctx, 10*time.Second)
	for _, other := range w.all() {
		if l := w.lifeOf(other); l != nil && other != m {
			snapshot(ctx, l)
		}
	}
	<-ctx.Done()
	w.network.alter(w.network.refused, ways, -1)
}

func forceSnapshots(ctx context.Context, w *World, _ *rand.Rand) {
	for _, m := range w.all() {
		if l := w.lifeOf(m); l != nil {
			snapshot(ctx, l)
		}
	}
}

// snapshot takes a snapshot of the shard on a node. That it may fail is part of the fault.
func snapshot(ctx context.Context, l *life) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = l.node.Snapshot(ctx, 0)
}

func transfer(ctx context.Context, w *World, random *rand.Rand) {
	group := shardGroup
	if random.IntN(4) == 0 {
		group = catalogGroup
	}
	if _, l := w.leader(group); l != nil {
		_ = l.node.TransferLeader(ctx, group, "") // it may fail
	}
}

func storm(ctx context.Context, w *World, random *rand.Rand) {
	for ctx.Err() == nil {
		transfer(ctx, w, random)
		w.sleep(ctx, time.Duration(random.IntN(400))*time.Millisecond)
	}
}

// skew sets every clock wrong, each by another constant, and sometimes one of them by far more: the
// others are the majority that shard time follows. So none is if another node has not followed its
// clock back yet.
func skew(_ context.Context, w *World, random *rand.Rand) {
	within := func(most time.Duration) int64 { return random.Int64N(int64(2*most)) - int64(most) }
	all := w.all()
	for _, m := range all {
		m.clock.off.Store(within(w.plan.skew))
	}
	if random.IntN(2) == 0 {
		m, off := all[random.IntN(len(all))], within(wildMax)
		if slices.ContainsFunc(all, func(other *member) bool { return other != m && !w.tellsTime(other) }) {
			return
		}
		m.clock.off.Store(off)
		w.wild.CompareAndSwap(0, int64(w.history.now()))
		w.history.narrate("%s has a clock that is wrong by %v", m.name, time.Duration(off).Round(time.Millisecond))
		w.history.count("clocks wildly wrong")
	}
}

// tellsTime reports whether a node takes the time to be what it is, or will when it starts.
func (w *World) tellsTime(m *member) bool {
	w.mu.Lock()
	l, starting := m.life, m.starting
	w.mu.Unlock()
	if l == nil || starting || !l.ready() {
		return l == nil && !starting // one that starts now may have begun with a clock that was wrong
	}
	off := l.node.ReadClock().Stamp.Sub(m.clock.Wall()) + time.Duration(m.clock.off.Load())
	return off.Abs() <= clock.DefaultBound/2+skewMax
}

// lockMembership lets the caller change members. It returns false if another goroutine does.
func (w *World) lockMembership() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	claimed := !w.moving
	w.moving = true
	return claimed
}

func (w *World) unclaim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moving = false
}

// replaceMember takes a node's disk away. It leaves the cluster, and comes back as a stranger under
// the same name.
func replaceMember(ctx context.Context, w *World, random *rand.Rand) {
	if !w.lockMembership() {
		return
	}
	defer w.unclaim()
	m := w.any(random)
	if m.visits() {
		w.removeVisitor(ctx, m) // a new node in its place would be a member that no schedule removes
		w.history.count("visitors sent away later")
		return
	}
	if !w.healthyWithout(m) {
		w.history.count("replacement not begun")
		return
	}
	w.hold(m)
	w.kill(m, nil, nil, diskfault.KeepNames)
	w.history.narrate("%s lost its disk", m.name)
	w.reborn(ctx, m)
}

// reborn replaces the disk of a member that is down and held, and goes on with it until it is a
// voter again or ctx ends; finish does the rest.
func (w *World) reborn(ctx context.Context, m *member) {
	w.mu.Lock()
	old := m.serverID
	m.disk, m.founder = diskfault.New(), false
	m.leaving = append(m.leaving, old)
	m.serverID = ""
	m.outside = true
	m.held = false
	w.mu.Unlock()
	if err := w.makeVoter(ctx, m); err != nil {
		w.history.count("replacement not finished in time")
		return
	}
	w.history.count("members replaced")
}

// makeVoter makes a member that is outside a voter, and removes what it was before.
func (w *World) makeVoter(ctx context.Context, m *member) error {
	for len(m.leaving) > 0 {
		id := m.leaving[0]
		for _, group := range []string{catalogGroup, shardGroup} {
			gone := func(st node.GroupStatus) bool {
				return !slices.Contains(st.Voters, id) && !slices.Contains(st.Nonvoters, id)
			}
			if err := w.change(ctx, group, id, (*node.Node).RemoveServer, gone); err != nil {
				return err
			}
		}
		m.leaving = m.leaving[1:]
	}
	if !w.await(ctx, func() bool { return w.lifeOf(m) != nil }) {
		return fmt.Errorf("%s is not started: %w", m.name, ctx.Err())
	}
	if err := w.admit(ctx, m); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.outside = false
	return nil
}

// healthyWithout reports whether a majority of voters is left and has caught up when a member goes.
func (w *World) healthyWithout(gone *member) bool {
	for _, group := range []string{catalogGroup, shardGroup} {
		_, leads := w.leader(group)
		if leads == nil {
			return false
		}
		st := leads.status(group)
		alive := 0
		for _, m := range w.all() {
			if l := w.lifeOf(m); m != gone && l != nil && slices.Contains(st.Voters, w.idOf(m)) &&
				l.status(group).AppliedIndex+10 > st.CommitIndex {
				alive++
			}
		}
		if alive <= len(st.Voters)/2 || len(st.Voters) < w.plan.nodes {
			return false
		}
	}
	return true
}

// visit lets a further node join as a voter and leave again.
func visit(ctx context.Context, w *World, _ *rand.Rand) {
	if !w.lockMembership() {
		return
	}
	defer w.unclaim()
	w.mu.Lock()
	w.visitors++
	m := w.newMember(fmt.Sprintf("v%d", w.visitors))
	w.members = append(w.members, m)
	w.mu.Unlock()
	w.startMember(m)
	err := w.admit(ctx, m)
	if err == nil {
		w.history.count("visitors were voters")
	}
	if id := w.idOf(m); id != "" {
		m.leaving = append(m.leaving, id)
	}
	w.removeVisitor(ctx, m)
}

// removeVisitor removes a visitor from the groups and, once that is done, from the world.
func (w *World) removeVisitor(ctx context.Context, m *member) {
	for len(m.leaving) > 0 {
		id := m.leaving[0]
		for _, group := range []string{catalogGroup, shardGroup} {
			gone := func(st node.GroupStatus) bool {
				return !slices.Contains(st.Voters, id) && !slices.Contains(st.Nonvoters, id)
			}
			if w.change(ctx, group, id, (*node.Node).RemoveServer, gone) != nil {
				return
			}
		}
		m.leaving = m.leaving[1:]
	}
	w.hold(m)
	w.kill(m, nil, nil, diskfault.KeepNames)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = slices.DeleteFunc(slices.Clone(w.members), func(other *member) bool { return other == m })
}
