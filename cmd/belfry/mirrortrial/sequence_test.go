package mirrortrial

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belfrydb/belfry/client/admin"
	"github.com/belfrydb/belfry/mirror/redistest"
)

var seed = flag.Uint64("trial.seed", 0,
	"what the steps of TestKillSequence are made from; 0 takes one at random and prints it")

const (
	// endMax is for how long a command that is left to end may run: beside producers some never do.
	endMax = 4 * time.Second
	// holdMax is how long a command is waited for that does not get the hold: one that finds a
	// rollback waits for ever, others until a hold has lapsed.
	holdMax = 5 * time.Second
	// farEntries are in the last queue and due later than Belfry takes: imports set them aside,
	// rollbacks give them back.
	farEntries = 20
	farDelay   = 150 * 365 * 24 * time.Hour
	// longOf is of how many entries one is not due within the trial.
	longOf = 50
)

// trial is a trial of sequences.
type trial struct {
	*stage
	left atomic.Int64 // kills

	mu       sync.Mutex
	kills    map[string]int
	finished map[string]int // commands that came to their end
	hits     int            // kills that left something begun
	waited   int            // second commands that were there and did not have the hold
	overtook int            // first commands that lost the hold to it
	endings  map[string]int // of commands that ended with an error
}

func (tr *trial) count(what func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	what()
}

// trialQueue is a queue of a trial, and the programs that use it.
type trialQueue struct {
	*trial
	q     *queue
	steps *sequence

	offering, putting, taking atomic.Bool
	workers                   *traffic
	// paused says that an export was begun since the queue was resumed, interrupted that this export
	// did not end and none has come to its end since.
	paused, interrupted bool
}

// TestKillSequence has queues go through commands in any order, two at once as well, which are
// killed or left to end, while producers, workers and consumers of both sides go on and Redis is
// restarted, frozen and cut off. In the end every payload was delivered, and by one side only, but
// for what mirror/README.md excepts.
func TestKillSequence(t *testing.T) {
	t.Parallel()
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64()
	}
	t.Logf("-trial.seed %d", chosen)
	s := newStage(t, "always", killQueues, redistest.WithWrites())
	tr := &trial{stage: s, kills: map[string]int{}, finished: map[string]int{}, endings: map[string]int{}}
	tr.left.Store(int64(*kills))
	keeping, consuming := s.keepTime(), s.consume()
	trialQueues := make([]*trialQueue, len(s.queues))
	var running sync.WaitGroup
	for n, q := range s.queues {
		aside := n == len(s.queues)-1
		trialQueues[n] = &trialQueue{trial: tr, q: q,
			steps: &sequence{Rand: rand.New(rand.NewPCG(chosen, uint64(n))), aside: aside}}
		trialQueues[n].begin()
		running.Go(func() {
			for tr.left.Load() > 0 && !t.Failed() {
				trialQueues[n].step(t.Context(), trialQueues[n].steps.next())
			}
		})
	}
	all := make(chan struct{})
	go func() {
		running.Wait()
		close(all)
	}()
	s.shake(rand.New(rand.NewPCG(chosen, 1<<32)), all)
	for _, l := range trialQueues {
		running.Go(l.drain)
	}
	running.Wait()
	consuming.end()
	keeping.end()
	for _, l := range trialQueues {
		l.stayed()
	}
	s.wantEmpty("timer", "list", "aside")
	tr.print()
	p := newPast(s.queues)
	p.replay(s.redis.Writes())
	p.enter(s.ledger)
	t.Logf("%+v", s.ledger.close(t, *kills >= longTrial))
}

// begin starts the programs that use the queue.
func (l *trialQueue) begin() {
	if l.steps.aside {
		for range farEntries {
			n, payload := l.ledger.begin()
			if err := l.q.app.Offer(l.t.Context(), payload, time.Now().Add(farDelay)); err != nil {
				l.t.Fatal(err)
			}
			l.ledger.offered(n)
		}
	}
	l.putOne(l.q, 0) // makes the queue
	l.workers = l.work()
	l.offering.Store(true)
	l.stage.begin(1, func(ctx context.Context) {
		for ctx.Err() == nil {
			pause := time.Millisecond
			if l.offering.Load() {
				n, payload := l.ledger.begin()
				if l.q.app.Offer(l.t.Context(), payload, time.Now().Add(l.delay())) == nil {
					l.ledger.offered(n)
				} else {
					pause = offerAgain
				}
				if rand.IntN(longOf) == 0 {
					pause = rand.N(400 * time.Millisecond) // only then does an import look at the ready list
				}
			}
			waitFor(ctx, pause)
		}
	})
	l.stage.begin(1, func(ctx context.Context) {
		for ctx.Err() == nil {
			if l.putting.Load() {
				l.putOne(l.q, l.delay())
			}
			waitFor(ctx, 5*time.Millisecond)
		}
	})
	l.stage.begin(1, func(ctx context.Context) {
		for ctx.Err() == nil {
			if l.taking.Load() { // what it pops is judged by what Redis wrote
				_, _ = l.q.app.TakeAll(ctx)
				_, _, _ = l.q.app.Take(ctx, time.Second)
				continue
			}
			waitFor(ctx, lookPause)
		}
	})
}

// delay is longer in a long trial, so that there is more to carry to and fro. Some outlast every
// trial, and go to and fro as often as it does.
func (l *trialQueue) delay() time.Duration {
	switch {
	case rand.IntN(longOf) == 0:
		return longDelay
	case *kills >= longTrial:
		return 2 * soon()
	default:
		return soon()
	}
}

// work starts the workers of the queue.
func (l *trialQueue) work() *traffic {
	return l.stage.begin(workers, func(ctx context.Context) { l.q.app.Run(ctx) })
}

// step carries out a step.
func (l *trialQueue) step(ctx context.Context, st step) {
	if *kills >= longTrial {
		waitFor(ctx, st.idle)
	}
	if l.paused && !l.interrupted && st.resume {
		l.resume()
	}
	l.taking.Store(st.taking)
	l.putting.Store(st.putting)
	l.offering.Store(!st.quiet)
	switch {
	case st.quiet && l.workers != nil:
		l.workers.end()
		l.workers = nil
	case !st.quiet && l.workers == nil:
		l.workers = l.work()
	}
	before := l.fenceBefore(ctx, l.q)
	first := l.launch(st.attempt)
	defer first.signal(syscall.SIGKILL)
	if st.second == nil {
		l.end(ctx, st.attempt, first, before)
		return
	}
	l.beside(ctx, st, first, before)
}

// beside has a second command come while the first has the hold.
func (l *trialQueue) beside(ctx context.Context, st step, first *process, before string) {
	has := l.await(ctx, first, before, holdMax)
	held := l.fenceBefore(ctx, l.q)
	second := l.launch(*st.second)
	defer second.signal(syscall.SIGKILL)
	if st.frozen > 0 && has {
		_ = first.command.Process.Signal(syscall.SIGSTOP) // it may have ended
		waitFor(ctx, st.frozen)
		_ = first.command.Process.Signal(syscall.SIGCONT)
	}
	waitFor(ctx, st.beside)
	if st.secondFirst {
		l.kill(ctx, *st.second, second, false)
	}
	if has {
		l.together(ctx, st, first, second, held)
	}
	select {
	case <-first.ended:
		l.ended(st.attempt, first, has)
	default:
		l.kill(ctx, st.attempt, first, has)
	}
	if !st.secondFirst {
		l.end(ctx, *st.second, second, held)
	}
}

// together looks at two commands of which the first had the hold. If another has it now, the first
// has let go of it, or has stood still: it must not go on.
func (l *trialQueue) together(ctx context.Context, st step, first, second *process, held string) {
	if now := l.fence(ctx, l.q); now == held {
		if first.runs() && second.runs() && st.second.verb != "inspect" {
			l.count(func() { l.waited++ })
		}
		return
	} else if now == "" { // Redis does not answer
		return
	}
	for alarm := time.After(waitMax); first.runs() && !strings.Contains(first.said.String(), givenWay); {
		select {
		case <-first.ended:
		case <-time.After(lookPause):
		case <-alarm:
			l.t.Errorf("%s: %v goes on though another process has the hold:\n%s", l.q.name, st, first.tail())
			return
		}
	}
	if strings.Contains(first.said.String(), holdLost) {
		l.count(func() { l.overtook++ })
	}
}

// launch starts a command.
func (l *trialQueue) launch(a attempt) *process {
	verb, args := a.verb, a.args
	if verb == "follow" {
		verb, args = "import", append([]string{"--follow"}, args...)
	}
	if verb != "inspect" {
		args = append(slices.Clone(args), "--hold", "1s")
	}
	if verb == "export" || verb == "rollback" {
		l.paused = true
	}
	if verb == "inspect" {
		return l.run("mirror", verb, l.redis.URL()+"?client_name=belfry-mirror")
	}
	return l.run(l.mirrorArgs(l.q, verb, args...)...)
}

// await waits until a command has the hold, or has ended, or for some time.
func (l *trialQueue) await(ctx context.Context, p *process, before string, most time.Duration) (has bool) {
	tick := time.NewTicker(2 * fencePause)
	defer tick.Stop()
	alarm := time.NewTimer(most)
	defer alarm.Stop()
	for {
		select {
		case <-p.ended:
			return false
		case <-alarm.C:
			return false
		case <-tick.C:
			if now := l.fence(ctx, l.q); now != "" && now != before {
				return true
			}
		}
	}
}

// end kills a command when it should be, or waits for its end.
func (l *trialQueue) end(ctx context.Context, a attempt, p *process, before string) {
	most := holdMax
	if a.blind > 0 {
		most = a.blind
	}
	if a.verb == "finalize" || a.verb == "inspect" { // not all have the hold
		most = min(most, endMax)
	}
	alarm := time.NewTimer(0)
	has := l.await(ctx, p, before, most)
	if has {
		alarm.Reset(endMax)
		if a.after > 0 {
			alarm.Reset(a.after)
		}
	}
	defer alarm.Stop()
	select {
	case <-p.ended:
		l.ended(a, p, has)
	case <-alarm.C:
		l.kill(ctx, a, p, has)
	}
}

// kill kills a command and notes what it left.
func (l *trialQueue) kill(ctx context.Context, a attempt, p *process, has bool) {
	p.signal(syscall.SIGKILL)
	if p.err == nil || p.command.ProcessState.Exited() { // it came before
		l.ended(a, p, has)
		return
	}
	l.left.Add(-1)
	if a.verb == "export" || a.verb == "rollback" {
		l.interrupted = true
	}
	sizes, err := l.sizes(ctx, l.q)
	l.count(func() {
		l.kills[a.verb]++
		if err == nil && sizes["handover"]+sizes["ready claimed"]+sizes["returned"]+sizes["delivered"] > 0 {
			l.hits++
		}
	})
}

// ended notes that a command ended by itself, and may have had the hold.
func (l *trialQueue) ended(a attempt, p *process, has bool) {
	if a.verb == "export" || a.verb == "rollback" {
		l.interrupted = p.err != nil
	}
	if p.err == nil {
		l.count(func() { l.finished[a.verb]++ })
		return
	}
	text, known := ending(a.verb, p, has)
	if !known {
		l.t.Errorf("%s: %s%v ended with %q", l.q.name, a.verb, a.args, text)
	}
	l.count(func() { l.endings[a.verb+": "+text]++ })
}

// resume has the queue of Belfry handed out again.
func (l *trialQueue) resume() {
	if _, err := l.sdk.Admin().UpdateQueue(l.t.Context(), l.q.name,
		&admin.QueueSettings{Paused: new(false)}); err != nil {
		l.t.Errorf("resuming %s: %v", l.q.name, err)
		return
	}
	l.paused = false
}

// drain has one side deliver all that is left.
func (l *trialQueue) drain() {
	l.offering.Store(false)
	l.putting.Store(false)
	l.taking.Store(true)
	if l.workers == nil {
		l.workers = l.work()
	}
	toRedis := l.steps.IntN(2) == 0
	if toRedis || l.interrupted {
		l.finish("rollback", "--redisson-format", "new")
	}
	if !toRedis {
		l.resume()
		args := []string{"--ready"}
		if l.steps.aside {
			args = append(args, "--set-aside")
		}
		l.finish("import", args...)
	}
	l.stage.await(fmt.Sprintf("%s to be delivered", l.q.name), func(ctx context.Context) (bool, error) {
		ready := l.rdb.LLen(ctx, l.q.name)
		timer := l.rdb.ZCount(ctx, l.q.key("redisson_delay_queue_timeout"), "-inf",
			fmt.Sprint(time.Now().Add(longDelay/2).UnixMilli()))
		if err := errors.Join(ready.Err(), timer.Err()); err != nil || ready.Val()+timer.Val() > 0 {
			return false, err
		}
		return l.quiet(ctx, l.q)
	})
	l.workers.end()
}

// finish runs a command to its end.
func (l *trialQueue) finish(verb string, args ...string) {
	p := l.run(l.mirrorArgs(l.q, verb, append(args, "--codec", "bytes")...)...)
	<-p.ended
	if p.err != nil {
		l.t.Errorf("the last %s of %s ended with %v:\n%s", verb, l.q.name, p.err, p.tail())
	}
}

// stayed enters what never falls due, wherever it is, and checks that Redisson's list and timer
// agree.
func (l *trialQueue) stayed() {
	for _, key := range []string{"redisson_delay_queue_timeout", "belfry_aside"} {
		members, err := l.rdb.ZRange(l.t.Context(), l.q.key(key), 0, -1).Result()
		if err != nil {
			l.t.Error(err)
		}
		for _, member := range members {
			l.ledger.byRedis(member[payloadAt:])
		}
	}
	if sizes, err := l.sizes(l.t.Context(), l.q); err != nil || sizes["timer"] != sizes["list"] {
		l.t.Errorf("the list of %s has %d entries, the timer %d: %v", l.q.name, sizes["list"], sizes["timer"], err)
	}
	l.list(l.q)
}

// print says what the trial did, and fails if it was little.
func (tr *trial) print() {
	tr.t.Helper()
	tr.t.Logf("killed %v, %d of them in the middle of something; came to their end %v; %d waited for another, %d were "+
		"overtaken", tr.kills, tr.hits, tr.finished, tr.waited, tr.overtook)
	tr.t.Logf("ended with an error: %v", tr.endings)
	if *kills >= longTrial &&
		(tr.hits == 0 || tr.waited == 0 || tr.overtook == 0 || len(tr.kills) < 7 || tr.finished["finalize"] == 0 ||
			tr.finished["rollback"] == 0 || tr.finished["cutover"] == 0) {
		tr.t.Error("the trial shows little")
	}
}
