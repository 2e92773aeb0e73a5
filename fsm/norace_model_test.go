//go:build !race

package fsm_test

// seedsDefault is what a run without the race detector tries; it also meets every outcome there is.
const seedsDefault = coverageSeeds
