package belfry_test

import "testing"

var plantedWords = []planted{
	{
		name: "standard words",
		files: map[string]string{
			"node/a.go": "package node\n\n// inflightEntry is in flight; the rest follows in turn.\ntype inflightEntry " +
				"struct{}\n\nfunc restart(entriesInFlight int) (rest []int) { return nil }\n",
			"LICENSE":                  "kick\n",
			"fsm/testdata/help.txt":    "a story\n",
			"rpc/belfry/v1/a.pb.go":    generatedHead + "package v1\n\ntype Heir struct{}\n",
			"node/a_test.go":           "package node\n\nfunc TestCallsTakeTurnsAndShare() {}\n",
			"README.md":                "Calls share a stream, in turn. Attempts are in flight.\n",
			"node/picture.png":         "\x89kick",
			"rpc/openapi/openapi.json": "{\"kick\": 1}\n",
		},
	},
	{
		name: "private words",
		files: map[string]string{
			"node/a.go": "package node\n\ntype claims struct{ turn int }\n\nfunc f(openFlights int) {\n\tpatience := " +
				"0\n\t_ = patience\n\tfor _, turn := range []int{} {\n\t\t_ = turn\n\t}\n}\n",
			"fsm/a.go":      "package fsm\n\n// drop keeps\n// the births.\nfunc buryQueue() {}\n",
			"jepsen/x/a.go": "package x\n\nconst rumoursMax = 1\n",
			"client/a.go": "package client\n\nvar HTTPKeeper, bellows int\n\nvar s = `a\nmended\n`\n\n" +
				"type t struct{ rest func() }\n",
			"cluster/x/a.go":               "package x\n\nfunc (s t) kick() {}\n\ntype t struct{}\n",
			"rpc/a.go":                     "package rpc\n\nfunc doShare(quota, shareCount int) {}\n",
			"node/a_test.go":               "package node\n\nfunc TestHeirLeads() {}\n",
			"docs/a.md":                    "The heir\nleads.\n",
			"Makefile":                     "all: kick-it\n",
			"deploy/prometheus/rules.yaml": "x: 'belfry_mirror_rung_total'\n",
			"node/admit/a.go":              "package admit\n\n// A share of the quota.\n",
			"docs/b.md":                    "A patience\nof its own.\n",
		},
		want: []string{
			"Makefile:1: words/page",
			"client/a.go:3: words/name", "client/a.go:6: words/string", "client/a.go:9: words/name",
			"cluster/x/a.go:3: words/name", "deploy/prometheus/rules.yaml:1: words/page", "docs/a.md:1: words/page",
			"fsm/a.go:4: words/comment", "fsm/a.go:5: words/name",
			"jepsen/x/a.go:3: words/name", "node/a.go:3: words/name", "node/a.go:5: words/name", "node/a.go:6: words/name",
			"node/a.go:8: words/name", "node/a_test.go:3: words/name", "node/admit/a.go:3: words/comment",
			"rpc/a.go:3: words/name", "rpc/gone.go:0: words/exception",
		},
	},
}

func TestPlantedWords(t *testing.T) {
	exceptions := map[string][]wordException{"private words": {
		{"patience heir", "docs/b.md", "patience", "planted"},
		{"patience", "rpc/gone.go", "", "planted"},
	}}
	runPlanted(t, plantedWords, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkWords(t, p.fs(), parsePlanted(t, p), exceptions[p.name])
	})
}
