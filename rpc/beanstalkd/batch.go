package beanstalkd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// answer is what became of a command.
type answer struct {
	serial    uint64
	partition uint32
	fault     *fault.Error
}

// batch has commands of one connection that are carried out together: puts, or deletes of jobs that
// it holds, all of one shard. Their answers are written in their order.
type batch struct {
	shard uint32
	puts  groupCall[*fsm.Put]
	acks  groupCall[*fsm.Ack]
	ids   []uint64 // of the acks
	jobs  []*heldJob
	bytes int // of the bodies
	began time.Time
}

func (b *batch) len() int { return len(b.puts.commands) + len(b.acks.commands) }

// suits reports whether another command of a shard may join: a put, or else an ack.
func (b *batch) suits(shard uint32, put bool) bool {
	return b.len() == 0 || b.shard == shard && b.len() < batchMax && b.bytes < batchBytesMax &&
		put == (len(b.puts.commands) > 0)
}

// errNoAnswers ends a connection whose commands were in a group that panicked.
var errNoAnswers = errors.New("the commands of a group were not carried out")

// batches has the groups of all shards.
type batches struct {
	puts []groups[*fsm.Put]
	acks []groups[*fsm.Ack]
}

// joinsBatch reports whether a command may wait for the next ones, to be carried out with them: a put,
// or the delete of a job that the connection holds.
func (c *conn) joinsBatch(ctx context.Context, cmd *protocol.Command) bool {
	if cmd.Op == protocol.Delete {
		job := c.held[cmd.ID]
		return job != nil && job.until.After(time.Now()) &&
			c.door.cfg.Queues.Allow(ctx, tokens.Consume, job.ref.Queue) == nil
	}
	return cmd.Op == protocol.Put && c.door.cfg.Queues.Allow(ctx, tokens.Put, c.queue) == nil
}

// addToBatch adds a command that joinsBatch has accepted.
func (c *conn) addToBatch(ctx context.Context, cmd *protocol.Command, body []byte) error {
	c.door.counts.commands[cmd.Op].Add(1)
	if cmd.Op == protocol.Put {
		return c.addPut(ctx, c.putOf(cmd, body))
	}
	job := c.held[cmd.ID]
	c.drop(cmd.ID)
	return c.addAck(ctx, cmd.ID, job)
}

// putOf returns the put of a command. Its job never runs out of attempts, as in beanstalkd.
func (c *conn) putOf(cmd *protocol.Command, body []byte) *fsm.Put {
	d := &c.door.cfg
	c.producer.Store(true)
	return &fsm.Put{
		Queue: c.queue, Given: fsm.GivenDelay | fsm.GivenTTR | fsm.GivenPriority | fsm.GivenMaxAttempts,
		Priority: int64(cmd.Priority), FIFO: true,
		Delay: min(seconds(cmd.Delay), d.DelayMax), TTR: min(max(seconds(cmd.TTR), time.Second), d.TTRMax),
		Body: bytes.Clone(body),
	}
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// addPut adds a put to the batch of the connection.
func (c *conn) addPut(ctx context.Context, put *fsm.Put) error {
	shard := c.door.cfg.Router.Shard(put.Queue, 0)
	if !c.batch.suits(shard, true) {
		if err := c.runBatch(ctx); err != nil {
			return err
		}
	}
	c.beginBatch(shard)
	c.batch.puts.commands = append(c.batch.puts.commands, put)
	c.batch.bytes += len(put.Body)
	return nil
}

// addAck adds the delete of a job that the connection holds.
func (c *conn) addAck(ctx context.Context, id uint64, job *heldJob) error {
	shard := c.door.cfg.Router.Shard(job.ref.Queue, job.ref.Partition)
	if !c.batch.suits(shard, false) {
		if err := c.runBatch(ctx); err != nil {
			return err
		}
	}
	c.beginBatch(shard)
	c.batch.acks.commands = append(c.batch.acks.commands, &fsm.Ack{Ref: job.ref})
	c.batch.ids, c.batch.jobs = append(c.batch.ids, id), append(c.batch.jobs, job)
	return nil
}

func (c *conn) beginBatch(shard uint32) {
	if c.batch.len() == 0 {
		c.batch.shard, c.batch.began = shard, time.Now()
	}
}

// runBatch carries out the batch and gives its answers. An error ends the connection.
func (c *conn) runBatch(ctx context.Context) (err error) {
	b := &c.batch
	switch {
	case len(b.puts.commands) > 0:
		err = c.runPuts(ctx)
		clear(b.puts.commands)
		b.puts.commands, b.puts.answers, b.bytes = b.puts.commands[:0], b.puts.answers[:0], 0
	case len(b.acks.commands) > 0:
		err = c.runAcks(ctx)
		clear(b.acks.commands)
		clear(b.jobs)
		b.acks.commands, b.acks.answers, b.ids, b.jobs = b.acks.commands[:0], b.acks.answers[:0], b.ids[:0], b.jobs[:0]
	}
	return err
}

func (c *conn) runPuts(ctx context.Context) error {
	b := &c.batch
	if b.puts.proceed == nil {
		b.puts.proceed = make(chan bool, 1)
	}
	c.door.batches.puts[b.shard].do(ctx, &b.puts)
	if len(b.puts.answers) != len(b.puts.commands) {
		return errNoAnswers
	}
	for i := range b.puts.answers {
		a := &b.puts.answers[i]
		if a.fault == nil {
			shard := c.door.cfg.Router.Shard(b.puts.commands[i].Queue, a.partition)
			c.out = protocol.AppendInserted(c.out, protocol.IDOf(shard, a.serial))
		}
		if err := c.end(ctx, protocol.Put, a.fault, b.began); err != nil {
			return err
		}
	}
	return nil
}

// putRefusal returns the answer to a put that was not applied.
func putRefusal(f *fault.Error) string {
	switch f.Reason {
	case belfryv1.Reason_REASON_SHUTTING_DOWN:
		return protocol.Draining
	case belfryv1.Reason_REASON_FORBIDDEN, belfryv1.Reason_REASON_UNAUTHENTICATED, belfryv1.Reason_REASON_INVALID:
		return protocol.InternalError
	default:
		return protocol.OutOfMemory
	}
}

func (c *conn) runAcks(ctx context.Context) error {
	b := &c.batch
	if b.acks.proceed == nil {
		b.acks.proceed = make(chan bool, 1)
	}
	c.door.batches.acks[b.shard].do(ctx, &b.acks)
	if len(b.acks.answers) != len(b.acks.commands) {
		return errNoAnswers
	}
	for i := range b.acks.answers {
		f, began := b.acks.answers[i].fault, b.began
		switch {
		case f == nil:
			c.answer(protocol.Deleted)
		case f.Reason == belfryv1.Reason_REASON_STALE_LEASE: // it has lapsed, so the job is one like others
			began = time.Now()
			f = c.deleteByID(ctx, b.ids[i])
		default: // the connection still holds the job, and releases it at its end
			c.held[b.ids[i]] = b.jobs[i]
			c.setPinned()
		}
		if err := c.end(ctx, protocol.Delete, f, began); err != nil {
			return err
		}
	}
	return nil
}

// retryFor is how long a command is repeated that fails because a shard has no leader, or whose
// outcome is unknown.
const retryFor = 5 * time.Second

// retryPause is the least pause between two attempts.
const retryPause = 20 * time.Millisecond

// repeats reports whether a fault may be gone at the next attempt, in a moment. A refusal that waits
// for others, such as for a full queue, is none. A cluster that has just been founded refuses what the
// door needs for about a second, until all nodes have said which format they know.
func repeats(f *fault.Error) bool {
	if f == nil {
		return false
	}
	switch f.Reason {
	case belfryv1.Reason_REASON_NO_LEADER, belfryv1.Reason_REASON_NOT_LEADER, belfryv1.Reason_REASON_UNKNOWN_OUTCOME,
		belfryv1.Reason_REASON_OVERLOADED, belfryv1.Reason_REASON_QUEUE_CHANGED, belfryv1.Reason_REASON_UNIMPLEMENTED:
		return true
	default:
		return false
	}
}

// retry calls attempt until it returns no fault that repeats, or for retryFor.
func retry(ctx context.Context, attempt func() *fault.Error) {
	until := time.Now().Add(retryFor)
	for {
		f := attempt()
		if !repeats(f) || time.Now().After(until) || ctx.Err() != nil {
			return
		}
		pause := time.NewTimer(min(max(f.RetryAfter, retryPause), time.Second))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// newBatches returns the groups of a door.
func newBatches(d *Door) *batches {
	shards := d.cfg.Router.Node.ShardCount()
	b := &batches{puts: make([]groups[*fsm.Put], shards), acks: make([]groups[*fsm.Ack], shards)}
	for i := range shards {
		b.puts[i].carryOut = d.putGroup
		b.acks[i].carryOut = func(ctx context.Context, calls []*groupCall[*fsm.Ack]) {
			d.ackGroup(ctx, uint32(i), calls) //nolint:gosec // the number of a shard
		}
	}
	return b
}

// requestID returns an id for a request that may be repeated.
func (d *Door) requestID() string {
	return d.requests + strconv.FormatUint(d.counts.requests.Add(1), 36)
}

// putGroup carries out the puts of several connections.
func (d *Door) putGroup(ctx context.Context, calls []*groupCall[*fsm.Put]) {
	puts := gather(calls)
	id := d.requestID()
	var answers []shardcall.Answer
	retry(ctx, func() *fault.Error {
		answers = d.cfg.Queues.PutJobs(ctx, id, puts)
		return firstRepeating(answers)
	})
	for _, call := range calls {
		call.answers = appendAnswers(call.answers, answers[:len(call.commands)])
		answers = answers[len(call.commands):]
	}
}

// ackGroup carries out the acks of several connections in one shard. An ack may be repeated without
// a request id.
func (d *Door) ackGroup(ctx context.Context, shard uint32, calls []*groupCall[*fsm.Ack]) {
	acks := gather(calls)
	commands, answers := make([]shardcall.Command, len(acks)), make([]shardcall.Answer, len(acks))
	for i, ack := range acks {
		commands[i] = shardcall.Command{Shard: shard, Position: i, Command: ack}
	}
	retry(ctx, func() *fault.Error {
		d.cfg.Router.ProposeRouted(ctx, "", commands, shardcall.ByNamespace, answers)
		return firstRepeating(answers)
	})
	for _, call := range calls {
		call.answers = appendAnswers(call.answers, answers[:len(call.commands)])
		answers = answers[len(call.commands):]
	}
}

func gather[T any](calls []*groupCall[T]) []T {
	if len(calls) == 1 {
		return calls[0].commands
	}
	var all []T
	for _, call := range calls {
		all = append(all, call.commands...)
	}
	return all
}

func firstRepeating(answers []shardcall.Answer) *fault.Error {
	for i := range answers {
		if repeats(answers[i].Fault) {
			return answers[i].Fault
		}
	}
	return nil
}

func appendAnswers(dst []answer, answers []shardcall.Answer) []answer {
	for i := range answers {
		a := answer{fault: answers[i].Fault}
		if a.fault == nil {
			a.serial, a.partition = answers[i].Result.Serial, answers[i].Result.Partition
		}
		dst = append(dst, a)
	}
	return dst
}
