//go:build !race

package storage_test

// thinning is 1 where every step and byte is tried.
const thinning = 1
