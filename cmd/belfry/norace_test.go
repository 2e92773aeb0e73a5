//go:build !race

package main

// attackThinning is 1: floods are as large as they are said to be. attackMemory is what a node
// under attack may take, in KiB.
const (
	attackThinning = 1
	attackMemory   = 768 << 10
)
