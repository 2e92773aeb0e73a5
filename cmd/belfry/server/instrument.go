//go:build !jepsen

package server

import "github.com/belfrydb/belfry/node"

// instrument leaves the node as it is. A build with the tag "jepsen" has another one, for fault injection.
func instrument(cfg node.Config) (node.Config, error) { return cfg, nil }
