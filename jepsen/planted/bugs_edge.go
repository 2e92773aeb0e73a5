package planted

// The mistakes between clients and leaders: at the edge, and between the nodes of a cluster.

func edgeBugs() []Bug {
	return []Bug{
		{
			Name: "answers-swapped", What: "the answers to a batch come in the reverse order",
			Claims: []string{"I36"}, Workloads: []string{"batches"},
			Edits: []Edit{after("rpc/shardcall/propose.go",
				`*a = Answer{Result: &reply.Results[i], Request: witness, Entry: uint32(i)}`, `if planted("answers-swapped") {
			a.Result = &reply.Results[len(part)-1-i]
		}`)},
		},
		{
			Name: "wrong-partition", What: "a put with an id goes to any partition of its queue",
			Claims: []string{"I30"}, Workloads: []string{"partitions"},
			Edits: []Edit{after("rpc/queue/put.go", `put.Partition = node.PartitionOf(put.ID, int(put.Partitions))`,
				`if planted("wrong-partition") {
			put.Partition = (put.Partition + s.putRotation.Add(1)) % put.Partitions
		}`)},
		},
	}
}

func clusterBugs() []Bug {
	return []Bug{
		{
			Name: "forward-repeated", What: "a call that was sent to a leader and not answered is sent again",
			Claims: []string{"I4"}, Workloads: []string{"puts", "partitions"}, Nemeses: []string{"corrupt"},
			Edits: []Edit{{"cluster/routing/peers.go", `case sent:`, `case sent && !planted("forward-repeated"):`}},
		},
		{
			Name:   "removed-node-serves",
			What:   "a node that was removed does not hear of it, and the others go on answering its calls",
			Claims: []string{"I31"}, Workloads: []string{"puts", "reads"}, Nemeses: []string{"replace-node"},
			Edits: []Edit{
				{"cluster/routing/peers.go", `if p.member == nil || p.member(server) {`,
					`if p.member == nil || p.member(server) || planted("removed-node-serves") {`},
				after("cmd/belfry/server/departed.go", `func (f *removalNotice) receive(left *catalog.DepartedError) {`,
					`if planted("removed-node-serves") {
		return
	}`),
			},
		},
	}
}
