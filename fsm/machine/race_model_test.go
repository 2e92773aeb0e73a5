//go:build race

package machine_test

// seedsDefault is smaller under the race detector, which slows the model down tenfold and has
// little to see in it: only snapshots that are written beside entries run in a second goroutine.
const seedsDefault = 150
