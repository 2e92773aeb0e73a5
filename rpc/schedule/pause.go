package schedule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
	"github.com/belfrydb/belfry/rpc/wire"
)

// PauseSchedules implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) PauseSchedules(ctx context.Context,
	req *belfryv1.PauseSchedulesRequest) (*belfryv1.PauseSchedulesResponse, error) {
	done, err := s.switchAll(ctx, req, fsm.PauseSchedules{})
	if err != nil {
		return nil, err
	}
	return &belfryv1.PauseSchedulesResponse{
		Changed: wire.Count(done.Count), Witnesses: done.Witnesses, Missing: done.missing,
	}, nil
}

// ResumeSchedules implements belfryv1connect.ScheduleServiceHandler.
func (s *Service) ResumeSchedules(ctx context.Context,
	req *belfryv1.ResumeSchedulesRequest) (*belfryv1.ResumeSchedulesResponse, error) {
	done, err := s.switchAll(ctx, req, fsm.PauseSchedules{Resume: true})
	if err != nil {
		return nil, err
	}
	return &belfryv1.ResumeSchedulesResponse{
		Changed: wire.Count(done.Count), Witnesses: done.Witnesses, Missing: done.missing,
	}, nil
}

// switching is what the requests to pause and to resume have in common.
type switching interface {
	GetQueue() string
	GetNames() []string
	GetPrefix() string
	GetAll() bool
	GetNote() string
	GetRequestId() string
}

// switched is what became of such a request.
type switched struct {
	shardcall.Total
	missing []string // names of the request that no schedule has, in its order
}

// switchAll pauses or resumes schedules.
func (s *Service) switchAll(ctx context.Context, req switching, command fsm.PauseSchedules) (switched, error) {
	c := s.onQueue(ctx, tokens.Admin, req.GetQueue())
	command.Queue, command.Note = c.Queue("queue", req.GetQueue()), req.GetNote()
	requestID := c.RequestID(req.GetRequestId())
	if len(command.Note) > fsm.ScheduleNoteBytes {
		c.Fail(fault.TooLarge("note", len(command.Note), fsm.ScheduleNoteBytes))
	}
	ways := 0
	for _, given := range [...]bool{len(req.GetNames()) > 0, req.GetPrefix() != "", req.GetAll()} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		c.Fail(fault.Invalid("names", "exactly one of names, prefix and all is required"))
	}
	if len(req.GetNames()) > 0 {
		c.Entries("names", len(req.GetNames()), s.rules.Limits.BatchJobsMax)
	}
	for i, name := range req.GetNames() {
		checkName(c, fault.Indexed("names", i), name)
	}
	if len(req.GetPrefix()) > nameBytesMax {
		c.Fail(fault.TooLarge("prefix", len(req.GetPrefix()), nameBytesMax))
	}
	if c.Err != nil {
		return switched{}, c.Err
	}
	if err := (shardcall.Reader{Router: s.router}).Learn(ctx, command.Queue); err != nil {
		return switched{}, err
	}
	w := switcher{service: s, command: command, requestID: requestID, absent: map[string]bool{}}
	return w.run(ctx, req)
}

// switcher pauses or resumes schedules, one shard and one page of names after another.
type switcher struct {
	service   *Service
	command   fsm.PauseSchedules
	requestID string
	done      switched
	absent    map[string]bool // names that no schedule has
	noQueue   *fault.Error    // of a shard that does not know the queue
}

func (w *switcher) run(ctx context.Context, req switching) (switched, error) {
	shards := w.service.router.Shards(w.command.Queue)
	named := make([][]string, len(shards))
	for _, name := range req.GetNames() {
		p := node.PartitionOf(name, len(shards))
		named[p] = append(named[p], name)
	}
	for p, shard := range shards {
		err := error(nil)
		switch {
		case len(named[p]) > 0:
			err = w.named(ctx, shard, named[p])
		case len(req.GetNames()) == 0:
			err = w.pages(ctx, shard, req.GetPrefix())
		}
		if err != nil {
			return w.done, err
		}
	}
	if w.noQueue != nil && len(w.done.Witnesses) == 0 {
		return w.done, w.noQueue
	}
	for _, name := range req.GetNames() {
		if w.absent[name] {
			w.done.missing = append(w.done.missing, name)
			delete(w.absent, name) // a name that comes twice is missing once
		}
	}
	return w.done, nil
}

// named takes a step for names of a shard, and notes those that no schedule has. It looks for them before
// the step, so none is passed over that is not noted. One that comes into being in between is noted as well.
func (w *switcher) named(ctx context.Context, shard uint32, names []string) error {
	query := &fsm.SchedulesQuery{Queue: w.command.Queue, Names: names}
	r, _, err := w.service.router.Node.Query(ctx, shard, query)
	if err != nil {
		return w.partly(w.service.router.FaultAt(shard, err))
	}
	for _, name := range names {
		w.absent[name] = true
	}
	for i := range r.Schedules {
		delete(w.absent, r.Schedules[i].Name)
	}
	return w.step(ctx, shard, names)
}

// pages takes a step for each page of the names of a shard.
func (w *switcher) pages(ctx context.Context, shard uint32, prefix string) error {
	query := &fsm.SchedulesQuery{Queue: w.command.Queue, Prefix: prefix, Max: fsm.RunMax}
	for {
		r, _, err := w.service.router.Node.Query(ctx, shard, query)
		if err != nil {
			return w.partly(w.service.router.FaultAt(shard, err))
		}
		names := make([]string, len(r.Schedules))
		for i := range r.Schedules {
			names[i] = r.Schedules[i].Name
		}
		if err := w.step(ctx, shard, names); err != nil || !r.More {
			return err
		}
		query.After = names[len(names)-1]
	}
}

// step pauses or resumes schedules of one shard: some at a time, if they are large. Its request ids say
// which, so that a repeat that finds others by their prefix is another request to the shard.
func (w *switcher) step(ctx context.Context, shard uint32, names []string) error {
	command := w.command
	command.Names = names
	content := strings.Join(names, "\x00")
	for {
		a := w.service.router.Propose(ctx, shard, stepID(w.requestID, content), &command)
		if err := w.add(a); err != nil || a.Result == nil || !a.Result.More {
			return err
		}
		content += "\x00"
	}
}

// add adds the answer to one command.
func (w *switcher) add(a shardcall.Answer) error {
	switch {
	case a.Fault != nil && a.Fault.Reason == belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
		w.noQueue = a.Fault
		return nil
	case a.Fault != nil:
		return w.partly(a.Fault)
	}
	w.done.Count += a.Result.Count
	if witness := a.Witness(); witness != nil {
		w.done.Witnesses = append(w.done.Witnesses, witness)
	}
	return nil
}

// partly returns the fault of a call of which some steps were carried out.
func (w *switcher) partly(f *fault.Error) error {
	if w.done.Count == 0 {
		return f
	}
	out := shardcall.Partly(f, w.done.Count)
	out.Message = fmt.Sprintf("done for %d schedules, then %s; repeat it for the rest", w.done.Count, f.Error())
	return out
}

// stepID returns the request id of a step with a content; "" without a request id.
func stepID(requestID, content string) string {
	if requestID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(content))
	return requestID + "#" + hex.EncodeToString(sum[:8])
}
