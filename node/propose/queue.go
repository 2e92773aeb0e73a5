// Package propose puts the requests of a shard into log entries: a fair queue that coalesces them,
// and the pacer that proposes an Expire for overdue work. It knows neither Raft nor the shard. See
// DESIGN.md beside this file.
package propose

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
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/wakeup"
)

const (
	// RequestBytesMax bounds one encoded request. The API refuses far smaller ones; this keeps an
	// entry within what log stores accept.
	RequestBytesMax = 16 << 20
	// entryCostMax bounds the work of one entry, during which the machine is locked: a few tens of
	// milliseconds. That is so many jobs touched, or 4 MiB of bodies copied for schedules. A request that
	// costs more gets an entry of its own.
	entryCostMax = 32 << 10
	// costBytes is how many copied bytes cost as much as a job that is touched.
	costBytes = 128
	// giveUpMargin is how much longer than ProposeTimeout waiting requests wait for a slot, so that
	// the entry ahead of them has failed first.
	giveUpMargin = 100 * time.Millisecond
	// entryFrameBytes is room for the frame of an entry: format, timestamp, request count and
	// checksum.
	entryFrameBytes = 32
)

// Witness says where in a shard's history a request took effect, or which state a read saw.
type Witness struct {
	Shard uint32
	Term  uint64
	Index uint64
	// Entry is the position of the request's first command among the commands of the log entry; 0 for
	// a read.
	Entry uint32
	// Time is the shard's clock as of the entry.
	Time fsm.Time
}

// Reply is the answer to a request. Results[i] belongs to the request's command i, whose witness
// has Entry Witness.Entry+i. The zero Witness means that nothing was logged.
type Reply struct {
	Witness Witness
	Results []fsm.Result
	// Jobs are the granted jobs in the order of the grants, as fsm.HeldQuery answers them. Only
	// Reserve sets it. It leaves out jobs that are no longer held when they are read, because the
	// lease was short or a repeat of the call has finished the job.
	Jobs []fsm.Job
}

// Granted reports whether a command of the request was granted jobs.
func (r *Reply) Granted() bool {
	return slices.ContainsFunc(r.Results, func(result fsm.Result) bool { return len(result.Grants) > 0 })
}

// Proposal is one request on its way into the log. Its caller sets the exported fields and must not
// change them, nor what they point to, until Complete was called or Withdraw has returned true.
type Proposal struct {
	// Encoded is Request in Format. The zero format is the first one.
	Request *fsm.Request
	Encoded []byte
	Format  fsm.Format
	// Copies is how many bytes of bodies the machine copies for the request that are not in Encoded.
	Copies uint64
	// Came is when a reservation could first have been granted: the lateness of its grants begins
	// there.
	Came fsm.Time
	// Reservation is quota for this proposal; nil for none. The queue releases it, unless Enqueue
	// fails or Withdraw returns true.
	Reservation *admit.Reservation
	// Complete is called once, from any goroutine, unless Enqueue fails or Withdraw returns true.
	Complete func(Reply, error)

	cost   uint64 // of the request, set by Enqueue
	queued time.Time

	tenantQueue *tenantQueue // that it waits in; this and the following are guarded by Queue.mu
	prev, next  *Proposal
	waiting     bool
}

// Limit refuses puts that would create too many queues. One goroutine at a time calls it.
type Limit interface {
	// Near reports whether requests of a cost must be checked.
	Near(cost uint64) bool
	// Check returns an error for each refused request of a batch, keyed by its position in the batch.
	Check(batch []*fsm.Request) (refused map[int]error)
	// Proposed counts an entry that was handed to Raft until done is called. It may keep the entry.
	Proposed(entry []byte, cost uint64) (done func())
}

// Requests returns the requests of a batch.
func Requests(batch []*Proposal) iter.Seq[*fsm.Request] {
	return func(yield func(*fsm.Request) bool) {
		for _, pr := range batch {
			if !yield(pr.Request) {
				return
			}
		}
	}
}

// Queue batches concurrent requests of one shard into log entries. As soon as a slot for an entry
// is free, the requests that wait go into one entry; fairQueue gives their order. While an entry is
// in flight, only a full one follows it. The queue never waits for a batch to fill. Callers encode
// their own requests, so that building an entry is only copying.
type Queue struct {
	cfg   Config
	stats counters

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

// Config is what the queue of a shard gets from its surroundings.
type Config struct {
	Shard uint32
	// QueueRequestsMax and QueueBytesMax bound the requests that wait. EntryBytesMax is the size at
	// which an entry takes no further request. EntriesInFlight is the number of entries that may be
	// proposed and not applied yet. ProposeTimeout is how long callers wait for the outcome of an
	// entry.
	QueueRequestsMax int
	QueueBytesMax    int64
	EntryBytesMax    int
	EntriesInFlight  int
	ProposeTimeout   time.Duration

	// Stamp returns the timestamp of the next entry. Stamped is called with each batch after its entry
	// has its timestamp; it may be nil. One goroutine at a time calls them.
	Stamp   func() fsm.Time
	Stamped func(batch []*Proposal)
	// Limit refuses puts that would create too many queues; nil for no limit.
	Limit Limit
	// Applied is called with each applied entry of this queue, before its callers are answered.
	Applied func(batch []*Proposal, did *Applied)
	// AnsweredLate is called when an entry was applied after its callers had been given up.
	AnsweredLate func()
	// Failed is called with the error of requests that were taken and not applied.
	Failed func(err error, requests int)
	// Fatal ends the process because the machine and the queue disagree about an entry.
	Fatal func(error)
}

// Submit hands an entry to Raft in one leadership. It returns an error if the entry will never be
// logged.
type Submit func(entry []byte) (Future, error)

// Future is the outcome of an entry that was handed to Raft.
type Future interface {
	// Wait returns what the entry did, once it is applied here, or an error with its outcome. It may
	// never return.
	Wait() (*Applied, error)
}

// Applied is what an entry did when it was applied.
type Applied struct {
	Term, Index uint64
	// Results are those of all commands of the entry, Endings the jobs that it ended.
	Results []fsm.Result
	Endings []fsm.Ending
	// Clock is the shard's time after the entry.
	Clock fsm.Time
}

// counters count what a queue has had applied.
type counters struct {
	requests, entries, commands atomic.Uint64
	entryCommands, entryBytes   *histogram.Histogram
	propose, commit             *histogram.Histogram
}

// Stats are the figures of a Queue.
type Stats struct {
	// Requests, Entries and Commands count those that were proposed and applied.
	Requests, Entries, Commands uint64
	// EntryCommands and EntryBytes are the sizes of those entries.
	EntryCommands, EntryBytes histogram.Values
	// ProposeSeconds runs from the moment a request is queued to its answer, CommitSeconds from the
	// proposal of an entry to its application.
	ProposeSeconds, CommitSeconds histogram.Values
	// QueuedRequests and QueuedBytes wait to be logged. InFlight counts entries that are proposed and
	// not applied.
	QueuedRequests, InFlight int
	QueuedBytes              int64
}

// New returns a closed queue.
func New(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, closed: outcome.ErrNoLeader, wake: wakeup.New(), slots: make(chan struct{}, cfg.EntriesInFlight),
		stats: counters{
			entryCommands: histogram.Doubling(1, 15), entryBytes: histogram.Doubling(128, 15),
			propose: histogram.Seconds(), commit: histogram.Seconds(),
		},
	}
}

// Stats returns what the queue has done and what waits.
func (p *Queue) Stats() Stats {
	c := &p.stats
	st := Stats{
		Requests: c.requests.Load(), Entries: c.entries.Load(), Commands: c.commands.Load(),
		EntryCommands: c.entryCommands.Value(), EntryBytes: c.entryBytes.Value(),
		ProposeSeconds: c.propose.Value(), CommitSeconds: c.commit.Value(), InFlight: p.InFlight(),
	}
	st.QueuedRequests, st.QueuedBytes = p.Waiting()
	return st
}

// InFlight returns the number of entries that are proposed and not applied.
func (p *Queue) InFlight() int { return len(p.slots) }

// entryApplied counts an entry that was applied.
func (c *counters) entryApplied(f *inflightEntry, commands int, now time.Time) {
	c.entries.Add(1)
	c.commands.Add(uint64(commands))
	c.requests.Add(uint64(len(f.batch)))
	c.entryCommands.Add(float64(commands))
	c.entryBytes.Add(float64(len(f.entry)))
	c.commit.Observe(now.Sub(f.start))
	seconds := make([]float64, len(f.batch))
	for i, pr := range f.batch {
		seconds[i] = now.Sub(pr.queued).Seconds()
	}
	c.propose.Add(seconds...)
}

// Open accepts requests.
func (p *Queue) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = nil
}

// Close fails new requests and those that wait with err.
func (p *Queue) Close(err error) {
	p.mu.Lock()
	p.closed = err
	p.mu.Unlock()
	p.refuse(err)
}

// refuse fails all waiting requests with err.
func (p *Queue) refuse(err error) {
	p.mu.Lock()
	var all []*Proposal
	for p.requests > 0 {
		all = append(all, p.takeLocked(p.bytes, math.MaxUint64, false)...)
	}
	p.mu.Unlock()
	for _, pr := range all {
		pr.Reservation.Release()
		pr.Complete(Reply{}, err)
	}
}

// Enqueue adds a proposal. If it returns an error, complete will not be called.
func (p *Queue) Enqueue(pr *Proposal) error {
	size := int64(len(pr.Encoded))
	if size > RequestBytesMax {
		return fmt.Errorf("%w: %d bytes, %d are the most", outcome.ErrTooLarge, size, RequestBytesMax)
	}
	// the first format, unless the caller set one
	pr.cost, pr.Format = requestCost(pr.Request)+pr.Copies/costBytes, max(pr.Format, fsm.FirstFormat)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return p.closed
	}
	tenant := TenantOf(pr.Request)
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
func (p *Queue) fullLocked() bool {
	return p.bytes >= int64(p.cfg.EntryBytesMax) || p.cost >= entryCostMax
}

// full is fullLocked under the lock.
func (p *Queue) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fullLocked()
}

// Idle reports whether the queue is open, no request waits and no entry is in flight. All earlier
// requests are applied then.
func (p *Queue) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed == nil && p.requests == 0 && len(p.slots) == 0
}

// Withdraw removes a waiting proposal. It returns false if the proposal is in an entry already.
func (p *Queue) Withdraw(pr *Proposal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !pr.waiting {
		return false
	}
	p.unlinkLocked(pr)
	return true
}

func (p *Queue) unlinkLocked(pr *Proposal) {
	p.queue.remove(pr)
	p.requests--
	p.bytes -= int64(len(pr.Encoded))
	p.cost -= pr.cost
}

// requestCost returns about how many jobs a request may touch: a request of a few bytes may cost as
// much as a thousand puts.
func requestCost(req *fsm.Request) (cost uint64) {
	for _, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Reserve:
			cost += uint64(max(c.Max, 1))
		case *fsm.Purge, *fsm.PurgeKey, *fsm.Redrive, *fsm.DeleteQueue, *fsm.Expire:
			cost += fsm.StepMax
		case *fsm.Kick:
			cost += kickCost(c)
		case *fsm.RunSchedule:
			cost += uint64(len(c.Times)) + 1
		case *fsm.Import:
			cost += uint64(len(c.Records)) + 1
		default:
			cost++
		}
	}
	return cost
}

// kickCost is the cost of a Kick: how many jobs it may touch.
func kickCost(c *fsm.Kick) uint64 {
	switch {
	case c.Serial != 0:
		return 1
	case c.Max == 0:
		return fsm.StepMax
	default:
		return uint64(min(c.Max, fsm.StepMax))
	}
}

func (p *Queue) take() []*Proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.takeLocked(int64(p.cfg.EntryBytesMax), entryCostMax, p.contendedLocked())
}

// Waiting returns the size of the queue.
func (p *Queue) Waiting() (requests int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.bytes
}

// Run proposes for one leadership, with submit, until ctx ends, and returns after its last entry is
// answered. The queue must be closed before ctx ends.
func (p *Queue) Run(ctx context.Context, submit Submit) {
	var entries sync.WaitGroup
	defer entries.Wait()
	for {
		if requests, _ := p.Waiting(); requests == 0 {
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
		f := p.propose(submit, batch)
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

// refuseOverLimit fails the proposals of a batch whose puts would create queues beyond their
// namespace's limit, and returns the others.
func (p *Queue) refuseOverLimit(batch []*Proposal) []*Proposal {
	var cost uint64
	for _, pr := range batch {
		cost += pr.cost
	}
	if p.cfg.Limit == nil || !p.cfg.Limit.Near(cost) {
		return batch
	}
	refused := p.cfg.Limit.Check(slices.Collect(Requests(batch)))
	kept := batch[:0]
	for i, pr := range batch {
		err := refused[i]
		if err == nil {
			kept = append(kept, pr)
			continue
		}
		p.cfg.Failed(err, 1)
		pr.Reservation.Release()
		pr.Complete(Reply{}, err)
	}
	return kept
}

// Hold occupies the slots of all entries until release is called, so that what is enqueued gathers.
// It waits for the entries in flight. It is for tests.
func (p *Queue) Hold() (release func()) {
	for range cap(p.slots) {
		p.slots <- struct{}{}
	}
	return func() {
		for range cap(p.slots) {
			p.releaseSlot()
		}
	}
}

// releaseSlot releases the slot of an entry.
func (p *Queue) releaseSlot() {
	<-p.slots
	p.wake.Send()
}

// waitForSlot waits for a free slot and acquires it. If none becomes free in time, it fails all
// waiting requests. It returns false when ctx ends.
func (p *Queue) waitForSlot(ctx context.Context) bool {
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

// tryAcquireSlot acquires a slot if one is free. While another entry is unanswered, only a full
// entry gets a slot: each entry costs every voter a sync and a round of messages.
func (p *Queue) tryAcquireSlot() bool {
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
	batch        []*Proposal
	reservations []*admit.Reservation // of the batch; its callers may be given up and reuse their proposals earlier
	entry        []byte
	future       Future
	start        time.Time
	deadline     *time.Timer
	answered     atomic.Bool // the goroutine that sets it answers the batch

	cost    uint64 // of the batch
	uncount func() // ends the count of the entry in the queue limit; may be nil
}

// propose builds an entry and hands it to Raft. If that fails, it fails the batch and returns nil.
func (p *Queue) propose(submit Submit, batch []*Proposal) *inflightEntry {
	f := &inflightEntry{batch: batch, start: time.Now()}
	p.unanswered.Add(1)
	for _, pr := range batch {
		f.cost += pr.cost
		if pr.Reservation != nil {
			f.reservations = append(f.reservations, pr.Reservation)
		}
	}
	f.entry = p.encode(batch)
	future, err := submit(f.entry)
	if err != nil {
		admit.ReleaseAll(f.reservations)
		p.failOnce(f, err)
		return nil
	}
	f.future = future
	if p.cfg.Limit != nil {
		f.uncount = p.cfg.Limit.Proposed(f.entry, f.cost)
	}
	// Raft's own timeout covers enqueueing only; the future may stay open for ever, for example if a
	// disk hangs.
	f.deadline = time.AfterFunc(p.cfg.ProposeTimeout, func() {
		p.failOnce(f, fmt.Errorf("%w: no outcome within %v", outcome.ErrUnknownOutcome, p.cfg.ProposeTimeout))
	})
	return f
}

// encode returns the entry of a batch. Its bytes must not change: raftgroup.RecentLog keeps them.
func (p *Queue) encode(batch []*Proposal) []byte {
	requests := make([][]byte, len(batch))
	size := entryFrameBytes
	for i, pr := range batch {
		requests[i] = pr.Encoded
		size += len(pr.Encoded)
	}
	entry := codec.AppendEntryIn(make([]byte, 0, size), batch[0].Format, p.cfg.Stamp(), requests)
	if p.cfg.Stamped != nil {
		p.cfg.Stamped(batch)
	}
	return entry
}

// awaitEntry waits for the outcome of an entry and answers its batch.
func (p *Queue) awaitEntry(f *inflightEntry) {
	did, err := f.future.Wait()
	f.deadline.Stop()
	admit.ReleaseAll(f.reservations) // applied, or never will be in this leadership
	if f.uncount != nil {
		f.uncount()
	}
	if err != nil {
		p.failOnce(f, err)
		return
	}
	if f.answered.CompareAndSwap(false, true) {
		p.completeWithResults(f, did)
		p.unanswered.Add(-1)
	} else {
		p.cfg.AnsweredLate()
	}
}

// completeWithResults answers each proposal of an applied entry with its part of the results.
func (p *Queue) completeWithResults(f *inflightEntry, did *Applied) {
	commands := 0
	for _, pr := range f.batch {
		commands += len(pr.Request.Commands)
	}
	if commands != len(did.Results) {
		err := fmt.Errorf("entry %d has %d commands, but the machine gave %d results", did.Index, commands, len(did.Results))
		p.cfg.Fatal(err)
		p.completeWithError(f, fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, err))
		return
	}
	p.cfg.Applied(f.batch, did)
	p.stats.entryApplied(f, commands, time.Now())
	at := 0
	for _, pr := range f.batch {
		end := at + len(pr.Request.Commands)
		pr.Complete(Reply{
			Witness: Witness{Shard: p.cfg.Shard, Term: did.Term, Index: did.Index, Entry: uint32(at), Time: did.Clock},
			Results: did.Results[at:end:end],
		}, nil)
		at = end
	}
}

// failOnce answers a batch with an error, unless it was answered before.
func (p *Queue) failOnce(f *inflightEntry, err error) {
	if f.answered.CompareAndSwap(false, true) {
		p.unanswered.Add(-1)
		p.wake.Send() // its slot may stay occupied for ever
		p.completeWithError(f, err)
	}
}

// completeWithError answers a batch with an error.
func (p *Queue) completeWithError(f *inflightEntry, err error) {
	p.cfg.Failed(err, len(f.batch))
	for _, pr := range f.batch {
		pr.Complete(Reply{}, err)
	}
}
