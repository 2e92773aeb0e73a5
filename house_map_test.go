package belfry_test

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules about the map of the folders in docs/architecture.md.
const (
	ruleMapMissing = "map/missing" // a folder with code that the map does not name
	ruleMapStale   = "map/stale"   // a name on the map that is no folder
)

var mapRuleNames = []string{ruleMapMissing, ruleMapStale}

const (
	architecturePage = "docs/architecture.md"
	mapHeading       = "## 2. The folders"
	// mapTextColumn is where a line without a name continues the text of the line before.
	mapTextColumn = 8
)

// mapName is a folder in a line of the map: a path that ends in a slash.
var mapName = regexp.MustCompile("^([a-z0-9]+/)+$")

// namesOn returns the folders that a line of the map names.
func namesOn(line string) []string {
	var names []string
	for _, word := range strings.Fields(line) {
		if word = strings.Trim(word, "(),;:."); mapName.MatchString(word) {
			names = append(names, word)
		}
	}
	return names
}

// checkMap compares the map with the folders that have Go code of the product or of the tests'
// support. Generated code needs no entry for each of its folders.
func checkMap(t *testing.T, fsys fs.FS, src *tree) []finding {
	t.Helper()
	text, err := fs.ReadFile(fsys, architecturePage)
	if err != nil {
		t.Fatalf("reading the map: %v", err)
	}
	code := make(map[string]bool)
	for _, f := range src.files {
		if !f.test && !f.generated && f.dir != "." {
			code[f.dir] = true
		}
	}
	var found []finding
	named := make(map[string]bool)
	for _, line := range mapLines(string(text)) {
		for _, candidates := range line.folders {
			at := slices.IndexFunc(candidates, func(dir string) bool { return isFolder(fsys, dir) })
			if at < 0 {
				found = append(found, finding{architecturePage, line.number, ruleMapStale, candidates[0] + " is no folder"})
				continue
			}
			named[candidates[at]] = true
		}
	}
	for dir := range code {
		if !named[dir] {
			found = append(found, finding{dir, 0, ruleMapMissing, "it has code, and section 2 of " + architecturePage +
				" does not name it"})
		}
	}
	return found
}

func isFolder(fsys fs.FS, dir string) bool {
	info, err := fs.Stat(fsys, dir)
	return err == nil && info.IsDir()
}

// A mapLine is a line of the map. Each name on it may stand for one of several folders.
type mapLine struct {
	number  int
	folders [][]string
}

// mapLines reads the block of code under the heading of the map. A line is indented below the
// folder that holds what it names. A name in the text of a line is below the first folder of the
// line, or beside it.
func mapLines(page string) []mapLine {
	var lines []mapLine
	above := []mapLevel{{indent: -1, dir: "."}}
	inMap, inBlock := false, false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			inMap = line == mapHeading
		case inMap && strings.HasPrefix(line, "```"):
			inBlock = !inBlock
		case inMap && inBlock:
			names := namesOn(line)
			indent := len(line) - len(strings.TrimLeft(line, " "))
			if len(names) > 0 && indent < mapTextColumn {
				for above[len(above)-1].indent >= indent {
					above = above[:len(above)-1]
				}
				above = append(above, mapLevel{indent, path.Join(above[len(above)-1].dir, names[0])})
			}
			lines = append(lines, mapLine{i + 1, resolve(above, names)})
		}
	}
	return lines
}

// A mapLevel is the first folder of a line, which holds what is indented below it.
type mapLevel struct {
	indent int
	dir    string
}

// resolve returns the folders for which each name may stand, given the first folders of the line
// and of those above it.
func resolve(above []mapLevel, names []string) [][]string {
	if len(above) < 2 {
		return nil
	}
	first, parent := above[len(above)-1].dir, above[len(above)-2].dir
	var folders [][]string
	for _, name := range names {
		folders = append(folders, []string{path.Join(parent, name), path.Join(first, name)})
	}
	return folders
}

var plantedMap = []planted{
	{
		name: "a map",
		files: map[string]string{
			architecturePage: "# A map\n```\nhall/  elsewhere\n```\n" + mapHeading + "\n\n```\n" +
				"node/        the shards, with disk/ and\n" +
				"             flip/ and gone/ faults\n" +
				"  peer/ storage/log/ what, and/or which\n" +
				"    wire/    bytes\n" +
				"access/      certs/ certificates\n```\n\n`attic/` is described elsewhere\n",
			"node/a.go":             "package node\n",
			"node/disk/a.go":        "package disk\n",
			"node/flip/a.go":        "package flip\n",
			"node/peer/wire/a.go":   "package wire\n",
			"node/storage/log/a.go": "package log\n",
			"node/storage/a.go":     "package storage\n",
			"access/certs/a.go":     "package certs\n",
			"access/tokens/a.go":    "package tokens\n",
			"attic/a.go":            "package attic\n",
			"made/a.go":             generatedHead + "package made\n",
			"trial/a_test.go":       "package trial\n",
			"doc.go":                "package belfry\n",
		},
		want: []string{
			"access/tokens:0: map/missing", "attic:0: map/missing", "docs/architecture.md:9: map/stale",
			"node/storage:0: map/missing",
		},
	},
}

func TestPlantedMap(t *testing.T) {
	runPlanted(t, plantedMap, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkMap(t, p.fs(), parsePlanted(t, p))
	})
}
