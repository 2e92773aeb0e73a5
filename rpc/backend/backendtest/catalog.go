package backendtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/bulk"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// Catalog is a backend.Catalog in memory. It remembers no tokens and no requests.
type Catalog struct {
	// Deletion, if it is set, is called by DeleteQueue before it forgets a record. Its error ends the
	// call.
	Deletion func(name string) error

	// opening is held for reading by Reconcile and for writing by DeleteQueue.
	opening sync.RWMutex
	// node has the shards that Reconcile updates.
	node backend.Node

	mu      sync.Mutex
	queues  map[string]backend.QueueConfig
	tasks   []bulk.Task
	altered chan struct{}
}

// NewCatalog returns an empty catalog. Reconcile needs a node: see SetNode.
func NewCatalog() *Catalog {
	return &Catalog{queues: map[string]backend.QueueConfig{}, altered: make(chan struct{})}
}

// set records a queue and reports the change. The caller holds mu.
func (c *Catalog) set(config backend.QueueConfig) {
	c.queues[config.Name] = config
	c.change()
}

// change reports a change. The caller holds mu.
func (c *Catalog) change() {
	close(c.altered)
	c.altered = make(chan struct{})
}

// CreateQueue implements backend.Catalog.
func (c *Catalog) CreateQueue(_ context.Context, name string, partitions uint32,
	settings fsm.Settings) (backend.QueueConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.queues[name]; ok {
		return backend.QueueConfig{}, fault.New(belfryv1.Reason_REASON_QUEUE_EXISTS)
	}
	c.set(backend.QueueConfig{Name: name, Partitions: partitions, Version: 1, Settings: settings})
	return c.queues[name], nil
}

// UpdateQueue implements backend.Catalog.
func (c *Catalog) UpdateQueue(_ context.Context, name string,
	change func(fsm.Settings) (fsm.Settings, error)) (backend.QueueConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, ok := c.queues[name]
	if !ok {
		config = backend.QueueConfig{Name: name, Partitions: 1}
	}
	after, err := change(config.Settings)
	if err != nil {
		return backend.QueueConfig{}, err
	}
	config.Version, config.Settings = config.Version+1, after
	c.set(config)
	return config, nil
}

// DeleteQueue implements backend.Catalog.
func (c *Catalog) DeleteQueue(_ context.Context, name string) error {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Deletion != nil {
		if err := c.Deletion(name); err != nil {
			return err
		}
	}
	delete(c.queues, name)
	c.change()
	return nil
}

// MarkDeleting shows a queue as one that is being deleted.
func (c *Catalog) MarkDeleting(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := c.queues[name]
	config.Name, config.Version = name, 0
	c.set(config)
}

// Queue implements backend.Catalog.
func (c *Catalog) Queue(name string) (backend.QueueConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, ok := c.queues[name]
	return config, ok
}

// SetNode sets the node whose shards Reconcile updates.
func (c *Catalog) SetNode(n backend.Node) { c.node = n }

// Of is SetNode that returns the catalog.
func (c *Catalog) Of(n backend.Node) *Catalog {
	c.SetNode(n)
	return c
}

// Reconcile implements backend.Catalog. It opens the partitions of the queue and sets its settings.
func (c *Catalog) Reconcile(ctx context.Context, name string) (done backend.Reconciled, err error) {
	c.opening.RLock()
	defer c.opening.RUnlock()
	config, ok := c.Queue(name)
	if !ok || config.Deleting() {
		return backend.Reconciled{}, shardcall.BeingDeleted(name)
	}
	s := shardcall.Router{Node: c.node, Catalog: c}
	partitions := max(1, config.Partitions)
	for p := range partitions {
		shard := s.Shard(name, p)
		answers := s.ProposeAll(ctx, shard, "", []fsm.Command{
			&fsm.Open{Queue: name, Partition: p, Partitions: partitions},
			&fsm.Configure{
				Queue: name, Partition: p, Partitions: partitions, Version: config.Version, Settings: config.Settings.Clone(),
			},
		})
		if f := answers[1].Fault; f != nil {
			if f.Outcome() == belfryv1.Outcome_OUTCOME_NOT_APPLIED &&
				f.Code() != fault.New(belfryv1.Reason_REASON_NO_LEADER).Code() {
				return backend.Reconciled{}, f
			}
			done.Pending, err = append(done.Pending, shard), errors.Join(err, f)
			continue
		}
		w := answers[1].Witness()
		done.Witnesses = append(done.Witnesses, node.Witness{
			Shard: w.GetShard(), Term: w.GetTerm(), Index: w.GetIndex(), Entry: w.GetEntry(),
			Time: fsm.Time(w.GetTime().AsTime().UnixNano()),
		})
	}
	if len(done.Witnesses) > 0 {
		err = nil
	}
	return done, err
}

// Queues implements backend.Catalog.
func (c *Catalog) Queues() (all []backend.QueueConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		all = append(all, c.queues[name])
	}
	return all
}

// RestoreQueue implements backend.Catalog.
func (c *Catalog) RestoreQueue(_ context.Context, config backend.QueueConfig) error {
	c.Record(config)
	return nil
}

// Record records a queue, in place of an earlier record.
func (c *Catalog) Record(config backend.QueueConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(config)
}

// ForRequest implements backend.Catalog. A repeat counts as another request.
func (c *Catalog) ForRequest(string, string) backend.Catalog { return c }

// Altered implements backend.Catalog.
func (c *Catalog) Altered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.altered
}

// Refresh implements backend.Catalog.
func (c *Catalog) Refresh(context.Context) error { return nil }

var errNoTokens = errors.New("backendtest: a Catalog keeps no tokens")

// AddToken implements backend.Catalog. It fails.
func (c *Catalog) AddToken(context.Context, tokens.Record) error { return errNoTokens }

// EndToken implements backend.Catalog. It fails.
func (c *Catalog) EndToken(context.Context, string, time.Time) (bool, error) {
	return false, errNoTokens
}

// Tokens implements backend.Catalog. There are none.
func (c *Catalog) Tokens() []*tokens.Record { return nil }

// LateCatalog is a Catalog that knows less than those of other nodes until it is refreshed.
type LateCatalog struct {
	*Catalog
	// Later is the record that a refresh adds.
	Later backend.QueueConfig
	// Away is the error of a refresh; nil if the leader of the catalog can be asked.
	Away error
}

// Refresh implements backend.Catalog.
func (c *LateCatalog) Refresh(context.Context) error {
	if c.Away == nil {
		c.Record(c.Later)
	}
	return c.Away
}
