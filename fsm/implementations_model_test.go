package fsm_test

import (
	"testing"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/model"
)

// implementation is one way to be a shard.
type implementation struct {
	name string
	open func(t testing.TB, cfg fsm.Config) shard
}

func implementations() []implementation {
	return []implementation{
		{"model", func(_ testing.TB, cfg fsm.Config) shard { return modelShard{model.New(cfg)} }},
	}
}
