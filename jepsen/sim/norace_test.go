//go:build !race

package sim

// seedsDefault is how many seeds TestSim takes if nobody says otherwise.
const seedsDefault = 2000
