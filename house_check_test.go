package belfry_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ruleCheckPage: make check does not know that tests of cmd/belfry read a file.
const ruleCheckPage = "check/page"

var checkRuleNames = []string{ruleCheckPage}

// readByCommandTests are the files without Go code that the tests of cmd/belfry read, besides those
// in its own folder. A "*" also stands for slashes, as in the script.
var readByCommandTests = []string{
	"README.md", "CONTRIBUTING.md", "go.mod", "docs/*.md", "mirror/README.md", "deploy/*", "Dockerfile",
	"docker-compose*", "buf.yaml", ".ci/lmstfy/*",
}

// checkCase is the line of .ci/check that has the patterns of such files.
var checkCase = regexp.MustCompile(`(?m)^\t(.+)\) deployed=true ;;$`)

// checkKnownPages reports files for which .ci/check would neither run the tests of cmd/belfry nor
// say that it did not.
func checkKnownPages(t *testing.T, fsys fs.FS) []finding {
	t.Helper()
	script, err := fs.ReadFile(fsys, ".ci/check")
	if err != nil {
		t.Fatalf("reading the script: %v", err)
	}
	line := checkCase.FindStringSubmatch(string(script))
	if line == nil {
		t.Fatal(".ci/check has no case for files that are deployed or shown")
	}
	var found []finding
	known := strings.Split(line[1], " | ")
	err = walkFiles(fsys, func(name string) error {
		if path.Ext(name) != ".go" && matchesAny(readByCommandTests, name) && !matchesAny(known, name) {
			found = append(found, finding{name, 0, ruleCheckPage, "a change of it alone does not name ./cmd/belfry"})
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walking the tree: %v", err)
	}
	return found
}

// matchesAny reports whether a pattern covers a name.
func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		expression := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		return regexp.MustCompile(expression).MatchString(name)
	})
}

var plantedChecks = []planted{
	{
		name: "pages that tests read",
		files: map[string]string{
			".ci/check":                  "\tcase $file in\n\tREADME.md | deploy/*) deployed=true ;;\n\tesac\n",
			"README.md":                  "Belfry\n",
			"CONTRIBUTING.md":            "Belfry\n",
			"CHANGELOG.md":               "Belfry\n",
			"deploy/prometheus/rules.md": "Alerts\n",
			"docs/decisions/0001.md":     "Why\n",
			"docs/picture.svg":           "<svg/>\n",
			"node/DESIGN.md":             "A node\n",
		},
		want: []string{"CONTRIBUTING.md:0: check/page", "docs/decisions/0001.md:0: check/page"},
	},
}

func TestCheckRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedChecks, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkKnownPages(t, p.fs())
	})
}
