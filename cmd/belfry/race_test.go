//go:build race

package main

// Under the race detector a goroutine takes several times the memory, a TLS handshake several times
// the processor time, and the server's side of HTTP/2 is not ours to look at.
const (
	// attackThinning makes floods of HTTP/2 that many times smaller.
	attackThinning = 10
	// attackFiles is how many files a node under attack may have open; half of them are connections of
	// clients.
	attackFiles = 600
	// attackMemory, in KiB, is what a node under attack may take.
	attackMemory = 2 << 20
)
