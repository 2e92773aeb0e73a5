package queue

import (
	"context"
	"slices"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// AckBatchBytes is the fast path of AckBatch. It appends the bytes of the answer to dst, and keeps
// no part of the request. Its errors are faults.
func (s *Service) AckBatchBytes(ctx context.Context, request, dst []byte) ([]byte, error) {
	b, ok := s.acks.Get().(*ackBatch)
	if !ok {
		b = &ackBatch{}
	}
	c := s.rules.Request(ctx, tokens.Consume)
	requestID, ok := b.read(c, request)
	if !ok {
		b.release(&s.acks)
		return codec.SlowPath(ctx, s.codec, request, dst, s.AckBatch)
	}
	s.auditEntries(ctx, belfryv1connect.QueueServiceAckBatchProcedure, c.Permissions.Refusals())
	s.ackAll(ctx, requestID, b)
	dst, err := appendAcks(dst, b.answers)
	if err == nil && !shardcall.AnyFault(b.answers) { // as in putBatch.failed
		b.release(&s.acks)
	}
	return dst, err
}

// appendAcks is appendPuts for acks.
func appendAcks(dst []byte, answers []shardcall.Answer) ([]byte, error) {
	var w wire.AckWriter
	for i := range answers {
		if f := answers[i].Fault; f != nil {
			var err error
			if dst, err = wire.AppendResult(dst,
				&belfryv1.AckBatchResult{Result: &belfryv1.AckBatchResult_Error{Error: f.Entry()}}); err != nil {
				return nil, err
			}
			continue
		}
		dst = w.Append(dst, answers[i].Request, answers[i].Entry)
	}
	return dst, nil
}

// ackBatch holds the parts of a batch of acks, like putBatch.
type ackBatch struct {
	acks     []fsm.Ack
	answers  []shardcall.Answer
	commands []shardcall.Command
	leases   wire.LeaseReader
}

// release returns the memory to the pool.
func (b *ackBatch) release(to *sync.Pool) {
	clear(b.acks)
	clear(b.answers)
	clear(b.commands)
	b.acks, b.answers, b.commands = b.acks[:0], b.answers[:0], b.commands[:0]
	to.Put(b)
}

// These are the tags of AckBatchRequest.
const (
	tagLeases       = 1<<3 | byte(protowire.BytesType)
	tagAckRequestID = 2<<3 | byte(protowire.BytesType)
)

// read reads the batch. It returns false if the message as a whole is unusual or wrong.
func (b *ackBatch) read(c *check.Request, data []byte) (requestID string, ok bool) {
	seen := false
	for len(data) > 0 {
		tag := data[0]
		value, rest, ok := cutBytes(data[1:])
		if !ok || !utf8.Valid(value) {
			return "", false
		}
		data = rest
		switch {
		case tag == tagLeases && len(b.acks) < c.Limits.BatchJobsMax:
			b.add(c, value)
		case tag == tagAckRequestID && !seen && len(value) <= c.Limits.RequestIDBytesMax:
			seen, requestID = true, string(value)
		default:
			return "", false
		}
	}
	return requestID, len(b.acks) > 0
}

// add adds a lease, or the fault of one that is invalid or not allowed.
func (b *ackBatch) add(c *check.Request, token []byte) {
	var a shardcall.Answer
	ref, err := b.leases.Parse(token)
	if err != nil || !c.Permissions.Allows(ref.Queue) {
		entry := c.Another()
		entry.Lease("lease", string(token))
		a.Fault = entry.Err
	}
	b.acks, b.answers = append(b.acks, fsm.Ack{Ref: ref}), append(b.answers, a)
}

// ackAll routes and proposes acks.
func (s *Service) ackAll(ctx context.Context, requestID string, b *ackBatch) {
	b.commands = slices.Grow(b.commands, len(b.acks))
	var last *fsm.Ack
	var shard uint32
	for i := range b.acks {
		ack := &b.acks[i]
		if b.answers[i].Fault != nil {
			continue
		}
		// the hash is most of the work, as with puts
		if last == nil || last.Queue != ack.Queue || last.Partition != ack.Partition {
			shard = s.router.Shard(ack.Queue, ack.Partition)
		}
		last = ack
		b.commands = append(b.commands, shardcall.Command{Shard: shard, Position: i, Command: ack})
	}
	s.router.ProposeRouted(ctx, requestID, b.commands, shardcall.ByNamespace, b.answers)
}
