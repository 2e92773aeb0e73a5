package planted

// The mistakes in who may do what, and how much.

func accessBugs() []Bug {
	// One condition has both mistakes.
	record := Edit{
		"rpc/access.go", `if record == nil || !record.Hash.Equal(who.hash) || record.Expired(g.now()) {`,
		`if record == nil || !record.Hash.Equal(who.hash) && !planted("secret-ignored") || record.Expired(g.now()) && !planted("expired-token-lives") {`,
	}
	return []Bug{
		{
			Name: "secret-ignored", What: "a token is known by its id, whatever its secret is",
			Claims: []string{"I37"}, Workloads: []string{"access"}, Edits: []Edit{record},
		},
		{
			Name: "expired-token-lives", What: "the end of a token is kept, and not looked at",
			Claims: []string{"I37"}, Workloads: []string{"access"}, Edits: []Edit{record},
		},
		{
			Name: "deleted-token-lives", What: "a token that was deleted is forgotten by the catalog, and goes on being accepted by nodes that knew it",
			Claims: []string{"I37"}, Workloads: []string{"access"},
			Edits: []Edit{before("cluster/tokens.go", `m.access.Store(&a)`, `if planted("deleted-token-lives") {
		maps.Copy(a.tokens, m.access.Load().tokens)
	}`)},
		},
		{
			Name: "scope-ignored", What: "who may put into one queue may put into all, so that tenants meet",
			Claims: []string{"I37"}, Workloads: []string{"access"},
			Edits: []Edit{before("rpc/access.go", `switch {
	case g == nil:
		return true`, `if g != nil && g.action == tokens.Put && planted("scope-ignored") {
		return true
	}`)},
		},
		{
			Name: "share-granted-twice", What: "each shard lets in what a namespace may have in all of them",
			Claims: []string{"I37"}, Workloads: []string{"access"},
			Edits: []Edit{before("node/quota.go", `s.refillTo(now) // at the old rate`, `if planted("share-granted-twice") {
			share.Granted = share.Quota
		}`)},
		},
	}
}
