package belfry_test

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestSizes prints the sizes that the rules of rooms, pages and arrows bound, for the tree that
// HOUSE_SIZES names. .ci/size calls it. Without HOUSE_SIZES it checks the table of a small tree.
func TestSizes(t *testing.T) {
	if dir := os.Getenv("HOUSE_SIZES"); dir != "" {
		fsys := os.DirFS(dir)
		src, err := parseTree(fsys)
		if err != nil {
			t.Fatal(err)
		}
		lookup := exportsOf(t, dir, outsideImports(src))
		table := sizesOf(src, designWords(t, fsys), arrowsOf(t, src, lookup))
		if _, err := io.WriteString(t.Output(), table); err != nil {
			t.Fatal(err)
		}
		return
	}
	p := planted{files: map[string]string{
		"hall/a.go":      "package hall\n\ntype a struct{ b }\n\nfunc (a) run() {}\n",
		"hall/b.go":      "package hall\n\ntype b struct{}\n\nfunc call(x a) { x.run() }\n",
		"hall/b_test.go": lines("package hall\n", 500),
		"yard/a.go":      "package yard\n\n// " + strings.Repeat("x", columnsMax) + "\n",
		"hall/DESIGN.md": "A few words.\n",
	}}
	src := parsePlanted(t, p)
	got := sizesOf(src, designWords(t, p.fs()), arrowsOf(t, src, nil))
	want := `files   lines  package
    2      10  hall
    1       3  yard
    3      13  all

123 columns has the widest line of code; 1 lines are wider than 120, where a tab counts as one

 words  page
     3  hall/DESIGN.md

arrows  upward   share  folder
     2       1     50%  hall
`
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
}

// sizesOf returns the table of a tree.
func sizesOf(src *tree, words map[string]int, all map[string]arrows) string {
	var b strings.Builder
	rooms, total := roomSizes(src), roomSize{}
	fmt.Fprintf(&b, "%5s %7s  %s\n", "files", "lines", "package")
	byLines := func(a, b string) int { return cmp.Or(rooms[b].lines-rooms[a].lines, strings.Compare(a, b)) }
	for _, dir := range slices.SortedFunc(maps.Keys(rooms), byLines) {
		fmt.Fprintf(&b, "%5d %7d  %s\n", rooms[dir].files, rooms[dir].lines, dir)
		total.files, total.lines = total.files+rooms[dir].files, total.lines+rooms[dir].lines
	}
	fmt.Fprintf(&b, "%5d %7d  all\n", total.files, total.lines)
	widest, wider := 0, 0
	for _, f := range src.files {
		if f.test || f.generated {
			continue
		}
		wider += len(wideLines(f))
		for line := range strings.SplitSeq(f.text, "\n") {
			widest = max(widest, utf8.RuneCountInString(line))
		}
	}
	fmt.Fprintf(&b, "\n%d columns has the widest line of code; %d lines are wider than %d, where a tab counts as one\n",
		widest, wider, columnsMax)
	fmt.Fprintf(&b, "\n%6s  %s\n", "words", "page")
	for _, page := range slices.Sorted(maps.Keys(words)) {
		fmt.Fprintf(&b, "%6d  %s\n", words[page], page)
	}
	fmt.Fprintf(&b, "\n%6s %7s %7s  %s\n", "arrows", "upward", "share", "folder")
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		up, count := all[folder].upward(), all[folder].count()
		fmt.Fprintf(&b, "%6d %7d %6.0f%%  %s\n", count, up, 100*float64(up)/float64(count), folder)
	}
	return b.String()
}
