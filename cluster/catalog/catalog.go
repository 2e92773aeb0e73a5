package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/wakeup"
)

// ErrQueueExists is the error of CreateQueue for a queue that exists: in the catalog, or in its
// home shard, where a put created it.
var ErrQueueExists = errors.New("the queue exists already")

const (
	// GroupName is the name of the catalog's Raft group.
	GroupName = "catalog"
	// updateAttempts bounds how often UpdateQueue starts over because another change came first.
	updateAttempts = 16
	// reconcileInterval is the time between two attempts to update shards that lag behind the
	// records.
	reconcileInterval = 5 * time.Second
)

// Shards is the part of the node's shards that the catalog uses. *node.Node implements it.
type Shards interface {
	// ShardCount returns the number of shards.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// Query answers q. The answer reflects everything that was answered before.
	Query(ctx context.Context, shard uint32, q fsm.Query) (fsm.Reading, node.Witness, error)
}

// Catalog is this node's replica of the catalog. Its methods may be called from any goroutine. It
// ends with its node.
type Catalog struct {
	group  *node.Group
	shards Shards
	peers  Peers
	// deadline returns by when a caller with a context must stop to wait for a leader.
	deadline func(ctx context.Context) time.Time
	logger   *slog.Logger
	self     Node
	found    foundation
	ready    chan struct{} // closed when group is set
	// changed makes the leader look for shards that lag.
	changed wakeup.Signal
	// tasksChanged makes the leader look for tasks.
	tasksChanged wakeup.Signal
	// contentLock holds a token while a queue's partitions are opened or emptied, so that no call
	// opens a partition that was just emptied.
	contentLock chan struct{}
	// whileLeading runs beside the catalog's own duties while this node leads it. It may be nil.
	whileLeading func(ctx context.Context)
	// request is the request that the catalog is bound to, nil if there is none.
	request *request
	// access is the machine's access.
	access *shownAccess
}

// Config configures a node's replica of the catalog.
type Config struct {
	// Self is the record that this node should have.
	Self Node
	// Peers makes and answers the calls between nodes.
	Peers Peers
	// Deadline returns by when a caller with a context must stop to wait for a leader, so that it
	// gets an answer before its own deadline.
	Deadline func(ctx context.Context) time.Time
	Logger   *slog.Logger
}

// Peers makes calls to other nodes and answers theirs, in JSON.
type Peers interface {
	// Call makes a call, and decodes the answer into response. The errors of this package and of
	// node keep their identity.
	Call(ctx context.Context, server, path string, request, response any) error
	// Handle answers calls of a path. newRequest returns a pointer to decode a request into, which
	// answer gets.
	Handle(path string, newRequest func() any, answer func(ctx context.Context, request any) (any, error))
}

// New returns the catalog of a node. Start starts it.
func New(n *node.Node, cfg Config) *Catalog {
	c := &Catalog{
		logger: cfg.Logger, self: cfg.Self, peers: cfg.Peers, deadline: cfg.Deadline,
		found: foundation{ClusterID: n.Status().ClusterID, Shards: n.ShardCount()},
		ready: make(chan struct{}), changed: wakeup.New(), tasksChanged: wakeup.New(), contentLock: make(chan struct{}, 1),
		access: newAccess(),
	}
	handle(c.peers, pathPropose, c.logFor)
	handle(c.peers, pathQueue, c.answerQueue)
	handle(c.peers, pathIndex, c.answerIndex)
	return c
}

// Start starts the catalog group over the shards of the cluster, and founds it at the first start
// of a cluster. whileLeading, which may be nil, runs beside the catalog's own duties while this
// node leads it, until its context ends. If this node is the only voter, the group serves when
// Start returns.
func (c *Catalog) Start(
	ctx context.Context, n *node.Node, shards Shards, whileLeading func(ctx context.Context),
) error {
	c.shards, c.whileLeading = shards, whileLeading
	m := newMachine()
	m.access = c.access
	m.tasksChanged = c.tasksChanged.Send
	m.queueChanged = c.requeue // the node that proposed it may end before the shards are updated
	group, err := n.StartGroup(ctx, node.GroupConfig{Name: GroupName, Machine: m, Lead: c.lead})
	if err != nil {
		return fmt.Errorf("starting the catalog: %w", err)
	}
	c.group = group
	close(c.ready)
	return nil
}

// Group returns the Raft group of the catalog. Call it after Start.
func (c *Catalog) Group() *node.Group { return c.group }

// Introduce records the cluster and its first settings, if they are not recorded. The caller must
// be where the catalog serves.
func (c *Catalog) Introduce(ctx context.Context, first Settings) error {
	var known foundation
	c.view(func(m *machine) { known = m.state.Foundation })
	if known == (foundation{}) {
		// The settings come first: a start that was cut off between the two does both again.
		if first != (Settings{}) {
			if _, err := c.Configure(ctx, first); err != nil {
				return err
			}
		}
		if _, err := c.propose(ctx, command{Found: &c.found}); err != nil {
			return fmt.Errorf("recording the cluster: %w", err)
		}
	} else if known != c.found {
		return fmt.Errorf("the catalog is of cluster %s with %d shards, this node's data of cluster %s with %d: they do "+
			"not belong together",
			known.ClusterID, known.Shards, c.found.ClusterID, c.found.Shards)
	}
	return nil
}

// create is CreateQueue on the catalog's leader.
func (c *Catalog) create(ctx context.Context, record *queueRecord) (QueueConfig, error) {
	name := record.Name
	if q, remembered, err := c.recall(); err != nil || remembered {
		return q, err
	}
	if c.existsUnrecorded(ctx, name) {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueExists)
	}
	out, err := c.proposeOnce(ctx, command{Create: record})
	if err != nil {
		return QueueConfig{}, fmt.Errorf("creating queue %q: %w", name, err)
	}
	if out.verdict == exists {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueExists)
	}
	defer c.requeue() // completes what fails below
	if out.replayed {
		return out.queue, nil
	}
	return c.finishCreate(ctx, out.queue)
}

// finishCreate is openPartitions for a queue that may still be in state Creating. If a shard
// refuses it because a put created the queue first, finishCreate removes the record.
func (c *Catalog) finishCreate(ctx context.Context, q QueueConfig) (QueueConfig, error) {
	config, err := c.openPartitions(ctx, q)
	if q.State == Creating && errors.Is(err, ErrQueueExists) {
		// Partitions opened so far stay empty, and no call is routed to them.
		_, forgot := c.propose(ctx, command{Forget: &versioned{Name: q.Name, Version: q.Version}})
		return QueueConfig{}, errors.Join(err, forgot)
	}
	return config, err
}

// existsUnrecorded reports whether the queue is recorded, or its home shard holds it without a
// record.
func (c *Catalog) existsUnrecorded(ctx context.Context, name string) bool {
	if _, recorded := c.Queue(name); recorded {
		return true
	}
	home := node.ShardOf(name, 0, c.shards.ShardCount())
	r, _, err := c.shards.Query(ctx, home, &fsm.QueueQuery{Queue: name})
	return err == nil && len(r.Queues) > 0
}

// openPartitions opens the partitions of a queue, the home shard's first, and makes its record
// Active.
func (c *Catalog) openPartitions(ctx context.Context, q QueueConfig) (QueueConfig, error) {
	unlock, err := c.lockQueues(ctx)
	if err != nil {
		return QueueConfig{}, err
	}
	defer unlock()
	if held, recorded := c.Queue(q.Name); !recorded || held.State == Deleting {
		return QueueConfig{}, fmt.Errorf("queue %q was deleted while it was created", q.Name)
	}
	for p := range q.Partitions {
		err := c.stillLeads()
		if err == nil {
			_, err = c.configure(ctx, q, p)
		}
		if err != nil {
			return QueueConfig{}, fmt.Errorf("opening partition %d of queue %q: %w", p, q.Name, err)
		}
	}
	if q.State == Active {
		return q, nil
	}
	out, err := c.propose(ctx, command{Activate: &versioned{Name: q.Name}})
	if err != nil {
		return QueueConfig{}, fmt.Errorf("activating queue %q: %w", q.Name, err)
	}
	if out.verdict == overtaken {
		return QueueConfig{}, fmt.Errorf("queue %q was deleted while it was created", q.Name)
	}
	return out.queue, nil
}

// configure opens one partition and sets its settings. It may be repeated. The witness is of the
// settings.
func (c *Catalog) configure(ctx context.Context, q QueueConfig, partition uint32) (node.Witness, error) {
	shard := node.ShardOf(q.Name, partition, c.shards.ShardCount())
	reply, err := c.shards.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{
		&fsm.Open{Queue: q.Name, Partition: partition, Partitions: q.Partitions},
		&fsm.Configure{Queue: q.Name, Partition: partition, Partitions: q.Partitions, Version: q.Version,
			Settings: q.Settings.Clone()},
	}})
	if err != nil {
		return node.Witness{}, err
	}
	for _, result := range reply.Results {
		if result.Code != fsm.OK {
			return node.Witness{}, fmt.Errorf("shard %d answered code %d: %w", shard, result.Code, ErrQueueExists)
		}
	}
	w := reply.Witness
	w.Entry++
	return w, nil
}

// UpdateQueue records the settings that change returns for a queue's present ones, or for the
// default ones if the queue is not recorded. It may call change more than once: it replaces the
// record only if no other change came first. If change fails, nothing changes, and its error is
// returned as it is. Reconcile updates the shards; without it the leader does so later.
func (c *Catalog) UpdateQueue(ctx context.Context, name string,
	change func(fsm.Settings) (fsm.Settings, error)) (QueueConfig, error) {
	if q, remembered, err := c.recall(); err != nil || remembered {
		return q, err
	}
	for range updateAttempts {
		before, _ := c.Queue(name)
		if before.State == Deleting {
			return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w: it is being deleted",
				name, node.ErrOverloaded)
		}
		after, err := change(before.Settings)
		if err != nil {
			return QueueConfig{}, err
		}
		out, err := c.proposeOnce(ctx, command{Configure: &configuration{Name: name, Version: before.Version,
			Settings: settingsRecord(after)}})
		if err != nil {
			return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w", name, err)
		}
		if out.verdict == done {
			c.requeue()
			return out.queue, nil
		}
	}
	return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w: others changed them %d times meanwhile",
		name, node.ErrOverloaded, updateAttempts)
}

// Queue returns the record of a queue, from memory. While the queue is being deleted the version
// is 0: its settings do not count for any shard.
func (c *Catalog) Queue(name string) (config QueueConfig, recorded bool) {
	c.view(func(m *machine) {
		if r := m.byName[name]; r != nil {
			config, recorded = r.config(), true
			if config.State == Deleting {
				config.Version = 0
			}
		}
	})
	return config, recorded
}

// Altered returns a channel that is closed when this replica sees a queue's record begin, end or
// change after this call.
func (c *Catalog) Altered() (altered <-chan struct{}) {
	c.view(func(m *machine) { altered = m.altered.wait() })
	return altered
}

// Queues returns all records, by name, from memory.
func (c *Catalog) Queues() (configs []QueueConfig) {
	c.view(func(m *machine) {
		for _, r := range m.state.Queues {
			configs = append(configs, r.config())
		}
	})
	return configs
}

func (c *Catalog) view(f func(m *machine)) {
	c.group.View(func(m node.Machine) { f(m.(*machine)) })
}

// propose logs a command and returns its outcome. When it returns, this node's replica has applied
// the command, so later reads see it.
func (c *Catalog) propose(ctx context.Context, cmd command) (outcome, error) {
	entry, err := c.encode(&cmd)
	if err != nil {
		return outcome{}, err
	}
	reply, err := c.logHere(ctx, cmd, entry)
	if errors.Is(err, node.ErrNotLeader) {
		return c.proposeAt(ctx, c.group.Leader(), entry)
	}
	if err != nil {
		return outcome{}, err
	}
	return reply.Value.(outcome), nil
}

// proposeHere is propose for what only the leader may log. It fails with node.ErrNotLeader elsewhere.
func (c *Catalog) proposeHere(ctx context.Context, cmd command) (outcome, error) {
	entry, err := c.encode(&cmd)
	if err != nil {
		return outcome{}, err
	}
	reply, err := c.logHere(ctx, cmd, entry)
	if err != nil {
		return outcome{}, err
	}
	return reply.Value.(outcome), nil
}

// encode returns a command as an entry, which is valid.
func (c *Catalog) encode(cmd *command) ([]byte, error) {
	cmd.Format = c.Format()
	entry, err := json.Marshal(cmd)
	if err != nil {
		return nil, fmt.Errorf("encoding a catalog entry: %w", err)
	}
	_, err = c.validate(entry)
	return entry, err
}

// logHere logs an entry if this node leads. A new node calls other nodes at once, and they refuse
// calls of a node that they do not know: logHere makes them learn of it now, not within a second.
func (c *Catalog) logHere(ctx context.Context, cmd command, entry []byte) (node.GroupReply, error) {
	reply, err := c.group.Propose(ctx, entry)
	if err == nil && cmd.Join != nil {
		c.group.Spread()
	}
	return reply, err
}

const pathPropose = "/catalog/propose"

// proposed is the answer to an entry that was logged for another node.
type proposed struct {
	Index    uint64      `json:"index"`
	Verdict  verdict     `json:"verdict"`
	Queue    QueueConfig `json:"queue"`
	Replayed bool        `json:"replayed,omitempty"`
}

// proposeAt makes the leader log an entry.
func (c *Catalog) proposeAt(ctx context.Context, leader string, entry []byte) (outcome, error) {
	if leader == "" || leader == c.self.ServerID {
		return outcome{}, fmt.Errorf("%s: %w", GroupName, node.ErrNoLeader)
	}
	p, err := ask[proposed](ctx, c.peers, leader, pathPropose, json.RawMessage(entry))
	if err != nil {
		return outcome{}, err
	}
	if err := c.group.Await(ctx, p.Index); err != nil {
		return outcome{}, fmt.Errorf("%w: %w", node.ErrUnknownOutcome, err)
	}
	return outcome{verdict: p.Verdict, queue: p.Queue, replayed: p.Replayed}, nil
}

// logFor logs an entry of another node that took this one for the leader.
func (c *Catalog) logFor(ctx context.Context, entry json.RawMessage) (proposed, error) {
	// An entry that this program cannot apply must not get into the log: it would end every node.
	cmd, err := c.validate(entry)
	if err != nil {
		return proposed{}, err
	}
	reply, err := c.logHere(ctx, cmd, entry)
	if err != nil {
		return proposed{}, err
	}
	out := reply.Value.(outcome)
	return proposed{Index: reply.Index, Verdict: out.verdict, Queue: out.queue, Replayed: out.replayed}, nil
}

// ask makes a call to another node.
func ask[R any](ctx context.Context, p Peers, server, path string, request any) (response R, err error) {
	err = p.Call(ctx, server, path, request, &response)
	return response, err
}

// handle answers calls of a path with what f returns.
func handle[Q, R any](p Peers, path string, f func(ctx context.Context, request Q) (R, error)) {
	p.Handle(path, func() any { return new(Q) }, func(ctx context.Context, request any) (any, error) {
		return f(ctx, *request.(*Q))
	})
}
