package soak

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// skewMax is how wrong a clock may be set: such that none is further from any other than a leader
// may be from the median.
const skewMax = clock.DefaultBound / 4

// wildMax is how wrong one clock may be.
const wildMax = time.Hour

// kinds returns the kinds of faults there are.
func kinds() []*kind {
	return []*kind{
		{"leader isolated", 6, 12 * time.Second, isolateLeader},
		{"leader isolated, packets lost", 6, 12 * time.Second, loseLeader},
		{"one-way cut", 6, 12 * time.Second, cutOneWay},
		{"halves", 4, 15 * time.Second, cutHalves},
		{"flapping link", 3, 10 * time.Second, flap},
		{"slow network", 3, 20 * time.Second, delayNetwork},
		{"leader killed", 6, 8 * time.Second, killLeader},
		{"node killed", 4, 10 * time.Second, killOne},
		{"all killed", 2, 4 * time.Second, killAll},
		{"power cut of one", 5, 10 * time.Second, cutPowerOfOne},
		{"power cut of all", 7, 4 * time.Second, cutPowerOfAll},
		{"power cut of all, one after the other", 3, 2 * time.Second, cutPowerOneByOne},
		{"pause", 4, 12 * time.Second, pause},
		{"suspension", 3, 9 * time.Second, suspend},
		{"slow disk", 4, 15 * time.Second, slowDisk},
		{"hung disk", 4, 20 * time.Second, hangDisk},
		{"failing disk", 3, 3 * time.Second, breakDisk},
		{"full disk", 3, 8 * time.Second, fillDisk},
		{"lag, then install", 5, 20 * time.Second, lag},
		{"snapshots forced", 4, 2 * time.Second, forceSnapshots},
		{"leadership moved", 3, time.Second, transfer},
		{"leadership storm", 2, 5 * time.Second, storm},
		{"member replaced", 4, 60 * time.Second, replaceMember},
		{"member added and removed", 3, 60 * time.Second, visit},
		{"clocks set", 4, time.Second, skew},
	}
}

// misfortunes lets the faults of the plan happen, and waits until they are over.
func (w *World) misfortunes() {
	var striking sync.WaitGroup
	defer striking.Wait()
	ctx := context.Background()
	for _, f := range w.plan.faults {
		if d := f.at - w.history.now(); d > 0 {
			w.sleep(ctx, d)
		}
		w.history.narrate("%s for %v", f.kind.name, f.length.Round(time.Millisecond))
		w.history.count("fault: " + f.kind.name)
		striking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, f.length)
			defer cancel()
			f.kind.strike(ctx, w, rand.New(rand.NewPCG(f.choice, 0)))
		})
	}
	if d := w.plan.length - w.history.now(); d > 0 {
		w.sleep(ctx, d)
	}
}

// leaderOrAny returns the leader of the shard, or a member if there is none.
func (w *World) leaderOrAny(random *rand.Rand) *member {
	if m, _ := w.leader(shardGroup); m != nil {
		return m
	}
	return w.any(random)
}

// any returns a member.
func (w *World) any(random *rand.Rand) *member {
	all := w.all()
	return all[random.IntN(len(all))]
}

// oftenLeader returns the leader in half of the cases.
func (w *World) oftenLeader(random *rand.Rand) *member {
	if random.IntN(2) == 0 {
		return w.leaderOrAny(random)
	}
	return w.any(random)
}

// cut applies a fault to ways until ctx ends.
func (w *World) cut(ctx context.Context, faults map[way]int, ways []way) {
	w.network.alter(faults, ways, 1)
	<-ctx.Done()
	w.network.alter(faults, ways, -1)
}

func isolateLeader(ctx context.Context, w *World, random *rand.Rand) {
	w.cut(ctx, w.network.refused, around(w.leaderOrAny(random).name, w.names()))
}

func loseLeader(ctx context.Context, w *World, random *rand.Rand) {
	w.cut(ctx, w.network.lossy, around(w.leaderOrAny(random).name, w.names()))
}

func cutOneWay(ctx context.Context, w *World, random *rand.Rand) {
	one, others := []string{w.oftenLeader(random).name}, w.names()
	if random.IntN(2) == 0 {
		others = []string{w.any(random).name}
	}
	ways := between(one, others)
	if random.IntN(2) == 0 {
		ways = between(others, one)
	}
	w.cut(ctx, w.network.lossy, ways)
}

func cutHalves(ctx context.Context, w *World, random *rand.Rand) {
	names := w.names()
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	a, b := names[:len(names)/2], names[len(names)/2:]
	faults := w.network.lossy
	if random.IntN(2) == 0 {
		faults = w.network.refused
	}
	w.cut(ctx, faults, slices.Concat(between(a, b), between(b, a)))
}

func flap(ctx context.Context, w *World, random *rand.Rand) {
	for ctx.Err() == nil {
		brief, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
		w.cut(brief, w.network.refused, around(w.oftenLeader(random).name, w.names()))
		cancel()
		w.sleep(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
	}
}

func delayNetwork(ctx context.Context, w *World, random *rand.Rand) {
	ways := around(w.oftenLeader(random).name, w.names())
	w.network.setDelay(ways, time.Duration(1+random.IntN(400))*time.Millisecond)
	<-ctx.Done()
	w.network.setDelay(ways, 0)
}

// trapWait is how long a trap waits for a step of a disk.
const trapWait = 3 * time.Second

// stop kills members in the middle of something in most cases, keeps them down until ctx ends, and
// lets them start again.
func (w *World) stop(ctx context.Context, random *rand.Rand, die func(*member), victims ...*member) {
	var once sync.Once
	sprung := make(chan struct{})
	strike := func() {
		once.Do(func() {
			for _, m := range victims {
				w.hold(m)
				die(m)
			}
			close(sprung)
		})
	}
	if random.IntN(4) > 0 {
		t := &trap{spring: strike}
		t.left.Store(1 + random.Int64N(40))
		w.trap.Store(t)
		timeout := time.NewTimer(trapWait)
		select {
		case <-sprung:
			w.history.count("deaths between two steps of a disk")
		case <-timeout.C:
		}
		timeout.Stop()
		w.trap.CompareAndSwap(t, nil)
	}
	strike()
	<-ctx.Done()
	for _, m := range victims {
		w.release(m)
	}
}

// process ends a process: what it wrote is in the kernel's hands.
func (w *World) process(m *member) { w.kill(m, nil, nil, diskfault.KeepNames) }

// power returns what a power cut does to a member. What was not synced is lost, or some of it, in
// any order.
func (w *World) power(random *rand.Rand) func(*member) {
	names, fate := diskfault.LoseNames, diskfault.LoseAll
	if random.IntN(3) == 0 {
		names = diskfault.KeepNames
	}
	if random.IntN(2) == 0 {
		kept := random.IntN(100)
		fate = func(string, int64) bool { return random.IntN(100) < kept }
	}
	return func(m *member) { w.kill(m, nil, fate, names) }
}

func killLeader(ctx context.Context, w *World, random *rand.Rand) {
	w.stop(ctx, random, w.process, w.leaderOrAny(random))
}

func killOne(ctx context.Context, w *World, random *rand.Rand) {
	w.stop(ctx, random, w.process, w.any(random))
}

func killAll(ctx context.Context, w *World, random *rand.Rand) {
	w.stop(ctx, random, w.process, w.all()...)
}

func cutPowerOfOne(ctx context.Context, w *World, random *rand.Rand) {
	w.stop(ctx, random, w.power(random), w.oftenLeader(random))
}

func cutPowerOfAll(ctx context.Context, w *World, random *rand.Rand) {
	w.stop(ctx, random, w.power(random), w.all()...)
}

func cutPowerOneByOne(ctx context.Context, w *World, random *rand.Rand) {
	all := w.all()
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, m := range all {
		w.hold(m)
		w.power(random)(m)
		w.sleep(ctx, time.Duration(random.IntN(300))*time.Millisecond)
	}
	<-ctx.Done()
	for _, m := range all {
		w.release(m)
	}
}

func pause(ctx context.Context, w *World, random *rand.Rand) {
	l := w.lifeOf(w.oftenLeader(random))
	if l == nil {
		return
	}
	l.troubled.Store(true)
	open := l.gate.shut()
	<-ctx.Done()
	open()
}

// suspend is a pause of the machine: its monotonic clock stands still.
func suspend(ctx context.Context, w *World, random *rand.Rand) {
	m := w.oftenLeader(random)
	l := w.lifeOf(m)
	if l == nil {
		return
	}
	l.troubled.Store(true)
	open := l.gate.shut()
	begun := time.Now()
	<-ctx.Done()
	m.clock.lost.Add(int64(time.Since(begun)))
	open()
}

// suffer lets a disk have trouble until ctx or the life ends.
func (w *World) suffer(ctx context.Context, m *member, t *trouble) {
	l := w.lifeOf(m)
	if l == nil {
		return
	}
	t.ended = make(chan struct{})
	l.troubled.Store(true)
	l.trouble.Store(t)
	select {
	case <-ctx.Done():
	case <-l.over:
	}
	l.trouble.CompareAndSwap(t, nil)
	close(t.ended)
}

func slowDisk(ctx context.Context, w *World, random *rand.Rand) {
	w.suffer(ctx, w.oftenLeader(random), &trouble{slow: time.Duration(1+random.IntN(300)) * time.Millisecond})
}

func hangDisk(ctx context.Context, w *World, random *rand.Rand) {
	w.suffer(ctx, w.oftenLeader(random), &trouble{hung: true})
}

func breakDisk(ctx context.Context, w *World, random *rand.Rand) {
	w.suffer(ctx, w.oftenLeader(random), &trouble{failing: diskfault.Broken})
}

// fillDisk lets a disk run full: seen in time in most cases, by a write that fails in the others.
func fillDisk(ctx context.Context, w *World, random *rand.Rand) {
	m := w.oftenLeader(random)
	if random.IntN(3) == 0 {
		w.suffer(ctx, m, &trouble{failing: diskfault.Full})
		return
	}
	l := w.lifeOf(m)
	if l == nil {
		return
	}
	l.disk.SetFree(uint64(random.IntN(diskLowBytes)))
	select {
	case <-ctx.Done():
	case <-l.over:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l.disk.SetFree(diskfault.FreeDefault)
	m.disk.SetFree(diskfault.FreeDefault)
}
