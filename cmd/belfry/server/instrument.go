//go:build !jepsen

package server

import "github.com/belfrydb/belfry/node"

// instrument does not change the node. A build with the tag "jepsen" has another instrument, for
// fault injection.
func instrument(cfg node.Config) (node.Config, error) { return cfg, nil }
