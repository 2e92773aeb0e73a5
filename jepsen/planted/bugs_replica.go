package planted

// The mistakes of a replica: in its snapshots, and in what it has different from the others.

func snapshotBugs() []Bug {
	return []Bug{
		{
			Name: "snapshot-loses-jobs", What: "a snapshot is without every eighth job",
			Claims: []string{"I25"}, Workloads: []string{"puts"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(Edit{
				"fsm/snapshot.go", `if page[i].serial != 0 {`, `if page[i].serial != 0 && (page[i].serial%8 != 0 || !planted("snapshot-loses-jobs")) {`,
			}),
		},
		{
			Name: "snapshot-loses-tombstones", What: "a snapshot is without the ids of jobs that have ended",
			Claims: []string{"I25"}, Workloads: []string{"puts", "repeats"}, Nemeses: []string{"lag-install", "restart"},
			Edits: believing(Edit{"fsm/snapshot.go", `if t.serial == 0 {`, `if t.serial == 0 || planted("snapshot-loses-tombstones") {`}),
		},
		{
			Name: "snapshot-loses-requests", What: "a snapshot is without the requests that are remembered, so that after a start of all nodes a repeat is done again",
			Claims: []string{"I25"}, Workloads: []string{"repeats"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(Edit{"fsm/snapshot.go", `if a.seq != ref.seq {`, `if a.seq != ref.seq || planted("snapshot-loses-requests") {`}),
		},
		{
			Name: "snapshot-loses-leases", What: "the jobs that somebody holds are ready in a snapshot",
			Claims: []string{"I25"}, Workloads: []string{"stall", "deaths"}, Nemeses: []string{"lag-install", "restart"},
			Edits: believing(Edit{
				"fsm/snapshot.go", `dst = append(dst, byte(j.state()), byte(j.priority), byte(flags))`, `state := j.state()
	if state == Reserved && planted("snapshot-loses-leases") {
		state = Ready
	}
	dst = append(dst, byte(state), byte(j.priority), byte(flags))`,
			}),
		},
		{
			Name: "snapshot-loses-counters", What: "the counters of queues begin at 0 after a snapshot was restored",
			Claims: []string{"I33"}, Workloads: []string{"puts", "admin"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(after("fsm/snapshot.go", `r.counts(&q.Counts, &q.Counters)`, `if planted("snapshot-loses-counters") {
		q.Counters = Counters{}
	}`)),
		},
		{
			Name: "serial-from-jobs", What: "after a snapshot was restored, ids and fences go on from how many jobs are there",
			Claims: []string{"I6"}, Workloads: []string{"puts"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(
				after("fsm/restore.go", `m.scalars = Scalars{Clock: r.time(), Serial: r.uvarint(), QueuesCreated: r.uvarint(), LowWater: r.time()}`, `if planted("serial-from-jobs") {
			m.scalars.Serial = 0
		}`),
				after("fsm/restore.go", `m.set(m.storeHeldJob(q, &v), v.State, v.Due)`, `if planted("serial-from-jobs") {
		m.scalars.Serial++
	}`),
			),
		},
		{
			Name: "snapshot-not-restored", What: "a node takes over the index of a snapshot, and not its state (rqlite)",
			Claims: []string{"I25"}, Workloads: []string{"puts"}, Nemeses: []string{"lag-install", "restart"},
			Edits: []Edit{unless("snapshot-not-restored", "node/replica.go", `r.machine = machine`)},
		},
	}
}

// believing are edits of a snapshot, with those that leave out the product's own checks of what was restored.
func believing(edits ...Edit) []Edit {
	names := []string{
		"snapshot-loses-jobs", "snapshot-loses-tombstones", "snapshot-loses-requests", "snapshot-loses-leases", "snapshot-loses-counters", "serial-from-jobs",
		"checksum-ignored",
	}
	return append(edits,
		skipping("fsm/restore.go", `got != want`, names...),
		skipping("fsm/restore.go", `got != rs.digest`, names...),
		skipping("node/replica.go", `want != nil && want.known && want.digest != machine.Digest()`, names...),
	)
}

func replicaBugs() []Bug {
	return []Bug{
		{
			Name: "limits-differ", What: "one node remembers fewer finished leases than the others",
			Claims: []string{"I25"}, Workloads: []string{"puts"},
			Edits: []Edit{before("node/node.go", `if cfg.Machine.Seed == 0 {`, `if planted("limits-differ") && cfg.Name[len(cfg.Name)-1]%3 == 0 {
		cfg.Machine.FinishedMax = 8
	}`)},
		},
		{
			Name: "silence-is-consent", What: "a voter that does not answer a candidate within 200 ms counts as if it had voted for it",
			Claims: []string{"I29"}, Workloads: []string{"puts"}, Nemeses: []string{"isolate-leader"},
			Edits: []Edit{voteOf("RequestVote"), voteOf("RequestPreVote")},
		},
		{
			Name: "follower-reads", What: "a read is answered as current by whichever replica was asked",
			Claims: []string{"I34"}, Workloads: []string{"puts", "reads"},
			Edits: []Edit{before("node/shard.go", `l, err := s.leader()`, `if _, recalls := q.(*fsm.RecallQuery); !recalls && planted("follower-reads") {
		return s.peek(q)
	}`)},
		},
	}
}

// voteOf takes silence for a vote of the given kind.
func voteOf(kind string) Edit {
	return before("node/rafttransport.go", "return overBroken(func() error { return t.NetworkTransport."+kind+"(id, target, req, resp) })", `if planted("silence-is-consent") {
		var heard raft.`+kind+`Response
		if plantedHeard(func() error { return t.NetworkTransport.`+kind+`(id, target, req, &heard) }) {
			*resp = heard
		} else {
			resp.Term, resp.Granted = req.Term, true
		}
		return nil
	}`)
}
