package queue

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/inbound"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
	"github.com/belfrydb/belfry/wakeup"
)

// workBacklogMax bounds the actions of a stream that wait to be proposed, and the messages that
// wait to be sent. When a backlog is full, the server stops reading the stream, and flow control
// stops the client.
const workBacklogMax = 64

// streamLook is the time between two checks of the token of a stream without credits.
const streamLook = 10 * time.Second

// workStream is what a Work call needs of its stream.
type workStream interface {
	Receive() (*belfryv1.WorkRequest, error)
	Send(*belfryv1.WorkResponse) error
}

// Work implements belfryv1connect.QueueServiceHandler.
func (s *Service) Work(ctx context.Context,
	stream *connect.BidiStream[belfryv1.WorkRequest, belfryv1.WorkResponse]) error {
	return s.work(ctx, stream)
}

// work runs a stream. The caller's goroutine reads it. Three others grant jobs, carry out actions
// and send messages. All three have ended when work returns.
func (s *Service) work(ctx context.Context, stream workStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := inbound.StreamOf(ctx)
	stop := context.AfterFunc(ctx, body.Cut)
	defer stop()
	w := &worker{
		service: s, stream: stream, body: body, cancel: cancel, changed: wakeup.New(),
		actions: make(chan actionMessage, workBacklogMax),
		out:     make(chan *belfryv1.WorkResponse, workBacklogMax),
	}
	var producers, sender sync.WaitGroup
	producers.Go(func() { w.handOut(ctx) })
	producers.Go(func() { w.carryOut(ctx) })
	sender.Go(func() { w.send(ctx) })
	err := w.receive(ctx)
	w.finish()
	close(w.actions)
	producers.Wait()
	close(w.out)
	sender.Wait()
	if cause := new(fault.Error); errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}

// worker is the server's side of one Work stream.
type worker struct {
	service *Service
	stream  workStream
	body    *inbound.Stream
	cancel  context.CancelCauseFunc
	// actions carries messages from the reader to carryOut; out carries answers to the sender.
	actions chan actionMessage
	out     chan *belfryv1.WorkResponse
	// changed wakes handOut when credits or queues change, and at the end of the stream.
	changed wakeup.Signal

	// mu guards the fields below.
	mu      sync.Mutex
	queues  []string
	ttr     time.Duration
	credits uint32
	done    bool
	// stop ends the current poll; nil if there is none.
	stop context.CancelFunc
}

// actionMessage is a message with actions. done is called after they have been carried out.
type actionMessage struct {
	*belfryv1.WorkRequest
	done func()
}

// receive reads the stream until the client ends it.
func (w *worker) receive(ctx context.Context) error {
	for first := true; ; first = false {
		req, err := w.stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.cancel(err)
			return inbound.StreamFault(err)
		}
		w.body.Arrived()
		if first && len(req.GetCredits().GetQueues()) == 0 {
			f := fault.Invalid("credits.queues", "the first message of a stream names the queues")
			w.cancel(f)
			return f
		}
		if f := w.credit(ctx, req.GetCredits()); f != nil {
			w.cancel(f)
			return f
		}
		if len(req.GetAcks())+len(req.GetNacks())+len(req.GetReleases())+len(req.GetExtends()) == 0 {
			continue
		}
		if err := w.forward(ctx, req); err != nil {
			return err
		}
	}
}

// forward passes a message with actions to carryOut.
func (w *worker) forward(ctx context.Context, req *belfryv1.WorkRequest) error {
	done, ok := w.body.Hold(req)
	if !ok {
		done()
		f := fault.New(belfryv1.Reason_REASON_OVERLOADED)
		w.cancel(f)
		return f
	}
	select {
	case w.actions <- actionMessage{req, done}:
		return nil
	case <-ctx.Done():
		done()
		return fault.Of(context.Cause(ctx))
	}
}

// credit adds new credits. A change of the queues or of the ttr ends the current poll.
func (w *worker) credit(ctx context.Context, c *belfryv1.Credits) *fault.Error {
	if c == nil {
		return nil
	}
	check := w.service.rules.Request(ctx, tokens.Consume)
	ttr := check.TTR("credits.ttr", c.GetTtr())
	if len(c.GetQueues()) > 0 {
		check.Queues("credits.queues", c.GetQueues())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := w.service.rules.Limits.CreditsMax; c.GetCredits() > most-min(most, w.credits) {
		check.Fail(fault.Invalid("credits.credits", "%d open and %d more; the limit is %d", w.credits, c.GetCredits(), most))
	}
	if check.Err != nil {
		return check.Err
	}
	w.credits += c.GetCredits()
	if c.GetTtr() != nil {
		w.ttr = ttr
	}
	if len(c.GetQueues()) > 0 {
		w.queues = c.GetQueues()
	}
	if w.stop != nil && (len(c.GetQueues()) > 0 || c.GetTtr() != nil) {
		w.stop()
	}
	w.changed.Send()
	return nil
}

// finish records that the client sends no more messages. From then on no jobs are granted.
func (w *worker) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	if w.stop != nil {
		w.stop()
	}
	w.changed.Send()
}

// handOut polls while there are credits, until the client is done or the server drains.
func (w *worker) handOut(ctx context.Context) {
	look := time.NewTicker(streamLook)
	defer look.Stop()
	for {
		select {
		case <-w.service.drain.Started:
			w.push(ctx, &belfryv1.WorkResponse{Draining: true})
			return
		default:
		}
		p, polling, stop, done := w.nextPoll(ctx)
		if done {
			return
		}
		if p == nil {
			select {
			case <-w.changed:
			case <-w.service.drain.Started:
			case <-look.C:
				if f := w.mayPoll(ctx, nil); f != nil {
					w.cancel(f)
					return
				}
			case <-ctx.Done():
				return
			}
			continue
		}
		if f := w.mayPoll(ctx, p.queues); f != nil {
			stop()
			w.cancel(f)
			return
		}
		err := p.run(polling, w.service.rules.Limits.WaitMax)
		interrupted := polling.Err() != nil
		stop()
		if !w.deliver(ctx, p) {
			return
		}
		if err != nil && !interrupted && !w.pause(ctx, err) {
			return
		}
	}
}

// mayPoll refuses a poll if the token of the stream has ended, or no longer allows the queues.
func (w *worker) mayPoll(ctx context.Context, queues []string) *fault.Error {
	c := w.service.rules.Request(ctx, tokens.Consume)
	for _, queue := range queues {
		c.Allow(queue)
	}
	return c.Err
}

// pause waits before the next poll after a failed one. If a retry cannot help, it ends the stream
// and returns false.
func (w *worker) pause(ctx context.Context, err error) bool {
	f := fault.Of(err)
	if f.RetryAfter == 0 {
		w.cancel(f)
		return false
	}
	timer := time.NewTimer(f.RetryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.service.drain.Started:
	case <-ctx.Done():
		return false
	}
	return true
}

// nextPoll prepares a poll for the open credits. p is nil if there are none; done is set at the end
// of the stream. The context of the poll ends when the client names other queues or ends the
// stream.
func (w *worker) nextPoll(ctx context.Context) (p *poll, polling context.Context, stop context.CancelFunc, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || ctx.Err() != nil {
		return nil, nil, nil, true
	}
	if w.credits == 0 || len(w.queues) == 0 {
		return nil, nil, nil, false
	}
	p = &poll{
		service: w.service, queues: w.queues, ttr: w.ttr, client: auth.ClientOf(ctx),
		jobsMax: min(w.credits, uint32(w.service.rules.Limits.BatchJobsMax)),
	}
	polling, cancel := context.WithCancel(ctx)
	w.stop = cancel
	return p, polling, cancel, false
}

// deliver sends the jobs of a poll. It releases jobs that can no longer be sent.
func (w *worker) deliver(ctx context.Context, p *poll) bool {
	w.mu.Lock()
	w.stop = nil
	w.credits -= min(w.credits, uint32(len(p.jobs)))
	w.mu.Unlock()
	if len(p.jobs) == 0 {
		return true
	}
	if !w.push(ctx, &belfryv1.WorkResponse{Jobs: wire.Granted(p.jobs)}) {
		w.service.releaseAll(ctx, wire.Refs(p.jobs))
		return false
	}
	return true
}

// push queues a message for the sender.
func (w *worker) push(ctx context.Context, m *belfryv1.WorkResponse) bool {
	select {
	case w.out <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// send writes messages until out is closed. After an error it releases the jobs of the remaining
// messages.
func (w *worker) send(ctx context.Context) {
	failed := false
	for m := range w.out {
		if !failed {
			wait := w.service.rules.Limits.ResponseWait
			if len(m.GetJobs()) > 0 {
				wait = w.service.rules.Limits.TTRMax // a busy client may leave the next job unread until the lease of that job ends
			}
			w.body.SetReadWait(wait)
			if err := w.stream.Send(m); err != nil {
				failed = true
				w.cancel(err)
			}
		}
		if failed {
			w.service.releaseAll(ctx, wire.JobRefs(m.GetJobs()))
		}
	}
}

// carryOut proposes actions in rounds. Actions that arrive during a round make up the next one.
// Rounds do not overlap, so the actions on one lease keep their order.
func (w *worker) carryOut(ctx context.Context) {
	for req := range w.actions {
		round, messages := w.actionsOf(ctx, nil, req.WorkRequest), []actionMessage{req}
		for more := true; more && len(round) < w.service.rules.Limits.BatchJobsMax; {
			select {
			case next, ok := <-w.actions:
				if more = ok; ok {
					round, messages = w.actionsOf(ctx, round, next.WorkRequest), append(messages, next)
				}
			default:
				more = false
			}
		}
		results := w.runRound(ctx, round)
		for _, m := range messages {
			m.done()
		}
		w.push(ctx, &belfryv1.WorkResponse{Results: results})
	}
}

// action is one action of a stream.
type action struct {
	lease, requestID string
	ref              fsm.Ref
	command          fsm.Command
	fault            *fault.Error
}

// actionsOf checks the actions of a message.
func (w *worker) actionsOf(ctx context.Context, round []action, req *belfryv1.WorkRequest) []action {
	var refused auth.RefusedEntries
	add := func(lease, requestID string, build func(*check.Request) (fsm.Ref, fsm.Command)) {
		c := w.service.rules.Request(ctx, tokens.Consume)
		ref, command := build(c)
		c.RequestID(requestID)
		if r := c.Permissions.Refusals(); r.Count > 0 {
			refused.Add(r.Queue)
		}
		round = append(round, action{lease: lease, requestID: requestID, ref: ref, command: command, fault: c.Err})
	}
	for _, a := range req.GetAcks() {
		add(a.GetLease(), a.GetRequestId(), func(c *check.Request) (fsm.Ref, fsm.Command) {
			ref := c.Lease("lease", a.GetLease())
			return ref, &fsm.Ack{Ref: ref}
		})
	}
	for _, a := range req.GetNacks() {
		add(a.GetLease(), a.GetRequestId(), func(c *check.Request) (fsm.Ref, fsm.Command) {
			nack := c.Nack(a)
			return nack.Ref, nack
		})
	}
	for _, a := range req.GetReleases() {
		add(a.GetLease(), a.GetRequestId(), func(c *check.Request) (fsm.Ref, fsm.Command) {
			release := c.Release(a)
			return release.Ref, release
		})
	}
	for _, a := range req.GetExtends() {
		add(a.GetLease(), a.GetRequestId(), func(c *check.Request) (fsm.Ref, fsm.Command) {
			extend := c.Extend(a)
			return extend.Ref, extend
		})
	}
	w.service.auditEntries(ctx, belfryv1connect.QueueServiceWorkProcedure, refused)
	return round
}

// runRound proposes a round in order. Neighbouring actions without request id share a proposal for
// each shard; an action with a request id has its own. All of them are proposed even if the client
// is gone.
func (w *worker) runRound(ctx context.Context, round []action) []*belfryv1.WorkResult {
	ctx = context.WithoutCancel(ctx)
	s := w.service
	answers := make([]shardcall.Answer, len(round))
	var unnamed []shardcall.Command
	for i := range round {
		a := &round[i]
		switch shard := s.router.Shard(a.ref.Queue, a.ref.Partition); {
		case a.fault != nil:
			answers[i].Fault = a.fault
		case a.requestID != "":
			s.router.ProposeRouted(ctx, "", unnamed, shardcall.ByNamespace, answers)
			unnamed = unnamed[:0]
			answers[i] = s.router.Propose(ctx, shard, a.requestID, a.command)
		default:
			unnamed = append(unnamed, shardcall.Command{Shard: shard, Position: i, Command: a.command})
		}
	}
	s.router.ProposeRouted(ctx, "", unnamed, shardcall.ByNamespace, answers)
	results := make([]*belfryv1.WorkResult, len(round))
	for i := range round {
		results[i] = wireResult(&round[i], &answers[i])
	}
	return results
}

// wireResult converts the answer to an action.
func wireResult(a *action, got *shardcall.Answer) *belfryv1.WorkResult {
	out := &belfryv1.WorkResult{Lease: a.lease}
	if got.Fault != nil {
		out.Result = &belfryv1.WorkResult_Error{Error: got.Fault.Entry()}
		return out
	}
	switch a.command.(type) {
	case *fsm.Nack:
		out.Result = &belfryv1.WorkResult_Nack{Nack: wireNack(got)}
	case *fsm.Release:
		out.Result = &belfryv1.WorkResult_Release{Release: wireRelease(got)}
	case *fsm.Extend:
		out.Result = &belfryv1.WorkResult_Extend{Extend: wireExtend(got)}
	default:
		out.Result = &belfryv1.WorkResult_Ack{Ack: &belfryv1.AckResponse{Witness: got.Witness()}}
	}
	return out
}
