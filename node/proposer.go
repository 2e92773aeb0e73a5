package node

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/hashicorp/raft"
)

const (
	// requestBytesMax bounds one encoded request. The edge refuses far less; this keeps an entry within what log stores take.
	requestBytesMax = 16 << 20
	// entryCostMax bounds the work of one entry, for which the machine is locked: a few tens of milliseconds. A request that costs more alone has an entry alone.
	entryCostMax = 32 << 10
	// givingUp is how long it may take until what waits for an entry hears that its callers were given up.
	givingUp = 100 * time.Millisecond
	// entryFrameBytes is room for what an entry has around its requests: format, stamp, number and sum.
	entryFrameBytes = 32
	// bufferBytesKept is the size up to which the buffers of callers are used again.
	bufferBytesKept = 1 << 20
)

// proposal is one request on its way into the log.
type proposal struct {
	request *fsm.Request
	encoded []byte
	format  fsm.Format // in which it is encoded
	cost    uint64     // of the request, set by enqueue
	queued  time.Time
	came    fsm.Time // when a reservation could first have been had, had there been jobs; see shardCounters.granted
	claim   *claim   // of a reservation with an id; see claims
	taken   *ticket  // of shares, until it has landed; who withdraws it, or is refused, gives that back himself
	// complete is called once, unless the proposal was withdrawn.
	complete func(Reply, error)

	line       *line // in which it waits; this and the following are guarded by proposer.mu
	prev, next *proposal
	waiting    bool
}

// proposer turns concurrent requests of one shard into log entries: what has gathered by the time that an entry may be in
// flight goes into it, of each owner in the order of arrival; see lines. While one is in flight, only a full one follows it. There is no linger. Callers
// encode their own requests, so that putting an entry together is only copying.
type proposer struct {
	cfg Config
	// submit hands an entry to Raft, stamp gives its time; both are called from one goroutine at a time.
	submit func(l *leadership, entry []byte) (raft.ApplyFuture, error)
	stamp  func() fsm.Time
	// stamped is told of each batch after its entry was stamped; nil for nobody.
	stamped func(batch []*proposal)
	// births says which puts would make too many queues; nil for none.
	births *births
	// applied is told of each entry of this proposer that was applied, before its callers are.
	applied func(batch []*proposal, did *shardResult)
	// late is told that an entry was applied whose callers had been given up; their requests are theirs again.
	late  func()
	fatal func(error)
	stats *shardCounters

	wake  chan struct{}
	slots chan struct{} // one for each entry in flight
	owing atomic.Int32  // entries in flight whose callers were neither answered nor given up

	mu       sync.Mutex
	lines    lines
	requests int
	bytes    int64
	cost     uint64
	closed   error // why nothing is taken; nil while a leadership serves
}

// newProposer returns a proposer that takes nothing until run.
func newProposer(cfg Config, stats *shardCounters) *proposer {
	return &proposer{
		cfg: cfg, stats: stats, closed: ErrNoLeader, wake: make(chan struct{}, 1),
		slots: make(chan struct{}, cfg.EntriesInFlight),
	}
}

// open lets requests in.
func (p *proposer) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = nil
}

// close refuses new requests with err and answers those that wait with it.
func (p *proposer) close(err error) {
	p.mu.Lock()
	p.closed = err
	p.mu.Unlock()
	p.refuse(err)
}

// refuse answers everything that waits with err.
func (p *proposer) refuse(err error) {
	p.mu.Lock()
	var all []*proposal
	for p.requests > 0 {
		all = append(all, p.takeLocked(p.bytes, math.MaxUint64, false)...)
	}
	p.mu.Unlock()
	for _, pr := range all {
		pr.taken.leave()
		pr.complete(Reply{}, err)
	}
}

// enqueue adds a proposal. If it returns an error, complete will not be called.
func (p *proposer) enqueue(pr *proposal) error {
	size := int64(len(pr.encoded))
	if size > requestBytesMax {
		return fmt.Errorf("%w: %d bytes, %d are the most", ErrTooLarge, size, requestBytesMax)
	}
	pr.cost, pr.format = requestCost(pr.request), max(pr.format, fsm.FirstFormat) // who does not say wrote in the first
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	owner := ownerOf(pr.request)
	if !p.roomLocked(owner, size) {
		return ErrOverloaded
	}
	pr.queued = time.Now()
	p.lines.add(owner, pr)
	was := p.fullLocked()
	p.requests++
	p.bytes += size
	p.cost += pr.cost
	if p.requests == 1 || !was && p.fullLocked() {
		p.wakeUp()
	}
	return nil
}

// wakeUp has run look at what waits.
func (p *proposer) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fullLocked reports whether what waits fills an entry.
func (p *proposer) fullLocked() bool {
	return p.bytes >= int64(p.cfg.EntryBytesMax) || p.cost >= entryCostMax
}

// full is fullLocked.
func (p *proposer) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fullLocked()
}

// idle reports whether requests are taken, nothing waits to be logged and no entry is in flight: what was enqueued before is applied then.
func (p *proposer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed == nil && p.requests == 0 && len(p.slots) == 0
}

// withdraw takes a proposal back. It reports false if that is too late.
func (p *proposer) withdraw(pr *proposal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !pr.waiting {
		return false
	}
	p.unlinkLocked(pr)
	return true
}

func (p *proposer) unlinkLocked(pr *proposal) {
	p.lines.remove(pr)
	p.requests--
	p.bytes -= int64(len(pr.encoded))
	p.cost -= pr.cost
}

// requestCost returns about how many jobs a request may touch: a few bytes of it may ask for the work of a thousand puts.
func requestCost(req *fsm.Request) (cost uint64) {
	for _, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Reserve:
			cost += uint64(max(c.Max, 1))
		case *fsm.Purge, *fsm.Redrive, *fsm.DeleteQueue, *fsm.Expire:
			cost += fsm.StepMax
		case *fsm.Import:
			cost += uint64(len(c.Records)) + 1
		default:
			cost++
		}
	}
	return cost
}

func (p *proposer) take() []*proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeLocked(int64(p.cfg.EntryBytesMax), entryCostMax, p.crowdedLocked())
}

// waiting returns what is in the queue.
func (p *proposer) waiting() (requests int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.bytes
}

// run proposes for one leadership until ctx ends, and returns when the last of its entries is answered. The proposer must be closed by then.
func (p *proposer) run(ctx context.Context, l *leadership) {
	var flights sync.WaitGroup
	defer flights.Wait()
	for {
		if requests, _ := p.waiting(); requests == 0 {
			select {
			case <-p.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !p.slot(ctx) {
			return
		}
		batch := p.thin(p.take())
		if len(batch) == 0 {
			<-p.slots
			continue
		}
		f := p.propose(l, batch)
		if f == nil {
			p.land()
			continue
		}
		flights.Go(func() {
			p.await(f)
			p.land()
		})
	}
}

// thin answers those of a batch whose puts would make queues that their namespaces may not have, and returns the others.
func (p *proposer) thin(batch []*proposal) []*proposal {
	if p.births == nil || p.births.roomy(batch) {
		return batch
	}
	refused := p.births.look(batch)
	kept := batch[:0]
	for i, pr := range batch {
		err := refused[i]
		if err == nil {
			kept = append(kept, pr)
			continue
		}
		p.stats.failed(err, 1)
		pr.taken.leave()
		pr.complete(Reply{}, err)
	}
	return kept
}

// land gives the slot of an entry back.
func (p *proposer) land() {
	<-p.slots
	p.wakeUp()
}

// slot waits until an entry may be in flight. If none may for too long, what waits is refused. It reports false when ctx ends.
func (p *proposer) slot(ctx context.Context) bool {
	if p.free() {
		return true
	}
	patience := time.NewTimer(p.cfg.ProposeTimeout + givingUp)
	defer patience.Stop()
	for {
		select {
		case <-p.wake:
			if p.free() {
				return true
			}
		case <-patience.C:
			if p.free() {
				return true
			}
			p.refuse(fmt.Errorf("%w: no entry was applied for %v", ErrOverloaded, p.cfg.ProposeTimeout))
			patience.Reset(p.cfg.ProposeTimeout + givingUp)
		case <-ctx.Done():
			return false
		}
	}
}

// free takes the slot of an entry, if there is one. Beside another entry that may yet be answered only a full one has one: each costs
// every voter a sync and a round of messages.
func (p *proposer) free() bool {
	if p.owing.Load() > 0 && !p.full() {
		return false
	}
	select {
	case p.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// flight is one entry that was handed to Raft.
type flight struct {
	batch    []*proposal
	taken    []*ticket // of those in batch, who may be given up before it lands, and are used again
	entry    []byte
	future   raft.ApplyFuture
	start    time.Time
	deadline *time.Timer
	answered atomic.Bool // who sets it answers the batch

	cost  uint64   // of the batch
	read  bool     // makes was read; this and the following are for births
	makes []string // the queues that the entry makes if there are none of their names
}

// propose puts an entry together and hands it to Raft. It answers the batch itself, and returns nil, if Raft is not to have it.
func (p *proposer) propose(l *leadership, batch []*proposal) *flight {
	f := &flight{batch: batch, start: time.Now()}
	p.owing.Add(1)
	for _, pr := range batch {
		f.cost += pr.cost
		if pr.taken != nil {
			f.taken = append(f.taken, pr.taken)
		}
	}
	f.entry = p.encode(batch)
	future, err := p.submit(l, f.entry)
	if err != nil {
		leaveAll(f.taken)
		p.fail(f, err)
		return nil
	}
	f.future = future
	p.births.depart(f)
	// Raft's own timeout ends when it takes the entry; the future may stay open for ever, if a disk hangs for example.
	f.deadline = time.AfterFunc(p.cfg.ProposeTimeout, func() {
		p.fail(f, fmt.Errorf("%w: no outcome within %v", ErrUnknownOutcome, p.cfg.ProposeTimeout))
	})
	return f
}

// encode returns the entry of a batch. Its bytes stay as they are: recentLog keeps them.
func (p *proposer) encode(batch []*proposal) []byte {
	requests := make([][]byte, len(batch))
	size := entryFrameBytes
	for i, pr := range batch {
		requests[i] = pr.encoded
		size += len(pr.encoded)
	}
	entry := fsm.AppendEntryIn(make([]byte, 0, size), batch[0].format, p.stamp(), requests)
	if p.stamped != nil {
		p.stamped(batch)
	}
	return entry
}

// await waits for the end of a flight and answers its batch.
func (p *proposer) await(f *flight) {
	err := f.future.Error()
	f.deadline.Stop()
	leaveAll(f.taken) // it is applied, or never will be in this leadership
	p.births.arrive(f)
	if err != nil {
		p.fail(f, proposalError(err))
		return
	}
	out := f.future.Response().(*appliedEntry)
	if out.err != nil {
		p.fail(f, fmt.Errorf("%w: %w", ErrUnknownOutcome, out.err))
		return
	}
	if f.answered.CompareAndSwap(false, true) {
		p.answer(f, out)
		p.owing.Add(-1)
	} else {
		p.late()
	}
}

// answer gives each proposal of an applied entry its own part of the results.
func (p *proposer) answer(f *flight, out *appliedEntry) {
	value := out.value.(*shardResult)
	commands := 0
	for _, pr := range f.batch {
		commands += len(pr.request.Commands)
	}
	if commands != len(value.results) {
		err := fmt.Errorf("entry %d has %d commands, but the machine gave %d results", out.index, commands, len(value.results))
		p.fatal(err)
		p.complete(f, fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
		return
	}
	p.applied(f.batch, value)
	p.stats.entryApplied(f, commands, time.Now())
	at := 0
	for _, pr := range f.batch {
		end := at + len(pr.request.Commands)
		pr.complete(Reply{
			Witness: Witness{Shard: p.stats.shard, Term: out.term, Index: out.index, Entry: uint32(at), Time: value.clock},
			Results: value.results[at:end:end],
		}, nil)
		at = end
	}
}

// fail answers a batch with an error, unless it is answered already.
func (p *proposer) fail(f *flight, err error) {
	if f.answered.CompareAndSwap(false, true) {
		p.owing.Add(-1)
		p.wakeUp() // its slot may be taken for ever
		p.complete(f, err)
	}
}

// complete answers a batch with an error.
func (p *proposer) complete(f *flight, err error) {
	p.stats.failed(err, len(f.batch))
	for _, pr := range f.batch {
		pr.complete(Reply{}, err)
	}
}
