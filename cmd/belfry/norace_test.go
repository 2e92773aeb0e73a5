//go:build !race

package main

// Without the race detector attacks are as large as they are said to be; race_test.go says what
// these are.
const (
	attackThinning = 1
	attackFiles    = 1500
	attackMemory   = 768 << 10
)
