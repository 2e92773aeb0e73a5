//go:build !race

package machine_test

// seedsDefault is what a run without the race detector tries; it also meets every outcome there is.
const seedsDefault = coverageSeeds
