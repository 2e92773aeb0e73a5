package belfry_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// A finding is one place where a source tree breaks a rule of the house.
type finding struct {
	path string // slash-separated, from the root of the tree
	line int    // 0 for the file as a whole
	rule string // one of the rule… constants
	text string // what is wrong and why it matters
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.text) }

// short is the finding without its prose, for comparison with what a planted tree expects.
func (f finding) short() string { return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.rule) }

// tidied orders findings by place and keeps one of a rule per line.
func tidied(findings []finding) []finding {
	byPlace := func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line), cmp.Compare(a.rule, b.rule))
	}
	slices.SortFunc(findings, byPlace)
	return slices.CompactFunc(findings, func(a, b finding) bool { return byPlace(a, b) == 0 })
}

// houseRules lists every rule, so that TestEveryRuleIsProven can ask for a planted violation of
// each.
var houseRules = slices.Concat(importRuleNames, processRuleNames, purityRuleNames, sizeRuleNames, roomRuleNames,
	hygieneRuleNames, wordRuleNames, linkRuleNames, mapRuleNames, nameRuleNames,
	glossaryRuleNames, arrowRuleNames, pageRuleNames, checkRuleNames)

func TestHouse(t *testing.T) {
	fsys := os.DirFS(".")
	src, err := parseTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	lookup := exportsOf(t, ".", slices.Concat(pureImports(src), outsideImports(src)))
	for _, check := range []struct {
		name     string
		findings func() []finding
	}{
		{"imports", func() []finding { return checkImports(src) }},
		{"import rows", func() []finding { return checkRows(src, importTable) }},
		{"process", func() []finding { return checkProcess(src) }},
		{"purity", func() []finding { return checkPurity(src, lookup) }},
		{"size", func() []finding { return checkSize(src) }},
		{"rooms", func() []finding { return checkRooms(src) }},
		{"links", func() []finding { return checkLinks(t, fsys) }},
		{"map", func() []finding { return checkMap(t, fsys, src) }},
		{"names", func() []finding { return checkNames(t, src, fsys) }},
		{"glossary", func() []finding { return checkGlossary(t, fsys, src, ownWords) }},
		{"arrows", func() []finding { return checkArrows(arrowsOf(t, src, lookup)) }},
		{"pages", func() []finding { return checkDesignPages(designWords(t, fsys)) }},
		{"check", func() []finding { return checkKnownPages(t, fsys) }},
		{"words", func() []finding { return checkWords(t, fsys, src, wordExceptions) }},
		{"hygiene", func() []finding { return checkHygiene(t, fsys, machinePaths(t)) }},
	} {
		t.Run(check.name, func(t *testing.T) {
			for _, f := range tidied(check.findings()) {
				t.Errorf("%v", f)
			}
		})
	}
}

// machinePaths returns the directories of this machine that must not be written into a file of the
// repository.
func machinePaths(t *testing.T) []string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatalf("asking for the root of the module: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		t.Fatalf("asking go for its caches: %v", err)
	}
	return append(strings.Fields(string(out)), root)
}

// A planted tree breaks rules on purpose: it maps file names to sources, and names what must be
// reported, and nothing else.
type planted struct {
	name  string
	files map[string]string
	want  []string // as finding.short
}

// plantedTrees collects the planted violations of every rule.
var plantedTrees = slices.Concat(plantedImports, plantedRows, plantedProcess, plantedPurity, plantedSize, plantedRooms,
	plantedHygiene, plantedWords, plantedLinks, plantedMap, plantedNames, plantedGlossary, plantedArrows,
	plantedPages, plantedChecks)

// runPlanted runs one check over each planted tree and compares what it reports with what it must
// report.
func runPlanted(t *testing.T, trees []planted, check func(t *testing.T, p planted) []finding) {
	t.Helper()
	for _, p := range trees {
		t.Run(p.name, func(t *testing.T) {
			var got []string
			for _, f := range tidied(check(t, p)) {
				got = append(got, f.short())
			}
			if diff := gocmp.Diff(p.want, got); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryRuleIsProven(t *testing.T) {
	proven := make(map[string]bool)
	for _, p := range plantedTrees {
		for _, short := range p.want {
			proven[short[strings.LastIndex(short, " ")+1:]] = true
		}
	}
	for _, rule := range houseRules {
		if !proven[rule] {
			t.Errorf("rule %s has no planted violation", rule)
		}
	}
	for rule := range proven {
		if !slices.Contains(houseRules, rule) {
			t.Errorf("a planted tree expects rule %s, which is in no list of rules", rule)
		}
	}
}

// parsePlanted parses a planted tree; its sources must at least be Go.
func parsePlanted(t *testing.T, p planted) *tree {
	t.Helper()
	src, err := parseTree(p.fs())
	if err != nil {
		t.Fatalf("planted source: %v", err)
	}
	return src
}
