package sim

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

const (
	// epoch is where true time begins, on a whole second so that traces are easy to read.
	epoch = fsm.Time(1_767_225_600_000_000_000)
	// nodesMax is how many nodes there are; each has a replica of every shard.
	nodesMax = 3
	// shardsMax is how many shards a world has at most.
	shardsMax = 3
	// grace is what a new leader adds to leases, as package node does: twice the clock bound.
	grace = 500 * time.Millisecond
)

// world is all there is of a seed: true time, nodes with clocks, shards with logs, clients, and the
// books of the judge.
type world struct {
	trace
	cfg  Config
	seed uint64
	r    *rand.Rand

	format fsm.Format // of all entries

	now   fsm.Time      // true time
	skew  time.Duration // no clock is further from true time
	ahead [nodesMax]time.Duration

	shards []*shard
	queues []*queue
	keyed  []*queue // with keys and schedules; nil if the format has none
	crowd  crowd
	ledger *ledger
	wrong  *mistakes

	step      int
	restoring *bufio.Reader // large enough for machine.Restore to use it
	tally     tally.Tally
	violation *Violation
}

func newWorld(seed uint64, cfg Config) *world {
	w := &world{
		trace: trace{hash: seed, text: cfg.Trace}, cfg: cfg, seed: seed, r: rand.New(rand.NewPCG(seed, 0x51b)), now: epoch,
		wrong:  &mistakes{},
		format: fsm.FirstFormat,
	}
	if seed%2 == 0 {
		w.format = fsm.LatestFormat
	}
	if cfg.mistakes != nil {
		w.wrong = cfg.mistakes()
	}
	w.tally[tally.Seeds] = 1
	w.skew = pick(w.r, 0, 5*time.Millisecond, 125*time.Millisecond, 125*time.Millisecond, 2*time.Second)
	w.ledger = newLedger(w)
	w.crowd.w = w
	for i := range pick(w.r, 1, 1, 1, 1, 1, 2, 2, 2, shardsMax, shardsMax) {
		w.shards = append(w.shards, newShard(w, i))
	}
	for node := range w.ahead {
		w.stepClock(node)
	}
	w.queues = newQueues(w)
	if w.format >= fsm.KeysFormat {
		w.keyed = newKeyedQueues(w)
	}
	return w
}

// snapshotReader returns a reader of a snapshot. Its buffer is used again, since it is larger than
// all that there is in a world.
func (w *world) snapshotReader(data []byte) io.Reader {
	if w.restoring == nil {
		w.restoring = bufio.NewReaderSize(nil, 256<<10)
	}
	w.restoring.Reset(bytes.NewReader(data))
	return w.restoring
}

// pick returns one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// chance is true in percent of the calls.
func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

// violated notes the first broken rule. Times are told as they are since the epoch.
func (w *world) violated(rule, format string, args ...any) {
	if w.violation != nil {
		return
	}
	for i, arg := range args {
		if t, ok := arg.(fsm.Time); ok {
			args[i] = since(t)
		}
	}
	w.violation = &Violation{Rule: rule, Text: fmt.Sprintf(format, args...), Step: w.step}
	w.tally[tally.Violations]++
	w.mark(rule)
	if w.told() {
		w.say("VIOLATION %s: %s", rule, w.violation.Text)
	}
}

// clock is what a node takes for the time.
func (w *world) clock(node int) fsm.Time { return w.now + fsm.Time(w.ahead[node]) }

// stepClock sets a node's clock anew, ahead of true time or behind it.
func (w *world) stepClock(node int) {
	w.ahead[node] = 0
	if w.skew > 0 {
		w.ahead[node] = time.Duration(w.r.Int64N(2*int64(w.skew)+1)) - w.skew
	}
	w.mark("clock", uint64(node), uint64(w.ahead[node]))
	if w.told() {
		w.say("the clock of node %d is %v ahead", node, w.ahead[node])
	}
}

// live lets things happen, then heals the world, drains it, and closes the books.
func (w *world) live() {
	for _, s := range w.shards {
		s.elect(w.r.IntN(nodesMax), 0)
	}
	w.furnish()
	for w.step = 1; w.step <= w.cfg.Steps && w.violation == nil; w.step++ {
		w.pass()
		w.happen()
	}
	if w.violation == nil {
		w.drain()
	}
	if w.violation == nil {
		w.close()
	}
}

// happen lets one thing happen.
func (w *world) happen() {
	s := pick(w.r, w.shards...)
	switch n := w.r.IntN(1000); {
	case n < 520:
		w.crowd.act()
	case n < 640:
		s.propose()
	case n < 820:
		s.commit()
	case n < 890:
		s.follow(w.r.IntN(nodesMax), 1+w.r.IntN(8))
	case n < 910:
		s.depose()
	case n < 920:
		s.replicas[w.r.IntN(nodesMax)].snapshot()
	case n < 930:
		s.restart(w.r.IntN(nodesMax))
	case n < 936:
		s.install(w.r.IntN(nodesMax))
	case n < 946:
		w.tally[tally.ClockSteps]++
		w.stepClock(w.r.IntN(nodesMax))
	case n < 976:
		s.proposeExpire()
	case n < 984:
		s.swap()
	default:
		s.audit()
	}
	if w.chance(45) {
		s.propose()
	}
	if w.chance(35) {
		s.commit()
	}
	if w.keyed != nil && w.chance(30) {
		s.proposeFirings()
	}
}

// pass moves true time: often not at all, often to where something is due or a nanosecond beside
// it.
func (w *world) pass() {
	before := w.now
	switch n := w.r.IntN(100); {
	case n < 45:
	case n < 62:
		s := pick(w.r, w.shards...)
		if t, ok := s.wakeTime(); ok && s.leader >= 0 && t < epoch.Add(1000*time.Hour) {
			w.now = max(w.now, t-fsm.Time(w.ahead[s.leader])+fsm.Time(w.r.IntN(3)-1))
		}
	case n < 97:
		w.now += fsm.Time(pick(w.r, 1, 700*time.Microsecond, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond,
			time.Second, 3*time.Second))
	case n < 99:
		w.now += fsm.Time(w.r.Int64N(int64(2 * time.Minute)))
	default:
		w.now += fsm.Time(w.r.Int64N(int64(15 * time.Minute)))
	}
	if w.now != before {
		w.mark("now", uint64(w.now))
		if w.told() {
			w.say("it is %v", w.now.Sub(epoch))
		}
	}
}
