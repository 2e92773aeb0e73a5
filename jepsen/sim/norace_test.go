//go:build !race

package sim

// seedsDefault is how many seeds TestSim takes by default.
const seedsDefault = 2000
