package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// ErrQueueExists is returned by CreateQueue for a queue that is there already: in the catalog, or in its home shard, where a put brought it to life.
var ErrQueueExists = errors.New("the queue exists already")

const (
	groupName = "catalog"
	// updateAttempts bounds how often UpdateQueue starts over because another change came first.
	updateAttempts = 16
	// healInterval is the pause between attempts to bring records to shards that lag.
	healInterval = 5 * time.Second
)

// Shards is what the catalog needs of the node's shards. *node.Node implements it.
type Shards interface {
	// ShardCount returns the number of shards.
	ShardCount() int
	// Do proposes a request to a shard and waits for its results.
	Do(ctx context.Context, shard uint32, req *fsm.Request) (node.Reply, error)
	// View runs f on what this node has applied.
	View(shard uint32, f func(m *fsm.Machine, now fsm.Time)) (node.Witness, error)
}

// Catalog is this node's replica of the catalog. Its methods may be called from any goroutine. It ends with its node.
type Catalog struct {
	group  *node.Group
	shards Shards
	logger *slog.Logger
	self   Node
	found  foundation
	ready  chan struct{} // closed when group is set
	// changed has the leader look for shards that lag.
	changed chan struct{}
	// turn holds a token while a queue's partitions are opened or emptied, so that nothing opens what was just emptied.
	turn chan struct{}
	// request is what the catalog is bound to, nil if to none.
	request *request
}

// Open starts the catalog group on a node, founding it at the first start, and returns when it serves. ctx bounds the start only.
func Open(ctx context.Context, n *node.Node, logger *slog.Logger) (*Catalog, error) {
	return start(ctx, n, n, logger)
}

// start is Open with the shards apart from the node.
func start(ctx context.Context, n *node.Node, shards Shards, logger *slog.Logger) (*Catalog, error) {
	st := n.Status()
	c := &Catalog{
		shards: shards, logger: logger, self: Node{Name: st.Name, ServerID: st.ServerID, PeerAddr: st.PeerAddr},
		found: foundation{ClusterID: st.ClusterID, Shards: n.ShardCount()},
		ready: make(chan struct{}), changed: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	group, err := n.StartGroup(ctx, node.GroupConfig{Name: groupName, Machine: newMachine(), Lead: c.lead})
	if err != nil {
		return nil, fmt.Errorf("starting the catalog: %w", err)
	}
	c.group = group
	close(c.ready)
	if !group.Serving() {
		return c, nil
	}
	if err := c.introduce(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// introduce records the cluster and this node, as far as they are not recorded.
func (c *Catalog) introduce(ctx context.Context) error {
	var known foundation
	var recorded bool
	c.view(func(m *machine) {
		known = m.state.Foundation
		for _, n := range m.state.Nodes {
			recorded = recorded || n == c.self
		}
	})
	if known == (foundation{}) {
		if _, err := c.propose(ctx, command{Found: &c.found}); err != nil {
			return fmt.Errorf("recording the cluster: %w", err)
		}
	} else if known != c.found {
		return fmt.Errorf("the catalog is of cluster %s with %d shards, this node's data of cluster %s with %d: they do not belong together",
			known.ClusterID, known.Shards, c.found.ClusterID, c.found.Shards)
	}
	if recorded {
		return nil
	}
	if _, err := c.propose(ctx, command{Join: &c.self}); err != nil {
		return fmt.Errorf("recording this node: %w", err)
	}
	return nil
}

// CreateQueue makes a queue ahead of its first put. When it returns without error, every partition is open with the settings.
// Of an unknown outcome, or a failure after the record was made, the leader completes the birth.
func (c *Catalog) CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (QueueConfig, error) {
	if q, remembered, err := c.recall(); err != nil || remembered {
		return q, err
	}
	if c.born(name) {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueExists)
	}
	record := &queueRecord{Name: name, Partitions: max(1, partitions), Settings: settingsRecord(settings)}
	out, err := c.proposeOnce(ctx, command{Create: record})
	if err != nil {
		return QueueConfig{}, fmt.Errorf("creating queue %q: %w", name, err)
	}
	if out.verdict == exists {
		return QueueConfig{}, fmt.Errorf("queue %q: %w", name, ErrQueueExists)
	}
	defer c.kick() // completes what fails below
	if out.replayed {
		return out.queue, nil
	}
	return c.bear(ctx, out.queue)
}

// bear is open for a queue that may still be unborn: if a shard refuses it, because a put came first, its record goes.
func (c *Catalog) bear(ctx context.Context, q QueueConfig) (QueueConfig, error) {
	config, err := c.open(ctx, q)
	if q.State == Creating && errors.Is(err, ErrQueueExists) {
		// What was opened so far stays as an empty partition that nothing routes to.
		_, forgot := c.propose(ctx, command{Forget: &versioned{Name: q.Name, Version: q.Version}})
		return QueueConfig{}, errors.Join(err, forgot)
	}
	return config, err
}

// born reports whether the home shard holds a queue that is not recorded.
func (c *Catalog) born(name string) (held bool) {
	if _, recorded := c.Queue(name); recorded {
		return true
	}
	home := node.ShardOf(name, 0, c.shards.ShardCount())
	_, err := c.shards.View(home, func(m *fsm.Machine, now fsm.Time) { _, held = m.Queue(name, now) })
	return err == nil && held
}

// open brings a record to its shards, the home shard first, and ends the birth.
func (c *Catalog) open(ctx context.Context, q QueueConfig) (QueueConfig, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return QueueConfig{}, err
	}
	defer leave()
	if held, recorded := c.Queue(q.Name); !recorded || held.State == Deleting {
		return QueueConfig{}, fmt.Errorf("queue %q was deleted while it was created", q.Name)
	}
	for p := range q.Partitions {
		if err := c.configure(ctx, q, p); err != nil {
			return QueueConfig{}, fmt.Errorf("opening partition %d of queue %q: %w", p, q.Name, err)
		}
	}
	if q.State == Active {
		return q, nil
	}
	out, err := c.propose(ctx, command{Activate: &versioned{Name: q.Name}})
	if err != nil {
		return QueueConfig{}, fmt.Errorf("ending the birth of queue %q: %w", q.Name, err)
	}
	if out.verdict == overtaken {
		return QueueConfig{}, fmt.Errorf("queue %q was deleted while it was created", q.Name)
	}
	return out.queue, nil
}

// configure opens one partition and sets its settings; both may be repeated.
func (c *Catalog) configure(ctx context.Context, q QueueConfig, partition uint32) error {
	shard := node.ShardOf(q.Name, partition, c.shards.ShardCount())
	reply, err := c.shards.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{
		&fsm.Open{Queue: q.Name, Partition: partition, Partitions: q.Partitions},
		&fsm.Configure{Queue: q.Name, Partition: partition, Partitions: q.Partitions, Version: q.Version, Settings: q.Settings.Clone()},
	}})
	if err != nil {
		return err
	}
	for _, result := range reply.Results {
		if result.Code != fsm.OK {
			return fmt.Errorf("shard %d answered code %d: %w", shard, result.Code, ErrQueueExists)
		}
	}
	return nil
}

// UpdateQueue records what change makes of a queue's settings, of the default ones if the queue is not recorded. change may be called more than
// once. The caller brings the new record to the shards and so learns which are pending; the leader sees to those later.
func (c *Catalog) UpdateQueue(ctx context.Context, name string, change func(fsm.Settings) fsm.Settings) (QueueConfig, error) {
	if q, remembered, err := c.recall(); err != nil || remembered {
		return q, err
	}
	for range updateAttempts {
		before, _ := c.Queue(name)
		if before.State == Deleting {
			return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w: it is being deleted", name, node.ErrOverloaded)
		}
		after := settingsRecord(change(before.Settings))
		out, err := c.proposeOnce(ctx, command{Configure: &configuration{Name: name, Version: before.Version, Settings: after}})
		if err != nil {
			return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w", name, err)
		}
		if out.verdict == done {
			c.kick()
			return out.queue, nil
		}
	}
	return QueueConfig{}, fmt.Errorf("changing the settings of queue %q: %w: others changed them %d times meanwhile", name, node.ErrOverloaded, updateAttempts)
}

// Queue returns the record of a queue, from memory. While the queue is being deleted the version is 0: there are no settings
// that a shard should still hear of.
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

// Queues returns all records, by name, from memory.
func (c *Catalog) Queues() (configs []QueueConfig) {
	c.view(func(m *machine) {
		for _, r := range m.state.Queues {
			configs = append(configs, r.config())
		}
	})
	return configs
}

// Nodes returns the recorded nodes, by server id, from memory.
func (c *Catalog) Nodes() (nodes []Node) {
	c.view(func(m *machine) { nodes = append(nodes, m.state.Nodes...) })
	return nodes
}

func (c *Catalog) view(f func(m *machine)) {
	c.group.View(func(m node.Machine) { f(m.(*machine)) })
}

// propose logs a command and returns its outcome.
func (c *Catalog) propose(ctx context.Context, cmd command) (outcome, error) {
	cmd.Format = catalogFormat
	entry, err := json.Marshal(cmd)
	if err != nil {
		return outcome{}, fmt.Errorf("encoding a catalog entry: %w", err)
	}
	reply, err := c.group.Propose(ctx, entry)
	if err != nil {
		return outcome{}, err
	}
	return reply.Value.(outcome), nil
}
