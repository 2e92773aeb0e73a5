package shardcall

import (
	"context"
	"slices"
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
// positions. Parts for shards that this node leads need no goroutine of their own, and most batches
// have one part.
func (r Router) ProposeRouted(ctx context.Context, requestID string, commands []Command, by Split, answers []Answer) {
	parts := splitBatch(commands, by)
	if len(parts) == 1 {
		r.proposeToShard(ctx, by.requestID(requestID, parts[0]), parts[0], answers)
		return
	}
	propose := func(part []Command) { r.proposeToShard(ctx, by.requestID(requestID, part), part, answers) }
	var here, elsewhere [][]Command
	for _, part := range parts {
		if r.Node.Serves(part[0].Shard) {
			here = append(here, part)
		} else {
			elsewhere = append(elsewhere, part)
		}
	}
	defer r.eachAtOnce(elsewhere, propose)()
	r.eachAtOnce(r.startEach(ctx, requestID, here, by, answers), propose)()
}

// startedPart is a part that was proposed; see backend.Node's Start.
type startedPart struct {
	part   []Command
	finish func() (reply node.Reply, again bool, err error)
}

// startEach carries out parts for shards that this node leads, and stores their answers. At most
// PartsAtOnce of them wait for their entries at a time. It returns the parts that are left for Do.
func (r Router) startEach(ctx context.Context, requestID string, parts [][]Command, by Split,
	answers []Answer) (rest [][]Command) {
	var open []startedPart
	defer func() {
		for _, s := range open { // there are some only after a panic
			_, _, _ = s.finish()
		}
	}()
	finishFirst := func() {
		first := open[0]
		open = open[1:]
		reply, again, err := first.finish()
		if again {
			rest = append(rest, first.part)
			return
		}
		r.answer(first.part, reply, err, answers)
	}
	for _, part := range parts {
		req := requestOf(by.requestID(requestID, part), part)
		finish, ok := r.Node.Start(ctx, part[0].Shard, req)
		if !ok {
			rest = append(rest, part)
			continue
		}
		if open = append(open, startedPart{part, finish}); len(open) == max(1, r.PartsAtOnce) {
			finishFirst()
		}
	}
	for len(open) > 0 {
		finishFirst()
	}
	return rest
}

// eachAtOnce runs propose for each part, for PartsAtOnce of them at a time. await waits for the end,
// and panics if one of them did: a panic is the call's, wherever it is.
func (r Router) eachAtOnce(parts [][]Command, propose func(part []Command)) (await func()) {
	workers := min(len(parts), max(1, r.PartsAtOnce))
	broken := make(chan any, workers)
	var next atomic.Int64
	for range workers {
		go func() {
			defer func() { broken <- recover() }()
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				propose(parts[i])
			}
		}()
	}
	return func() {
		var first any
		for range workers {
			if p := <-broken; p != nil {
				first = p
			}
		}
		if first != nil {
			panic(first)
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

// requestOf returns the request of one part.
func requestOf(requestID string, part []Command) *fsm.Request {
	req := &fsm.Request{ID: requestID, Commands: make([]fsm.Command, len(part))}
	for i := range part {
		req.Commands[i] = part[i].Command
	}
	if requestID != "" {
		req.Caller = fsm.NamespaceOf(fsm.QueueOf(req.Commands[0]))
	}
	return req
}

// proposeToShard proposes the commands of one part as one request and stores the answers at their
// positions.
func (r Router) proposeToShard(ctx context.Context, requestID string, part []Command, answers []Answer) {
	reply, err := r.Node.Do(ctx, part[0].Shard, requestOf(requestID, part))
	r.answer(part, reply, err, answers)
}

// answer stores the answers of one part.
func (r Router) answer(part []Command, reply node.Reply, err error, answers []Answer) {
	shard := part[0].Shard
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
