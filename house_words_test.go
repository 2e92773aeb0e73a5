package belfry_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The rules about words. The field has a name for every mechanism here; docs/architecture.md has
// the few of our own.
const (
	ruleWordName    = "words/name"
	ruleWordComment = "words/comment"
)

var wordRuleNames = []string{ruleWordName, ruleWordComment}

// privateNames are words that names in a folder had once, and the field's words that they have now.
// A name is compared word by word, in lower case and without the s of a plural.
var privateNames = []struct {
	dirs     []string
	words    []string
	standard string
}{
	{[]string{"."}, []string{"birth", "entomb", "lacker", "rumour", "hearsay", "throng", "lobby", "farewell", "attendance",
		"seeker", "arbiter", "patience"}, "see the glossary"},
	{[]string{"fsm"}, []string{"born", "bury", "bear"}, "jobPayload, dropQueue"},
	{[]string{"node"}, []string{"flight", "land", "owing", "claim", "crowded", "pace", "hurry", "ticket", "taking", "kick",
		"turn"}, "inflightEntry, pendingGrants, contended, urgent, reservation"},
	{[]string{"cluster"}, []string{"lane", "kick", "turn", "story", "heir", "born", "bear", "bring", "mend"},
		"peerStream, forwardedCalls, placementStatus, replacement, reconcile"},
	{[]string{"rpc", "cmd/belfry/server"}, []string{"gate", "placed", "quick", "turn", "meeting"},
		"authenticator, authorizer, routedCommand, fastPath, bootstrap"},
	{[]string{"access"}, []string{"place"}, "Slot"},
	{[]string{"client"}, []string{"bell", "tower", "wave", "keeper", "verdict", "turn", "strange"},
		"broadcast, workerRun, leaseRenewer, handlerResult, batchGate"},
}

// privateWholeNames are names that were private as a whole, in a folder; each of their words may
// stand in others.
var privateWholeNames = []struct{ dir, name, standard string }{
	{".", "laneHost", "streamServer"}, {".", "lineRoom", "reservedShare"}, {".", "heardConn", "activityConn"},
	{".", "strangeAnswer", "foreignResponse"}, {".", "turnedAway", "authFailures"}, {".", "viaMessage", "slowPath"},
	{".", "doShare", "proposeToShard"},
	{"rpc", "stops", "pollInterrupts"}, {"rpc", "guard", "authorizer"}, {"cluster", "guard", "tokensRequiredBy"},
	{"cluster", "stays", "forwardedCalls"}, {"cluster", "tell", "explain"},
}

// privateWords are words that comments had once, with what they say now.
var privateWords = map[string]string{
	"births": "creation of queues", "entombed": "has a tombstone", "lacker": "quotaWaiter", "lackers": "quotaWaiters",
	"rumour": "leader hint", "rumours": "leader hints", "hearsay": "leader hint", "hearsays": "leader hints",
	"throng": "connlimit", "lobby": "notReadyServer", "farewell": "removalNotice", "attendance": "livenessRecord",
}

var commentWord = regexp.MustCompile(`[A-Za-z]+`)

// checkWords reports names and comments with a private word where the field has a standard one.
func checkWords(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if f.generated || inTree(f.dir, "jepsen/planted") || strings.HasPrefix(f.path, "house_") {
			continue
		}
		for _, name := range declaredNames(f.syntax) {
			if f.test && strings.HasPrefix(name.Name, "Test") {
				continue // a sentence, not a name
			}
			for _, rule := range privateWholeNames {
				if (rule.dir == "." || inTree(f.dir, rule.dir)) && strings.EqualFold(name.Name, rule.name) {
					found = append(found,
						f.finding(name.Pos(), ruleWordName, "%s: the field's name is another: %s", name.Name, rule.standard))
				}
			}
			for _, rule := range privateNames {
				if !slices.ContainsFunc(rule.dirs, func(dir string) bool { return dir == "." || inTree(f.dir, dir) }) {
					continue
				}
				for i, word := range wordsOf(name.Name) {
					if slices.Contains(rule.words, strings.TrimSuffix(word, "s")) && !inFlight(name.Name, i) {
						found = append(found,
							f.finding(name.Pos(), ruleWordName, "%s: the field's word for %q is another: %s", name.Name, word,
								rule.standard))
					}
				}
			}
		}
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				for _, word := range commentWord.FindAllString(c.Text, -1) {
					if standard := privateWords[strings.ToLower(word)]; standard != "" {
						found = append(found, f.finding(c.Pos(), ruleWordComment, "%q: write %s", word, standard))
					}
				}
			}
		}
	}
	return found
}

// declaredNames returns the names that a file declares, those of fields, parameters and variables
// included.
func declaredNames(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if name, ok := x.(*ast.Ident); ok && n.Tok.String() == ":=" {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// wordsOf returns the words of a name in camel case, in lower case.
func wordsOf(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			words = append(words, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return words
}

// inFlight reports whether a word of a name is the second of "in flight", which is the field's.
func inFlight(name string, i int) bool {
	words := wordsOf(name)
	return words[i] == "flight" && i > 0 && words[i-1] == "in"
}

var plantedWords = []planted{
	{
		name: "standard words",
		files: map[string]string{
			"node/a.go": "package node\n\n// inflightEntry is in flight.\ntype inflightEntry struct{}\n\nfunc " +
				"born(entriesInFlight int) {}\n",
		},
	},
	{
		name: "private words",
		files: map[string]string{
			"node/a.go": "package node\n\ntype claims struct{ turn int }\n\nfunc f(openFlights int) {\n\tpatience := " +
				"0\n\t_ = patience\n}\n",
			"fsm/a.go":       "package fsm\n\n// drop keeps the births.\nfunc buryQueue() {}\n",
			"jepsen/x/a.go":  "package x\n\nconst rumoursMax = 1\n",
			"client/a.go":    "package client\n\nvar HTTPKeeper, bellows int\n",
			"cluster/x/a.go": "package x\n\nfunc (s t) kick() {}\n\ntype t struct{}\n",
			"rpc/a.go":       "package rpc\n\nfunc doShare(quota, shareCount int) {}\n",
		},
		want: []string{
			"client/a.go:3: words/name", "cluster/x/a.go:3: words/name", "fsm/a.go:3: words/comment", "fsm/a.go:4: words/name",
			"jepsen/x/a.go:3: words/name", "node/a.go:3: words/name", "node/a.go:5: words/name", "node/a.go:6: words/name",
			"rpc/a.go:3: words/name",
		},
	},
}

func TestPlantedWords(t *testing.T) {
	runPlanted(t, plantedWords, func(t *testing.T, p planted) []finding { return checkWords(parsePlanted(t, p)) })
}
