package server

import (
	"context"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
)

// TEMPORARY until the cluster package lands
type memoryCatalog struct{ m map[string]rpc.QueueConfig }

func openCatalog(ctx context.Context, n *node.Node) (rpc.Catalog, error) {
	return &memoryCatalog{map[string]rpc.QueueConfig{}}, nil
}
func (c *memoryCatalog) CreateQueue(ctx context.Context, name string, partitions uint32, settings fsm.Settings) (rpc.QueueConfig, error) {
	c.m[name] = rpc.QueueConfig{Name: name, Partitions: partitions, Version: 1, Settings: settings}
	return c.m[name], nil
}
func (c *memoryCatalog) UpdateQueue(ctx context.Context, name string, change func(fsm.Settings) fsm.Settings) (rpc.QueueConfig, error) {
	q, ok := c.m[name]
	if !ok {
		q = rpc.QueueConfig{Name: name, Partitions: 1}
	}
	q.Version++
	q.Settings = change(q.Settings)
	c.m[name] = q
	return q, nil
}
func (c *memoryCatalog) DeleteQueue(ctx context.Context, name string) error {
	delete(c.m, name)
	return nil
}
func (c *memoryCatalog) Queue(name string) (rpc.QueueConfig, bool) { q, ok := c.m[name]; return q, ok }
