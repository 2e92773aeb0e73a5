//go:build race

package rpc

// floodSize is how many callers send their worst at once; fewer under the race detector, which
// slows reading megabytes down tenfold.
const floodSize = 16
