package planted

// The mistakes by which a minority that is sick takes the service of the others along, or goes unseen.

func availabilityBugs() []Bug {
	puts := []string{"puts"}
	return []Bug{
		{
			Name: "unreached-leads", What: "a node that no other one can connect to keeps its leaderships, and is elected",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"undialable"},
			Edits: []Edit{neverUnreached()},
		},
		{
			Name: "full-disk-leads", What: "a node whose disk is nearly full keeps its leaderships",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"disk-low"},
			Edits: []Edit{skipping("cluster/leadershed.go", `len(m.host.Conditions()) > 0`, "full-disk-leads")},
		},
		{
			Name: "conditions-untold", What: "status is silent about a node whose disk is nearly full",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"disk-low"},
			Edits: []Edit{after("rpc/clusterproblems.go", `for _, c := range v.members[i].Conditions {`, `if planted("conditions-untold") {
			break
		}`)},
		},
		{
			Name: "silent-node-untold", What: "status is silent about a node that does not answer",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"kill-one", "pause-one"},
			Edits: []Edit{unless("silent-node-untold", "rpc/clusterproblems.go", `all = append(all, "node "+v.label(m)+" does not answer")`)},
		},
		{
			Name: "dead-path-taken", What: "calls to a node that is not reached go straight there all the same, and wait there",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"partial"},
			Edits: []Edit{neverUnreached(), before("cluster/reachability.go", `via := ""`, `if planted("dead-path-taken") {
		return "", nil
	}`)},
		},
		{
			Name: "leader-never-forgotten", What: "a node sends calls to the first leader of a shard that it heard of, whoever leads now",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"kill-leader", "isolate-leader"},
			Edits: []Edit{{
				"cluster/leaders.go", `case err == nil && server != "" && !r.leaders.distrusted(shard, server):
		return server`, `case err == nil && server != "" && planted("leader-never-forgotten"):
		return plantedFirst(shard, server)
	case err == nil && server != "" && !r.leaders.distrusted(shard, server):
		return server`,
			}},
		},
		{
			Name: "reserve-refused-for-good", What: "a node that lost the leader of a shard during a reserve refuses all further reserves of that shard, and takes puts",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"kill-leader", "isolate-leader"},
			Edits: []Edit{
				after("cluster/router.go", `to, grace := p.target(server, shard), time.Duration(0)`, `if planted("reserve-refused-for-good") && plantedLost(shard, nil) {
			return node.ErrNoLeader
		}`),
				after("cluster/router.go", `reply, err = r.peers.reserve(ctx, to, req, wait)`, `if planted("reserve-refused-for-good") {
				plantedLost(shard, err)
			}`),
			},
		},
		{
			Name: "disk-unwatched", What: "a leader whose disk hangs is not ended, and leads on",
			Claims: []string{"I39"}, Workloads: puts, Nemeses: []string{"disk-hung"},
			Edits: []Edit{unless("disk-unwatched", "node/storage/watchdog.go", `go v.dog.fire(v.op, v.dog.limit)`)},
		},
	}
}

// neverUnreached makes a node treat every other one as reached: it objects to none, and reports none to
// placement and status.
func neverUnreached() Edit {
	const condition = `return p.failures >= unreachedProbes && time.Since(p.reached) >= unreachedAfter`
	return Edit{"cluster/reachability.go", condition, condition + ` && !planted("unreached-leads") && !planted("dead-path-taken")`}
}
