package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// Births and ends are carried out by the node that leads the catalog. Any other may not have heard yet of the record that it is to end, or of the end
// that it would undo, and a birth and an end on two nodes could cross.

const (
	pathQueue = "/catalog/queue"
	pathIndex = "/catalog/index"
)

// queueCall has the leader carry out a birth or an end, or bring a record to its shards. Restore is a birth of what the shards hold already.
type queueCall struct {
	Create  *queueRecord `json:"create,omitempty"`
	Restore *queueRecord `json:"restore,omitempty"`
	Bring   string       `json:"bring,omitempty"`
	Delete  string       `json:"delete,omitempty"`
	Request *request     `json:"request,omitempty"`
}

// queueAnswer is the answer to a queueCall that was carried out, or whose request was misused.
type queueAnswer struct {
	Queue   QueueConfig `json:"queue"`
	Brought Brought     `json:"brought"`
	Misused bool        `json:"misused,omitempty"`
}

// CreateQueue makes a queue ahead of its first put. When it returns without error, every partition is open with the settings.
// Of an unknown outcome, or a failure after the record was made, the leader completes the birth.
func (c *Catalog) CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (QueueConfig, error) {
	record := &queueRecord{Name: name, Partitions: max(1, partitions), Settings: settingsRecord(settings)}
	if c.group.Serving() {
		return c.create(ctx, record)
	}
	answer, err := c.askLeader(ctx, queueCall{Create: record, Request: c.request})
	if err != nil {
		return QueueConfig{}, fmt.Errorf("creating queue %q: %w", name, err)
	}
	return answer.Queue, nil
}

// DeleteQueue ends a recorded queue; there need be none. It marks the record, removes what the shards hold, and forgets the
// record that it marked. From the mark on the deletion is carried to its end, if not by this call then by the leader or by
// the next call. What the shards hold of a queue without a record is the caller's to delete.
func (c *Catalog) DeleteQueue(ctx context.Context, name string) error {
	if c.group.Serving() {
		return c.end(ctx, name)
	}
	if _, err := c.askLeader(ctx, queueCall{Delete: name}); err != nil {
		return fmt.Errorf("deleting queue %q: %w", name, err)
	}
	return nil
}

// askLeader has the leader carry out a call, and waits until what came of it is known here too.
func (c *Catalog) askLeader(ctx context.Context, call queueCall) (queueAnswer, error) {
	leader, err := c.leaderElsewhere()
	if err != nil {
		return queueAnswer{}, err
	}
	answer, err := callPeer[queueAnswer](ctx, c.peers, leader, pathQueue, call)
	switch {
	case err != nil:
		return queueAnswer{}, err
	case answer.Misused:
		return queueAnswer{}, &RequestError{call.Request.ID}
	}
	if err := c.Refresh(ctx); err != nil {
		return queueAnswer{}, fmt.Errorf("%w: it is done, and not known here yet: %w", node.ErrUnknownOutcome, err)
	}
	return answer, nil
}

// answerQueue carries out a call of another node, which took this one for the leader.
func (c *Catalog) answerQueue(ctx context.Context, _ string, call queueCall) (queueAnswer, error) {
	if !c.group.Serving() {
		return queueAnswer{}, fmt.Errorf("%s: %w", groupName, node.ErrNotLeader)
	}
	switch {
	case call.Restore != nil:
		return queueAnswer{}, c.restore(ctx, call.Restore)
	case call.Bring != "":
		brought, err := c.bring(ctx, call.Bring)
		return queueAnswer{Brought: brought}, err
	case call.Create == nil:
		return queueAnswer{}, c.end(ctx, call.Delete)
	}
	bound := c
	if call.Request != nil {
		bound = c.ForRequest(call.Request.ID, call.Request.Content)
	}
	q, err := bound.create(ctx, call.Create)
	if _, misused := errors.AsType[*RequestError](err); misused {
		return queueAnswer{Misused: true}, nil
	}
	return queueAnswer{Queue: q}, err
}

// Refresh returns when this node's catalog shows every change that was answered, by any node, before the call. It takes as long as a call waits
// for a leader, and fails with node.ErrNoLeader then: the node may have been away, and the way to it may be cut for entries alone.
func (c *Catalog) Refresh(ctx context.Context) error {
	if _, err := c.group.Confirm(ctx); err == nil {
		return nil
	}
	bounded, cancel := context.WithDeadline(ctx, newRetryBudget(ctx, leaderWait, nil).until)
	defer cancel()
	err := c.follow(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w: this node does not have what its leader has", groupName, node.ErrNoLeader)
	}
	return err
}

// follow waits until this node's catalog is as far as its leader elsewhere is now.
func (c *Catalog) follow(ctx context.Context) error {
	leader, err := c.leaderElsewhere()
	if err != nil {
		return err
	}
	index, err := callPeer[uint64](ctx, c.peers, leader, pathIndex, indexCall{Applied: c.group.AppliedIndex()})
	if errors.Is(err, node.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", node.ErrNoLeader, err) // it changed nothing
	}
	if err != nil {
		return fmt.Errorf("asking how far the catalog is: %w", err)
	}
	return c.group.Await(ctx, index)
}

// indexCall asks how far the catalog is. Applied is how far the asking node is, which waits for what it lacks.
type indexCall struct {
	Applied uint64 `json:"applied"`
}

// answerIndex answers how far the catalog is.
func (c *Catalog) answerIndex(ctx context.Context, _ string, call indexCall) (uint64, error) {
	index, err := c.group.Confirm(ctx)
	if err == nil && call.Applied < index {
		c.group.Spread()
	}
	return index, err
}

// leaderElsewhere returns the leader if it is another node.
func (c *Catalog) leaderElsewhere() (string, error) {
	leader := c.group.Leader()
	if leader == "" || leader == c.self.ServerID {
		return "", fmt.Errorf("%s: %w", groupName, node.ErrNoLeader)
	}
	return leader, nil
}

// stillLeads fails when this node does not lead the catalog any more: its successor goes on with what is left.
func (c *Catalog) stillLeads() error {
	if !c.group.Serving() {
		return fmt.Errorf("%s: %w: this node led it when this began", groupName, node.ErrNoLeader)
	}
	return nil
}
