package beanstalkd

import (
	"context"
	"slices"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/rpc/auth"
	"github.com/belfrydb/belfry/rpc/beanstalkd/protocol"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// run carries out a command that joins no batch, and answers it. An error ends the connection: its
// outcome is unknown.
func (c *conn) run(ctx context.Context, cmd *protocol.Command) error {
	c.door.counts.commands[cmd.Op].Add(1)
	began := time.Now()
	return c.end(ctx, cmd.Op, c.carryOut(ctx, cmd), began)
}

// end measures a command. If it failed, end answers it, or ends the connection with an error if it may
// have been applied: as if the server had died.
func (c *conn) end(ctx context.Context, op protocol.Op, f *fault.Error, began time.Time) error {
	c.ended(ctx, op, f, began)
	switch {
	case f == nil:
	case f.Outcome() != belfryv1.Outcome_OUTCOME_NOT_APPLIED:
		return f
	case op == protocol.Put:
		c.answer(putRefusal(f))
	default:
		c.answer(protocol.InternalError)
	}
	return nil
}

// ended measures a command.
func (c *conn) ended(ctx context.Context, op protocol.Op, f *fault.Error, began time.Time) {
	took := time.Since(began)
	if f == nil {
		c.door.succeeded[op].Observe(took.Seconds())
		return
	}
	c.door.cfg.Failed(ctx, &auth.Call{Procedure: procedureOf(op), Address: c.net.RemoteAddr().String()}, f, took)
}

// procedureOf returns the name of a command in metrics and in the audit log.
func procedureOf(op protocol.Op) string { return "/beanstalkd/" + op.String() }

// carryOut carries out a command, and gives the answer unless it returns a fault.
func (c *conn) carryOut(ctx context.Context, cmd *protocol.Command) *fault.Error {
	switch cmd.Op {
	case protocol.Put: // else it would be in a batch
		return c.door.cfg.Queues.Allow(ctx, tokens.Put, c.queue)
	case protocol.Use:
		c.use(string(cmd.Tube))
	case protocol.Watch:
		c.watch(string(cmd.Tube))
	case protocol.Ignore:
		c.ignore(string(cmd.Tube))
	case protocol.ListTubeUsed:
		c.out = protocol.AppendUsing(c.out, c.used)
	case protocol.ListTubesWatched:
		c.out = protocol.AppendTubes(c.out, c.watched)
	case protocol.Reserve:
		return c.reserve(ctx, forever)
	case protocol.ReserveWithTimeout:
		return c.reserve(ctx, time.Duration(max(0, cmd.Timeout))*time.Second)
	case protocol.ReserveJob:
		return c.reserveJob(ctx, cmd.ID)
	case protocol.Delete:
		return c.deleteByID(ctx, cmd.ID)
	case protocol.Release, protocol.Bury, protocol.Touch:
		return c.finish(ctx, cmd)
	case protocol.Kick:
		return c.kick(ctx, cmd.Bound)
	case protocol.KickJob:
		return c.kickJob(ctx, cmd.ID)
	case protocol.Peek:
		return c.peek(ctx, cmd.ID)
	case protocol.PeekReady:
		return c.peekFirst(ctx, fsm.Ready)
	case protocol.PeekDelayed:
		return c.peekFirst(ctx, fsm.Delayed)
	case protocol.PeekBuried:
		return c.peekFirst(ctx, fsm.Dead)
	case protocol.PauseTube:
		return c.pause(ctx, string(cmd.Tube), seconds(cmd.Delay))
	case protocol.StatsJob:
		return c.statsJob(ctx, cmd.ID)
	case protocol.StatsTube:
		return c.statsTube(ctx, string(cmd.Tube))
	case protocol.ListTubes:
		return c.listTubes(ctx)
	case protocol.Stats:
		return c.stats(ctx)
	case protocol.Quit: // ends the connection before
	}
	return nil
}

// use changes the tube that puts go to. The queue of a tube with many special characters has a longer
// name, which may be too long.
func (c *conn) use(tube string) {
	queue := protocol.QueueOf(tube)
	if c.door.cfg.Queues.CheckName(queue) != nil {
		c.answer(protocol.BadFormat)
		return
	}
	c.door.tubes.use(c.used, -1)
	c.door.tubes.use(tube, 1)
	c.used, c.queue = tube, queue
	c.out = protocol.AppendUsing(c.out, tube)
}

// watch adds a tube to those from which jobs are reserved.
func (c *conn) watch(tube string) {
	queue := protocol.QueueOf(tube)
	if c.door.cfg.Queues.CheckName(queue) != nil {
		c.answer(protocol.BadFormat)
		return
	}
	if !slices.Contains(c.watched, tube) {
		c.watched, c.queues = append(c.watched, tube), append(c.queues, queue)
		c.door.tubes.watch(tube, 1)
	}
	c.out = protocol.AppendWatching(c.out, len(c.watched))
}

// ignore removes a tube from those from which jobs are reserved; the last one stays.
func (c *conn) ignore(tube string) {
	i := slices.Index(c.watched, tube)
	if i >= 0 && len(c.watched) == 1 {
		c.answer(protocol.NotIgnored)
		return
	}
	if i >= 0 {
		c.watched, c.queues = slices.Delete(c.watched, i, i+1), slices.Delete(slices.Clone(c.queues), i, i+1)
		c.door.tubes.watch(tube, -1)
	}
	c.out = protocol.AppendWatching(c.out, len(c.watched))
}
