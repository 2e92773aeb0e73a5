package planted

// The mistakes by which a minority that is sick takes the service of the others along, or goes
// unseen.

func availabilityBugs() []Bug {
	puts := []string{"puts"}
	return []Bug{
		{
			Name: "unreached-leads", What: "a node that no other one can connect to keeps its leaderships, and is elected",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"undialable"},
			Edits: []Edit{{ // it treats every other node as reached, objects to none and reports none
				"cluster/routing/reachability.go",
				`return p.failures >= unreachedProbes && time.Since(p.reached) >= unreachedAfter`,
				`return p.failures >= unreachedProbes && time.Since(p.reached) >= unreachedAfter && !planted("unreached-leads")`,
			}},
		},
		{
			Name: "conditions-untold", What: "status is silent about a node whose disk is nearly full",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"disk-low"},
			Edits: []Edit{after("rpc/admin/clusterproblems.go", `for _, c := range v.members[i].Conditions {`,
				`if planted("conditions-untold") {
			break
		}`)},
		},
		{
			Name:   "leader-never-forgotten",
			What:   "a node sends calls to the first leader of a shard that it heard of, whoever leads now",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"kill-leader", "isolate-leader"},
			Edits: []Edit{{
				"cluster/routing/leaders.go", `case err == nil && server != "" && !c.distrusted(shard, server):
		return server`, `case err == nil && server != "" && planted("leader-never-forgotten"):
		return plantedFirst(shard, server)
	case err == nil && server != "" && !c.distrusted(shard, server):
		return server`,
			}},
		},
	}
}
