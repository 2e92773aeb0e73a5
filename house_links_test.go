package belfry_test

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const (
	// ruleLink: a page names a file of the repository that is not there.
	ruleLink = "links/target"
	// ruleAnchor: a link names a heading that its page does not have.
	ruleAnchor = "links/heading"
)

var linkRuleNames = []string{ruleLink, ruleAnchor}

var (
	// pageLink is a Markdown link.
	pageLink = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	// pageHeading is a heading of Markdown.
	pageHeading = regexp.MustCompile(`(?m)^#+ +(.*?)\s*$`)
	// pagePath is a file in code marks, from the root of the repository.
	pagePath = regexp.MustCompile(
		"`((?:access|client|cluster|cmd|deploy|docs|fsm|jepsen|mirror|node|rpc)/[a-z0-9_/.-]+\\.(?:go|md|proto|yml|json))`")
)

// checkLinks reports links and file names in pages that lead nowhere. The changelog says what was,
// and may name what is gone.
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
			for _, heading := range missingHeadings(fsys, name, line) {
				found = append(found, finding{name, number, ruleAnchor, "there is no heading " + heading})
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
		if m[1] != "" && !strings.Contains(m[1], ":") {
			targets = append(targets, path.Join(dir, m[1]))
		}
	}
	for _, m := range pagePath.FindAllStringSubmatch(line, -1) {
		targets = append(targets, m[1])
	}
	return targets
}

// missingHeadings returns what a line of a page links to in pages that have no such heading. A page
// that is not there is reported otherwise.
func missingHeadings(fsys fs.FS, page, line string) (missing []string) {
	for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
		target := page
		if m[1] != "" {
			target = path.Join(path.Dir(page), m[1])
		}
		if m[2] == "" || strings.Contains(m[1], ":") || path.Ext(target) != ".md" {
			continue
		}
		text, err := fs.ReadFile(fsys, target)
		if err == nil && !hasAnchor(string(text), m[2][1:]) {
			missing = append(missing, target+m[2])
		}
	}
	return missing
}

// hasAnchor reports whether a page has a heading with an anchor, as GitHub makes anchors.
func hasAnchor(text, anchor string) bool {
	for _, m := range pageHeading.FindAllStringSubmatch(text, -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}
		if b.String() == anchor {
			return true
		}
	}
	return false
}

var plantedLinks = []planted{
	{
		name: "pages",
		files: map[string]string{
			"README.md": "[a](docs/a.md) [b](docs/b.md#top) [c](https://example.com/x#y) [d](#here)\n" +
				"`node/a.go` `node/b.go` `go/c.go`\n[e](docs/a.md#its-a-b_c-page) [f](docs/a.md#page)\n",
			"docs/a.md":    "# It's `a` *b_c* page\n[up](../README.md), [gone](gone.md), [g](#its-a-b_c-page)\n",
			"CHANGELOG.md": "[gone](gone.md)\n",
			"node/a.go":    "package node\n",
		},
		want: []string{
			"README.md:1: links/heading", "README.md:1: links/target", "README.md:2: links/target", "README.md:3: links/heading",
			"docs/a.md:2: links/target",
		},
	},
}

func TestPlantedLinks(t *testing.T) {
	runPlanted(t, plantedLinks, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkLinks(t, p.fs())
	})
}
