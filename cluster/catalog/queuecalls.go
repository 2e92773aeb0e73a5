package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// The catalog's leader creates and deletes queues. Any other node may lack the record that it
// should delete, or a deletion that it would undo, and a creation and a deletion on two nodes could
// cross.

const (
	pathQueue = "/catalog/queue"
	pathIndex = "/catalog/index"
)

// queueCall asks the leader to create or delete a queue, or to reconcile one. Restore creates a
// queue that the shards hold already.
type queueCall struct {
	Create    *queueRecord `json:"create,omitempty"`
	Restore   *queueRecord `json:"restore,omitempty"`
	Reconcile string       `json:"bring,omitempty"`
	Delete    string       `json:"delete,omitempty"`
	Request   *request     `json:"request,omitempty"`
}

// queueAnswer is the answer to a queueCall that succeeded, or whose request id was used for another
// call.
type queueAnswer struct {
	Queue      QueueConfig `json:"queue"`
	Reconciled Reconciled  `json:"brought"`
	Misused    bool        `json:"misused,omitempty"`
}

// CreateQueue creates a queue ahead of its first put. When it returns without error, every
// partition is open with the settings. After an unknown outcome, or a failure after the record was
// made, the leader completes the creation.
func (c *Catalog) CreateQueue(ctx context.Context, name string, partitions uint32,
	settings fsm.Settings) (QueueConfig, error) {
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

// DeleteQueue deletes a recorded queue, if there is one. It marks the record, removes the queue
// from the shards, and removes the marked record. Once the record is marked, the leader or the next
// call completes the deletion if this call cannot. The caller must delete what shards hold of a
// queue without a record.
func (c *Catalog) DeleteQueue(ctx context.Context, name string) error {
	if c.group.Serving() {
		return c.deleteQueue(ctx, name)
	}
	if _, err := c.askLeader(ctx, queueCall{Delete: name}); err != nil {
		return fmt.Errorf("deleting queue %q: %w", name, err)
	}
	return nil
}

// askLeader makes the leader carry out a call, and waits until this node knows the result too.
func (c *Catalog) askLeader(ctx context.Context, call queueCall) (queueAnswer, error) {
	leader, err := c.leaderElsewhere()
	if err != nil {
		return queueAnswer{}, err
	}
	answer, err := ask[queueAnswer](ctx, c.peers, leader, pathQueue, call)
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

// answerQueue carries out a call of another node that took this one for the leader.
func (c *Catalog) answerQueue(ctx context.Context, call queueCall) (queueAnswer, error) {
	if !c.group.Serving() {
		return queueAnswer{}, fmt.Errorf("%s: %w", GroupName, node.ErrNotLeader)
	}
	switch {
	case call.Restore != nil:
		return queueAnswer{}, c.restore(ctx, call.Restore)
	case call.Reconcile != "":
		done, err := c.reconcile(ctx, call.Reconcile)
		return queueAnswer{Reconciled: done}, err
	case call.Create == nil:
		return queueAnswer{}, c.deleteQueue(ctx, call.Delete)
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

// Refresh returns when this node's catalog shows every change that any node answered before the
// call. It waits as long as a call waits for a leader, and then fails with node.ErrNoLeader. The
// node may have been away, or the way to it may be cut for entries alone.
func (c *Catalog) Refresh(ctx context.Context) error {
	if _, err := c.group.Confirm(ctx); err == nil {
		return nil
	}
	bounded, cancel := context.WithDeadline(ctx, c.deadline(ctx))
	defer cancel()
	err := c.follow(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w: this node does not have what its leader has", GroupName, node.ErrNoLeader)
	}
	return err
}

// follow waits until this node's catalog has reached the present position of a leader elsewhere.
func (c *Catalog) follow(ctx context.Context) error {
	leader, err := c.leaderElsewhere()
	if err != nil {
		return err
	}
	index, err := ask[uint64](ctx, c.peers, leader, pathIndex, indexCall{Applied: c.group.AppliedIndex()})
	if errors.Is(err, node.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", node.ErrNoLeader, err) // it changed nothing
	}
	if err != nil {
		return fmt.Errorf("asking how far the catalog is: %w", err)
	}
	return c.group.Await(ctx, index)
}

// indexCall asks for the leader's position in the catalog's log. Applied is the position of the
// asking node, which waits for the entries that it lacks.
type indexCall struct {
	Applied uint64 `json:"applied"`
}

// answerIndex answers with the position that this node, as the leader, has confirmed.
func (c *Catalog) answerIndex(ctx context.Context, call indexCall) (uint64, error) {
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
		return "", fmt.Errorf("%s: %w", GroupName, node.ErrNoLeader)
	}
	return leader, nil
}

// stillLeads fails if this node does not lead the catalog any more. The next leader completes the
// work.
func (c *Catalog) stillLeads() error {
	if !c.group.Serving() {
		return fmt.Errorf("%s: %w: this node led it when this began", GroupName, node.ErrNoLeader)
	}
	return nil
}
