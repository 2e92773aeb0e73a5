package planted

// The mistakes of a replica: in its snapshots, its votes and its reads.

func snapshotBugs() []Bug {
	return []Bug{
		{
			Name: "snapshot-loses-jobs", What: "a snapshot is without every eighth job",
			Claims: []string{"I25"}, Workloads: []string{"puts"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(Edit{
				"fsm/store/pinned.go", `return j.Serial != 0 }`,
				`return j.Serial != 0 && (j.Serial%8 != 0 || !planted("snapshot-loses-jobs")) }`,
			}),
		},
		{
			Name: "serial-from-jobs", What: "after a snapshot was restored, ids and fences go on from how many jobs are there",
			Claims: []string{"I6"}, Workloads: []string{"puts"}, Nemeses: []string{"lag-install", "kill-all"},
			Edits: believing(
				after("fsm/machine/restore.go",
					`m.scalars = fsm.Scalars{Clock: r.Time(), Serial: r.Uvarint(), QueuesCreated: r.Uvarint(), LowWater: r.Time()}`,
					`if planted("serial-from-jobs") {
			m.scalars.Serial = 0
		}`),
				after("fsm/machine/restore.go", `m.set(m.storeHeldJob(q, &v), v.State, v.Due)`, `if planted("serial-from-jobs") {
		m.scalars.Serial++
	}`),
			),
		},
	}
}

// believing are edits of a snapshot, with those that leave out the product's own checks of what was
// restored.
func believing(edits ...Edit) []Edit {
	names := []string{"snapshot-loses-jobs", "serial-from-jobs", "checksum-ignored"}
	return append(edits,
		skipping("fsm/machine/restore.go", `got != want`, names...),
		skipping("fsm/machine/restore.go", `got != rs.digest`, names...),
		skipping("node/raftgroup/restore.go", `want != nil && want.known && want.digest != machine.Digest()`, names...),
	)
}

func replicaBugs() []Bug {
	return []Bug{
		{
			Name:   "silence-is-consent",
			What:   "a voter that does not answer a candidate within 200 ms counts as if it had voted for it",
			Claims: []string{"I29"}, Workloads: []string{"puts"}, Nemeses: []string{"isolate-leader"},
			Edits: []Edit{voteOf("RequestVote"), voteOf("RequestPreVote")},
		},
		{
			Name: "follower-reads", What: "a read is answered as current by whichever replica was asked",
			Claims: []string{"I34"}, Workloads: []string{"puts", "reads"},
			Nemeses: []string{"isolate-one"}, // without it a follower is seldom late enough to be seen
			Edits: []Edit{before("node/shard.go", `l, err := s.Leadership()`,
				`if _, recalls := q.(*fsm.RecallQuery); !recalls && planted("follower-reads") {
		return s.peek(q)
	}`)},
		},
	}
}

// voteOf takes silence for a vote of the given kind.
func voteOf(kind string) Edit {
	return before("node/peer/transport.go",
		"return overBroken(func() error { return t.NetworkTransport."+kind+"(id, target, req, resp) })",
		`if planted("silence-is-consent") {
		var heard raft.`+kind+`Response
		if plantedHeard(func() error { return t.NetworkTransport.`+kind+`(id, target, req, &heard) }) {
			*resp = heard
		} else {
			resp.Term, resp.Granted = req.Term, true
		}
		return nil
	}`)
}
