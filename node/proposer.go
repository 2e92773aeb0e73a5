package node

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/wakeup"
	"github.com/hashicorp/raft"
)

const (
	// requestBytesMax bounds one encoded request. The API refuses far smaller ones; this keeps an entry within what log
	// stores accept.
	requestBytesMax = 16 << 20
	// entryCostMax bounds the work of one entry, during which the machine is locked: a few tens of milliseconds. A
	// request that costs more gets an entry of its own.
	entryCostMax = 32 << 10
	// giveUpMargin is how much longer than ProposeTimeout waiting requests wait for a slot, so that the entry ahead of
	// them has failed first.
	giveUpMargin = 100 * time.Millisecond
	// entryFrameBytes is room for the frame of an entry: format, timestamp, request count and checksum.
	entryFrameBytes = 32
	// bufferBytesKept is the largest buffer that is kept for reuse.
	bufferBytesKept = 1 << 20
)

// proposal is one request on its way into the log.
type proposal struct {
	request      *fsm.Request
	encoded      []byte
	format       fsm.Format // of encoded
	cost         uint64     // of the request, set by enqueue
	queued       time.Time
	came         fsm.Time           // when a reservation could first have been granted; see shardCounters.granted
	pendingGrant *pendingGrant      // of a Reserve with an id
	reservation  *admit.Reservation // quota for this proposal; released on completion, refusal or withdrawal
	// complete is called once, unless the proposal was withdrawn.
	complete func(Reply, error)

	tenantQueue *tenantQueue // that it waits in; this and the following are guarded by proposer.mu
	prev, next  *proposal
	waiting     bool
}

// queueLimit refuses puts that would create too many queues. One goroutine at a time calls it.
type queueLimit interface {
	// Near reports whether requests of a cost must be checked.
	Near(cost uint64) bool
	// Check returns an error for each refused request of a batch, keyed by its position in the batch.
	Check(batch []*fsm.Request) (refused map[int]error)
	// Proposed counts an entry that was handed to Raft until done is called. It may keep the entry.
	Proposed(entry []byte, cost uint64) (done func())
}

// requestsOf returns the requests of a batch.
func requestsOf(batch []*proposal) iter.Seq[*fsm.Request] {
	return func(yield func(*fsm.Request) bool) {
		for _, pr := range batch {
			if !yield(pr.request) {
				return
			}
		}
	}
}

// proposer batches concurrent requests of one shard into log entries. As soon as a slot for an entry is free, the
// requests that wait go into one entry; fairQueue gives their order. While an entry is in flight, only a full one
// follows it. The proposer never waits for a batch to fill. Callers encode their own requests, so that building an
// entry is only copying.
type proposer struct {
	cfg Config
	// submit hands an entry to Raft, stamp returns its timestamp. One goroutine at a time calls them.
	submit func(l *leadership, entry []byte) (raft.ApplyFuture, error)
	stamp  func() fsm.Time
	// stamped is called with each batch after its entry was stamped; may be nil.
	stamped func(batch []*proposal)
	// queueLimit refuses puts that would create too many queues; nil for no limit.
	queueLimit queueLimit
	// applied is called with each applied entry of this proposer, before its callers are answered.
	applied func(batch []*proposal, did *shardResult)
	// answeredLate is called when an entry was applied after its callers had been given up.
	answeredLate func()
	fatal        func(error)
	stats        *shardCounters

	wake       wakeup.Signal
	slots      chan struct{} // one for each entry in flight
	unanswered atomic.Int32  // entries in flight whose callers were neither answered nor given up

	mu       sync.Mutex
	queue    fairQueue
	requests int
	bytes    int64
	cost     uint64
	closed   error // refuses all requests; nil while a leadership serves
}

// newProposer returns a closed proposer.
func newProposer(cfg Config, stats *shardCounters) *proposer {
	return &proposer{
		cfg: cfg, stats: stats, closed: outcome.ErrNoLeader, wake: wakeup.New(),
		slots: make(chan struct{}, cfg.EntriesInFlight),
	}
}

// open accepts requests.
func (p *proposer) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = nil
}

// close fails new requests and those that wait with err.
func (p *proposer) close(err error) {
	p.mu.Lock()
	p.closed = err
	p.mu.Unlock()
	p.refuse(err)
}

// refuse fails all waiting requests with err.
func (p *proposer) refuse(err error) {
	p.mu.Lock()
	var all []*proposal
	for p.requests > 0 {
		all = append(all, p.takeLocked(p.bytes, math.MaxUint64, false)...)
	}
	p.mu.Unlock()
	for _, pr := range all {
		pr.reservation.Release()
		pr.complete(Reply{}, err)
	}
}

// enqueue adds a proposal. If it returns an error, complete will not be called.
func (p *proposer) enqueue(pr *proposal) error {
	size := int64(len(pr.encoded))
	if size > requestBytesMax {
		return fmt.Errorf("%w: %d bytes, %d are the most", outcome.ErrTooLarge, size, requestBytesMax)
	}
	pr.cost, pr.format = requestCost(pr.request), max(pr.format, fsm.FirstFormat) // the first format, unless the caller set one
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	tenant := tenantOf(pr.request)
	if !p.hasRoomLocked(tenant, size) {
		return outcome.ErrOverloaded
	}
	pr.queued = time.Now()
	p.queue.add(tenant, pr)
	was := p.fullLocked()
	p.requests++
	p.bytes += size
	p.cost += pr.cost
	if p.requests == 1 || !was && p.fullLocked() {
		p.wake.Send()
	}
	return nil
}

// fullLocked reports whether the waiting requests fill an entry.
func (p *proposer) fullLocked() bool {
	return p.bytes >= int64(p.cfg.EntryBytesMax) || p.cost >= entryCostMax
}

// full is fullLocked under the lock.
func (p *proposer) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fullLocked()
}

// idle reports whether the proposer is open, no request waits and no entry is in flight. All earlier requests are
// applied then.
func (p *proposer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed == nil && p.requests == 0 && len(p.slots) == 0
}

// withdraw removes a waiting proposal. It returns false if the proposal is in an entry already.
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
	p.queue.remove(pr)
	p.requests--
	p.bytes -= int64(len(pr.encoded))
	p.cost -= pr.cost
}

// requestCost returns about how many jobs a request may touch: a request of a few bytes may cost as much as a thousand
// puts.
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
	return p.takeLocked(int64(p.cfg.EntryBytesMax), entryCostMax, p.contendedLocked())
}

// waiting returns the size of the queue.
func (p *proposer) waiting() (requests int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.bytes
}

// run proposes for one leadership until ctx ends, and returns after its last entry is answered. The proposer must be
// closed before ctx ends.
func (p *proposer) run(ctx context.Context, l *leadership) {
	var entries sync.WaitGroup
	defer entries.Wait()
	for {
		if requests, _ := p.waiting(); requests == 0 {
			select {
			case <-p.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !p.waitForSlot(ctx) {
			return
		}
		batch := p.refuseOverLimit(p.take())
		if len(batch) == 0 {
			<-p.slots
			continue
		}
		f := p.propose(l, batch)
		if f == nil {
			p.releaseSlot()
			continue
		}
		entries.Go(func() {
			p.awaitEntry(f)
			p.releaseSlot()
		})
	}
}

// refuseOverLimit fails the proposals of a batch whose puts would create queues beyond their namespace's limit, and
// returns the others.
func (p *proposer) refuseOverLimit(batch []*proposal) []*proposal {
	var cost uint64
	for _, pr := range batch {
		cost += pr.cost
	}
	if p.queueLimit == nil || !p.queueLimit.Near(cost) {
		return batch
	}
	refused := p.queueLimit.Check(slices.Collect(requestsOf(batch)))
	kept := batch[:0]
	for i, pr := range batch {
		err := refused[i]
		if err == nil {
			kept = append(kept, pr)
			continue
		}
		p.stats.failed(err, 1)
		pr.reservation.Release()
		pr.complete(Reply{}, err)
	}
	return kept
}

// releaseSlot releases the slot of an entry.
func (p *proposer) releaseSlot() {
	<-p.slots
	p.wake.Send()
}

// waitForSlot waits for a free slot and acquires it. If none becomes free in time, it fails all waiting requests. It
// returns false when ctx ends.
func (p *proposer) waitForSlot(ctx context.Context) bool {
	if p.tryAcquireSlot() {
		return true
	}
	timeout := time.NewTimer(p.cfg.ProposeTimeout + giveUpMargin)
	defer timeout.Stop()
	for {
		select {
		case <-p.wake:
			if p.tryAcquireSlot() {
				return true
			}
		case <-timeout.C:
			if p.tryAcquireSlot() {
				return true
			}
			p.refuse(fmt.Errorf("%w: no entry was applied for %v", outcome.ErrOverloaded, p.cfg.ProposeTimeout))
			timeout.Reset(p.cfg.ProposeTimeout + giveUpMargin)
		case <-ctx.Done():
			return false
		}
	}
}

// tryAcquireSlot acquires a slot if one is free. While another entry is unanswered, only a full entry gets a slot:
// each entry costs every voter a sync and a round of messages.
func (p *proposer) tryAcquireSlot() bool {
	if p.unanswered.Load() > 0 && !p.full() {
		return false
	}
	select {
	case p.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// inflightEntry is one entry that was handed to Raft.
type inflightEntry struct {
	batch        []*proposal
	reservations []*admit.Reservation // of the batch; its callers may be given up and reuse their proposals earlier
	entry        []byte
	future       raft.ApplyFuture
	start        time.Time
	deadline     *time.Timer
	answered     atomic.Bool // the goroutine that sets it answers the batch

	cost    uint64 // of the batch
	uncount func() // ends the count of the entry in queueLimit; may be nil
}

// propose builds an entry and hands it to Raft. If that fails, it fails the batch and returns nil.
func (p *proposer) propose(l *leadership, batch []*proposal) *inflightEntry {
	f := &inflightEntry{batch: batch, start: time.Now()}
	p.unanswered.Add(1)
	for _, pr := range batch {
		f.cost += pr.cost
		if pr.reservation != nil {
			f.reservations = append(f.reservations, pr.reservation)
		}
	}
	f.entry = p.encode(batch)
	future, err := p.submit(l, f.entry)
	if err != nil {
		admit.ReleaseAll(f.reservations)
		p.failOnce(f, err)
		return nil
	}
	f.future = future
	if p.queueLimit != nil {
		f.uncount = p.queueLimit.Proposed(f.entry, f.cost)
	}
	// Raft's own timeout covers enqueueing only; the future may stay open for ever, for example if a disk hangs.
	f.deadline = time.AfterFunc(p.cfg.ProposeTimeout, func() {
		p.failOnce(f, fmt.Errorf("%w: no outcome within %v", outcome.ErrUnknownOutcome, p.cfg.ProposeTimeout))
	})
	return f
}

// encode returns the entry of a batch. Its bytes must not change: recentLog keeps them.
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

// awaitEntry waits for the outcome of an entry and answers its batch.
func (p *proposer) awaitEntry(f *inflightEntry) {
	err := f.future.Error()
	f.deadline.Stop()
	admit.ReleaseAll(f.reservations) // applied, or never will be in this leadership
	if f.uncount != nil {
		f.uncount()
	}
	if err != nil {
		p.failOnce(f, proposalError(err))
		return
	}
	out := f.future.Response().(*appliedEntry)
	if out.err != nil {
		p.failOnce(f, fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, out.err))
		return
	}
	if f.answered.CompareAndSwap(false, true) {
		p.completeWithResults(f, out)
		p.unanswered.Add(-1)
	} else {
		p.answeredLate()
	}
}

// completeWithResults answers each proposal of an applied entry with its part of the results.
func (p *proposer) completeWithResults(f *inflightEntry, out *appliedEntry) {
	value := out.value.(*shardResult)
	commands := 0
	for _, pr := range f.batch {
		commands += len(pr.request.Commands)
	}
	if commands != len(value.results) {
		err := fmt.Errorf("entry %d has %d commands, but the machine gave %d results", out.index, commands, len(value.results))
		p.fatal(err)
		p.completeWithError(f, fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, err))
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

// failOnce answers a batch with an error, unless it was answered before.
func (p *proposer) failOnce(f *inflightEntry, err error) {
	if f.answered.CompareAndSwap(false, true) {
		p.unanswered.Add(-1)
		p.wake.Send() // its slot may stay occupied for ever
		p.completeWithError(f, err)
	}
}

// completeWithError answers a batch with an error.
func (p *proposer) completeWithError(f *inflightEntry, err error) {
	p.stats.failed(err, len(f.batch))
	for _, pr := range f.batch {
		pr.complete(Reply{}, err)
	}
}
