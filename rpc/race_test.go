//go:build race

package rpc

// crowdSize is how many callers send their worst at once; fewer under the race detector, which slows reading megabytes down tenfold.
const crowdSize = 16
