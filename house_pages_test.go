package belfry_test

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
)

// ruleDesignWords: a design page says more than its reader needs; reasons belong to docs/decisions.
const ruleDesignWords = "pages/design-words"

var pageRuleNames = []string{ruleDesignWords}

// designWordsMax bounds a DESIGN.md.
const designWordsMax = 2000

// designWords counts the words of each DESIGN.md.
func designWords(t *testing.T, fsys fs.FS) map[string]int {
	t.Helper()
	words := map[string]int{}
	err := walkFiles(fsys, func(name string) error {
		if path.Base(name) != "DESIGN.md" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		words[name] = len(strings.Fields(string(text)))
		return err
	})
	if err != nil {
		t.Fatalf("reading the design pages: %v", err)
	}
	return words
}

// checkDesignPages reports the design pages that are too long.
func checkDesignPages(words map[string]int) []finding {
	var found []finding
	for page, n := range words {
		if n > designWordsMax {
			found = append(found, finding{page, 0, ruleDesignWords, fmt.Sprintf("%d words, at most %d", n, designWordsMax)})
		}
	}
	return found
}

var plantedPages = []planted{
	{
		name: "design pages",
		files: map[string]string{
			"node/DESIGN.md":         strings.Repeat("word ", designWordsMax),
			"node/storage/DESIGN.md": strings.Repeat("two\nwords ", designWordsMax/2) + "more\n",
			"docs/concepts.md":       strings.Repeat("word ", designWordsMax+1),
		},
		want: []string{"node/storage/DESIGN.md:0: pages/design-words"},
	},
}

func TestPageRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedPages, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkDesignPages(designWords(t, p.fs()))
	})
}
