//go:build race

package main

// Under the race detector a goroutine takes several times the memory, and the server's side of
// HTTP/2 is not ours to look at: attackThinning makes floods of it that many times smaller, and
// attackMemory, in KiB, is what a node under attack may take all the same.
const (
	attackThinning = 10
	attackMemory   = 2 << 20
)
