package shardcall

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/wire"
)

// Answer is the result of one command, with the witness of the request that carried it.
type Answer struct {
	// Result is nil if the command has none, because it was not proposed or the request failed; it is
	// not changed.
	Result *fsm.Result
	// Request is the witness of the request that the command was part of; nil if nothing was
	// logged. entry is the index of the command in that request.
	Request *node.Witness
	Entry   uint32
	// Fault is set if the command was not carried out.
	Fault *fault.Error
}

// Witness returns the witness of the command, nil if nothing was logged.
func (a *Answer) Witness() *belfryv1.Witness {
	if a.Request == nil {
		return nil
	}
	w := *a.Request
	w.Entry += a.Entry
	return wire.Witness(w)
}

// AnyFault reports whether a command was not carried out.
func AnyFault(answers []Answer) bool {
	return slices.ContainsFunc(answers, func(a Answer) bool { return a.Fault != nil })
}

// Propose proposes one command.
func (r Router) Propose(ctx context.Context, shard uint32, requestID string, command fsm.Command) Answer {
	return r.ProposeAll(ctx, shard, requestID, []fsm.Command{command})[0]
}

// ProposeAll proposes commands that share a request id as one request. It returns an answer for
// each command.
func (r Router) ProposeAll(ctx context.Context, shard uint32, requestID string, commands []fsm.Command) []Answer {
	part, answers := make([]Command, len(commands)), make([]Answer, len(commands))
	for i, c := range commands {
		part[i] = Command{Shard: shard, Position: i, Command: c}
	}
	r.proposeToShard(ctx, requestID, part, answers)
	return answers
}

// Command is a command with the shard it goes to and the position of its answer in the batch.
type Command struct {
	Shard    uint32
	Position int
	Command  fsm.Command
}

// PartsAtOnce bounds the parts of one call that are proposed at a time. A batch may have as many
// parts as jobs: one for each queue.
const PartsAtOnce = 64

// ProposeRouted proposes the parts of a batch concurrently and stores the answers at their
// positions. Most batches have one part, which needs no other goroutine.
func (r Router) ProposeRouted(ctx context.Context, requestID string, commands []Command, by Split, answers []Answer) {
	parts := splitBatch(commands, by)
	if len(parts) == 0 {
		return
	}
	var group sync.WaitGroup
	var next atomic.Int64
	others := min(len(parts), max(1, r.PartsAtOnce)) - 1
	broken := make(chan any, others) // a panic is the call's, wherever it is
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
			r.proposeToShard(ctx, by.requestID(requestID, parts[i]), parts[i], answers)
		}
	}
	for range others {
		group.Go(func() {
			defer func() { broken <- recover() }()
			work()
		})
	}
	work()
	group.Wait()
	for range others {
		if p := <-broken; p != nil {
			panic(p)
		}
	}
}

// Split says which commands of one shard are different parts of a batch, and different requests. It
// depends on nothing but the call. A part never has commands of two namespaces, since request ids
// belong to a namespace.
type Split int

// These are the ways to split.
const (
	ByNamespace Split = iota
	ByQueue
)

// keyOf returns a string for a command. Commands with different strings are different parts.
func (s Split) keyOf(c fsm.Command) string {
	if s == ByQueue {
		return fsm.QueueOf(c)
	}
	return fsm.NamespaceOf(fsm.QueueOf(c))
}

// RequestID returns the request id of a part. A shard accepts an id for one request of a namespace
// only, so each part has an id of its own. The id depends on nothing else in the call: a repeat
// must find the earlier answer, although other parts may be refused or routed elsewhere by then.
func (s Split) requestID(ofCall string, part []Command) string {
	if ofCall == "" || s == ByNamespace {
		return ofCall
	}
	return ofCall + "#/queue/" + fsm.QueueOf(part[0].Command)
}

// proposeToShard proposes the commands of one part as one request and stores the answers at their
// positions.
func (r Router) proposeToShard(ctx context.Context, requestID string, part []Command, answers []Answer) {
	shard, commands := part[0].Shard, make([]fsm.Command, len(part))
	for i := range part {
		commands[i] = part[i].Command
	}
	req := &fsm.Request{ID: requestID, Commands: commands}
	if requestID != "" {
		req.Caller = fsm.NamespaceOf(fsm.QueueOf(commands[0]))
	}
	reply, err := r.Node.Do(ctx, shard, req)
	if err != nil {
		for i := range part {
			answers[part[i].Position] = Answer{Fault: r.FaultAt(shard, err)}
		}
		return
	}
	var witness *node.Witness
	if reply.Witness != (node.Witness{}) {
		witness = &reply.Witness
	}
	for i := range part {
		a := &answers[part[i].Position]
		*a = Answer{Result: &reply.Results[i], Request: witness, Entry: uint32(i)} //nolint:gosec // the commands of a request
		if a.Result.Code != fsm.OK {
			a.Fault = fault.OfResult(shard, a.Result)
			a.Fault.Witness = a.Witness()
		}
	}
}

// partKey identifies a part of a batch.
type partKey struct {
	shard uint32
	split string
}

// partOf returns the key of the part that a command belongs to.
func (s Split) partOf(c Command) partKey { return partKey{c.Shard, s.keyOf(c.Command)} }

// splitBatch groups commands by their parts and keeps their order within each part. A shard refuses
// a request as a whole. So puts into a queue that may not be created, or whose namespace has used
// up its quota, must not fail the other puts.
func splitBatch(commands []Command, by Split) [][]Command {
	if len(commands) == 0 {
		return nil
	}
	first := by.partOf(commands[0])
	if !slices.ContainsFunc(commands, func(c Command) bool { return by.partOf(c) != first }) {
		return [][]Command{commands}
	}
	var parts [][]Command
	at := map[partKey]int{}
	for _, c := range commands {
		of := by.partOf(c)
		i, ok := at[of]
		if !ok {
			i = len(parts)
			at[of], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], c)
	}
	return parts
}
