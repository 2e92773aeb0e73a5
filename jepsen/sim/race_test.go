//go:build race

package sim

// seedsDefault is smaller here: each seed is one goroutine, in which the race detector has nothing
// to find.
const seedsDefault = 100
