// Package metrics shows what a node measures, as the page /metrics for Prometheus: the node and its
// shards, namespaces with a quota, and queues. It declares what it needs of the node, and registers
// nothing itself.
package metrics
