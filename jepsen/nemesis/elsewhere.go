package nemesis

// FaultsMax is the highest number of a fault. The numbers are those of jepsen/README.md.
const FaultsMax = 63

// Elsewhere is a fault that no nemesis injects.
type Elsewhere struct {
	// Number is that of the fault in jepsen/README.md.
	Number int
	Fault  string
	// Workload is the one that brings it; empty if none does.
	Workload string
	// Feature is what Belfry has to have first; empty if a workload brings it.
	Feature string
}

// NotInjected returns the faults that no nemesis injects, by number: those that clients bring, and
// the parts that wait for a feature.
func NotInjected() []Elsewhere {
	return []Elsewhere{
		{Number: 51, Fault: "split of a shard", Feature: "shards whose number changes; it is fixed when a cluster is " +
			"founded"},
		{Number: 54, Fault: "workers who die with their jobs", Workload: "deaths"},
		{Number: 55, Fault: "calls of unknown outcome, repeated", Workload: "repeats"},
		{Number: 56, Fault: "acks with stale leases", Workload: "stall"},
		{Number: 57, Fault: "hundreds of jobs due at once", Workload: "herd"},
	}
}
