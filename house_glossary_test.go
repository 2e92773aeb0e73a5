package belfry_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules about the glossary in docs/architecture.md.
const (
	ruleGlossaryMissing = "glossary/missing" // a word of our own without a row
	ruleGlossaryUnknown = "glossary/unknown" // a row of a word that is not in the list here
	ruleGlossaryOrder   = "glossary/order"   // a row that is not in alphabetical order, or there twice
	ruleGlossaryUnused  = "glossary/unused"  // a word that no source uses
)

var glossaryRuleNames = []string{ruleGlossaryMissing, ruleGlossaryUnknown, ruleGlossaryOrder, ruleGlossaryUnused}

const glossaryHeading = "## 6. Glossary"

// ownWords are the words with a meaning that is Belfry's own. A private word is allowed only here,
// with a sentence in the glossary. Words that etcd, Kafka, gRPC or the standard library have for the
// same thing need no row.
var ownWords = []string{
	"admission", "bridge", "catalog", "claim", "condition", "digest", "drain", "epoch", "Expire", "fence", "format",
	"founding", "gate", "grant", "group", "high-water mark", "hold", "home shard", "incarnation", "journal", "Lead",
	"lease", "ledger", "membership", "min-voters", "namespace", "pacer", "pair", "partition", "pendingGrants",
	"placement", "quarantine", "QueueLimit", "relay", "request id", "reservation", "serial", "server id", "session",
	"settle", "shard", "shard quota", "shard time", "slot", "stamp", "tenant", "throttle", "tombstone", "waiter",
	"wish", "witness",
}

// glossaryRow is a row of a table in Markdown: the word and what it means.
var glossaryRow = regexp.MustCompile(`^\| ([^|]+) \| [^|]+ \|$`)

// checkGlossary compares the glossary with a list of words, both ways, and looks for each word in
// the sources.
func checkGlossary(t *testing.T, fsys fs.FS, src *tree, words []string) []finding {
	t.Helper()
	text, err := fs.ReadFile(fsys, architecturePage)
	if err != nil {
		t.Fatalf("reading the glossary: %v", err)
	}
	var found []finding
	var rows []string
	inGlossary := false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "#") {
			inGlossary = line == glossaryHeading
		}
		row := glossaryRow.FindStringSubmatch(line)
		if !inGlossary || row == nil || row[1] == "word" || strings.Trim(row[1], "-") == "" {
			continue
		}
		at := finding{path: architecturePage, line: i + 1}
		if !slices.Contains(words, row[1]) {
			at.rule, at.text = ruleGlossaryUnknown, row[1]+" is not in ownWords"
			found = append(found, at)
		}
		if n := len(rows); n > 0 && strings.ToLower(rows[n-1]) >= strings.ToLower(row[1]) {
			at.rule, at.text = ruleGlossaryOrder, row[1]+" stands after "+rows[n-1]
			found = append(found, at)
		}
		rows = append(rows, row[1])
	}
	for _, word := range words {
		if !slices.Contains(rows, word) {
			found = append(found, finding{architecturePage, 0, ruleGlossaryMissing, word + " has no row in the glossary"})
		}
		if !slices.ContainsFunc(src.files, func(f *sourceFile) bool { return uses(f, word) }) {
			found = append(found, finding{architecturePage, 0, ruleGlossaryUnused, word + " is in no source"})
		}
	}
	return found
}

// uses reports whether a source has a word, in a name or in prose.
func uses(f *sourceFile, word string) bool {
	if strings.HasPrefix(f.path, "house_") {
		return false
	}
	text := strings.ToLower(f.text)
	word = strings.ToLower(word)
	return strings.Contains(text, word) || strings.Contains(text, strings.ReplaceAll(word, " ", ""))
}

var plantedGlossary = []planted{
	{
		name: "rows",
		files: map[string]string{
			architecturePage: "# A map\n\n| word | meaning |\n|---|---|\n| other | of another table |\n\n" +
				glossaryHeading + "\n\n| word | meaning |\n|---|---|\n| fence | A number. |\n| stray | Not listed. |\n" +
				"| Lead | A command. |\n| server id | A name. |\n| wish | Of nothing. |\n",
			"node/a.go": "package node\n\n// A fence, and a serverID.\ntype Lead struct{}\n",
		},
		want: []string{
			architecturePage + ":0: glossary/missing", architecturePage + ":0: glossary/unused",
			architecturePage + ":12: glossary/unknown", architecturePage + ":13: glossary/order",
		},
	},
}

func TestPlantedGlossary(t *testing.T) {
	words := []string{"fence", "Lead", "lease", "server id", "wish"}
	runPlanted(t, plantedGlossary, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkGlossary(t, p.fs(), parsePlanted(t, p), words)
	})
}
