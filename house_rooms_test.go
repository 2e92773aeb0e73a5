package belfry_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The rules about rooms: how large a package is, how wide a line, and that folders do not import
// each other in a circle.
const (
	ruleRoomFiles = "rooms/files"
	ruleRoomLines = "rooms/lines"
	ruleWidth     = "rooms/width"
	ruleCircle    = "rooms/circle"
)

var roomRuleNames = []string{ruleRoomFiles, ruleRoomLines, ruleWidth, ruleCircle}

// Of a package its tests and generated code are not counted. A tab is one column.
const (
	roomFilesMax = 25
	roomLinesMax = 3500
	columnsMax   = 120
)

// checkRooms reports packages that are too large, lines that are too wide, and circles of imports
// among the folders at the root. The compiler refuses a circle among packages; it allows one among
// folders.
func checkRooms(t *tree) []finding {
	imports := map[string]map[string]bool{}
	var found []finding
	for _, f := range t.files {
		if f.generated {
			continue
		}
		found = append(found, wideLines(f)...)
		if f.test {
			continue
		}
		for _, spec := range f.syntax.Imports {
			from, _, _ := strings.Cut(f.dir, "/")
			inside, ok := strings.CutPrefix(importPath(spec), modulePath+"/")
			if to, _, _ := strings.Cut(inside, "/"); ok && to != from {
				if imports[from] == nil {
					imports[from] = map[string]bool{}
				}
				imports[from][to] = true
			}
		}
	}
	for dir, size := range roomSizes(t) {
		if size.files > roomFilesMax {
			found = append(found, finding{dir, 0, ruleRoomFiles,
				fmt.Sprintf("the package has %d files, at most %d", size.files, roomFilesMax)})
		}
		if size.lines > roomLinesMax {
			found = append(found, finding{dir, 0, ruleRoomLines,
				fmt.Sprintf("the package has %d lines, at most %d", size.lines, roomLinesMax)})
		}
	}
	return append(found, circles(imports)...)
}

// A roomSize counts the code of a package.
type roomSize struct{ files, lines int }

// roomSizes counts the code of each package, without tests and generated code.
func roomSizes(t *tree) map[string]roomSize {
	sizes := map[string]roomSize{}
	for _, f := range t.files {
		if !f.test && !f.generated {
			size := sizes[f.dir]
			sizes[f.dir] = roomSize{size.files + 1, size.lines + f.lines}
		}
	}
	return sizes
}

// wideLines reports the lines of a file that are too wide. Text between backquotes is as wide as
// what it stands for.
func wideLines(f *sourceFile) []finding {
	quoted := map[int]bool{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(lit.Value, "`") {
			for line := f.line(lit.Pos()); line <= f.line(lit.End()); line++ {
				quoted[line] = true
			}
		}
		return true
	})
	var found []finding
	for i, line := range strings.Split(f.text, "\n") {
		if n := utf8.RuneCountInString(line); n > columnsMax && !quoted[i+1] {
			found = append(found, finding{f.path, i + 1, ruleWidth, fmt.Sprintf("%d columns, at most %d", n, columnsMax)})
		}
	}
	return found
}

// circles reports each folder from which imports lead back to it. imports has the folders that a
// folder imports.
func circles(imports map[string]map[string]bool) []finding {
	var found []finding
	for from := range imports {
		reached := maps.Clone(imports[from])
		for waiting := slices.Collect(maps.Keys(reached)); len(waiting) > 0; {
			next := waiting[0]
			waiting = waiting[1:]
			for to := range imports[next] {
				if !reached[to] {
					reached[to] = true
					waiting = append(waiting, to)
				}
			}
		}
		if reached[from] {
			found = append(found, finding{from, 0, ruleCircle, "imports lead from this folder back to it"})
		}
	}
	return found
}
