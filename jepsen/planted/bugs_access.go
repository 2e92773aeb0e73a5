package planted

// These are mistakes in the rights of callers, and in their limits.

func accessBugs() []Bug {
	return []Bug{
		{
			Name:   "deleted-token-lives",
			What:   "a token that was deleted is forgotten by the catalog, and goes on being accepted by nodes that knew it",
			Claims: []string{"I37"}, Workloads: []string{"access"},
			Edits: []Edit{before("cluster/catalog/tokens.go", `m.access.Store(&a)`, `if planted("deleted-token-lives") {
		maps.Copy(a.tokens, m.access.Load().tokens)
	}`)},
		},
		{
			Name: "share-granted-twice", What: "each shard lets in what a namespace may have in all of them",
			Claims: []string{"I37"}, Workloads: []string{"access"},
			Edits: []Edit{before("node/admit/quota.go", `s.refillTo(now) // at the old rate`,
				`if planted("share-granted-twice") {
			quota.Granted = quota.Quota
		}`)},
		},
	}
}
