//go:build !race

package rpc

// floodSize is how many callers send their worst at once.
const floodSize = 64
