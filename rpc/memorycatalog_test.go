package rpc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc/backend"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/shardcall"
)

// memoryCatalog is a catalog in memory. It keeps neither tokens nor requests.
type memoryCatalog struct {
	// opening is held for reading by Reconcile and for writing by DeleteQueue.
	opening sync.RWMutex
	// node is whose shards Reconcile updates.
	node backend.Node

	mu     sync.Mutex
	queues map[string]backend.QueueConfig
	// deletion, if set, is called by DeleteQueue before it forgets a record, with mu held.
	deletion func(name string) error
}

func newMemoryCatalog() *memoryCatalog {
	return &memoryCatalog{queues: map[string]backend.QueueConfig{}}
}

func (c *memoryCatalog) CreateQueue(_ context.Context, name string, partitions uint32,
	settings fsm.Settings) (backend.QueueConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.queues[name]; ok {
		return backend.QueueConfig{}, fault.New(belfryv1.Reason_REASON_QUEUE_EXISTS)
	}
	c.queues[name] = backend.QueueConfig{Name: name, Partitions: partitions, Version: 1, Settings: settings}
	return c.queues[name], nil
}

func (c *memoryCatalog) UpdateQueue(_ context.Context, name string,
	change func(fsm.Settings) fsm.Settings) (backend.QueueConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, ok := c.queues[name]
	if !ok {
		config = backend.QueueConfig{Name: name, Partitions: 1}
	}
	config.Version, config.Settings = config.Version+1, change(config.Settings)
	c.queues[name] = config
	return config, nil
}

func (c *memoryCatalog) DeleteQueue(_ context.Context, name string) error {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deletion != nil {
		if err := c.deletion(name); err != nil {
			return err
		}
	}
	delete(c.queues, name)
	return nil
}

// mark shows a queue as one that is being deleted.
func (c *memoryCatalog) mark(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := c.queues[name]
	config.Version = 0
	c.queues[name] = config
}

func (c *memoryCatalog) Queue(name string) (backend.QueueConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, ok := c.queues[name]
	return config, ok
}

func (c *memoryCatalog) setNode(n backend.Node) { c.node = n }

// of connects the catalog with a node.
func (c *memoryCatalog) of(n backend.Node) *memoryCatalog {
	c.setNode(n)
	return c
}

// Reconcile opens the partitions of a queue and sets its settings.
func (c *memoryCatalog) Reconcile(ctx context.Context, name string) (done backend.Reconciled, err error) {
	c.opening.RLock()
	defer c.opening.RUnlock()
	config, ok := c.Queue(name)
	if !ok || config.Deleting() {
		return backend.Reconciled{}, shardcall.BeingDeleted(name)
	}
	s := &queueService{Router: shardcall.Router{Node: c.node, Catalog: c}}
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

func (c *memoryCatalog) Queues() (all []backend.QueueConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		all = append(all, c.queues[name])
	}
	return all
}

func (c *memoryCatalog) RestoreQueue(_ context.Context, config backend.QueueConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[config.Name] = config
	return nil
}

func (c *memoryCatalog) ForRequest(string, string) backend.Catalog { return c }

func (c *memoryCatalog) Altered() <-chan struct{} { return nil }

func (c *memoryCatalog) Refresh(context.Context) error { return nil }

var errNoTokens = errors.New("a memoryCatalog keeps no tokens")

func (c *memoryCatalog) AddToken(context.Context, tokens.Record) error { return errNoTokens }

func (c *memoryCatalog) EndToken(context.Context, string, time.Time) (bool, error) {
	return false, errNoTokens
}

func (c *memoryCatalog) Tokens() []*tokens.Record { return nil }
