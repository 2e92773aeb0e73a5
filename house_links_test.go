package belfry_test

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// ruleLink: a page names a file of the repository that is not there.
const ruleLink = "links/target"

var linkRuleNames = []string{ruleLink}

var (
	// pageLink is a Markdown link.
	pageLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	// pagePath is a file in code marks, from the root of the repository.
	pagePath = regexp.MustCompile("`((?:access|client|cluster|cmd|deploy|docs|fsm|jepsen|mirror|node|rpc)/[a-z0-9_/.-]+\\.(?:go|md|proto|yml|json))`")
)

// checkLinks reports links and file names in pages that lead nowhere. The changelog says what was, and may name what is gone.
func checkLinks(t *testing.T, fsys fs.FS) []finding {
	t.Helper()
	var found []finding
	err := walkFiles(fsys, func(name string) error {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, target := range targetsOf(path.Dir(name), line) {
				if _, err := fs.Stat(fsys, target); err != nil {
					found = append(found, finding{name, number, ruleLink, target + " is not there"})
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("reading the pages: %v", err)
	}
	return found
}

// targetsOf returns the files of the repository that a line of a page in dir names.
func targetsOf(dir, line string) (targets []string) {
	for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
		if !strings.Contains(m[1], ":") {
			targets = append(targets, path.Join(dir, m[1]))
		}
	}
	for _, m := range pagePath.FindAllStringSubmatch(line, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

var plantedLinks = []planted{
	{
		name: "pages",
		files: map[string]string{
			"README.md":    "[a](docs/a.md) [b](docs/b.md#top) [c](https://example.com/x) [d](#here)\n`node/a.go` `node/b.go` `go/c.go`\n",
			"docs/a.md":    "[up](../README.md), [gone](gone.md)\n",
			"CHANGELOG.md": "[gone](gone.md)\n",
			"node/a.go":    "package node\n",
		},
		want: []string{"README.md:1: links/target", "README.md:2: links/target", "docs/a.md:1: links/target"},
	},
}

func TestPlantedLinks(t *testing.T) {
	runPlanted(t, plantedLinks, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkLinks(t, p.fs())
	})
}
