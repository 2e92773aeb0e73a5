//go:build race

package storage_test

// thinning makes the tests that go through every step or byte try one of so many under the race
// detector, which slows them down tenfold and has little to see in them: one goroutine reads and
// writes. They try all in a run without it.
const thinning = 7
