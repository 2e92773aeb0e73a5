//go:build !race

package rpc

// crowdSize is how many callers send their worst at once.
const crowdSize = 64
