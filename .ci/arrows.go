//go:build ignore

// Command arrows counts, for each folder at the root, the arrows between its rooms, and those that
// run upward:
//
//	go run .ci/arrows.go
//
// The rooms of a folder are the files of its own package and each folder below it. There is an
// arrow from a room to another one if it uses a function, method, field or other name that the
// other declares. The command searches greedily for an order of the rooms in which few arrows run
// upward, to an earlier room. It leaves out tests and generated code.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/belfrydb/belfry/"

func main() {
	arrows, err := measure()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%6s %7s %7s  %s\n", "arrows", "upward", "share", "folder")
	for _, folder := range slices.Sorted(maps.Keys(arrows)) {
		all, up := 0, upward(arrows[folder])
		for _, to := range arrows[folder] {
			all += len(to)
		}
		fmt.Printf("%6d %7d %6.0f%%  %s\n", all, up, 100*float64(up)/float64(all), folder)
	}
}

// listed is what the go command says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// list asks the go command for all packages of the module and what they import, compiled.
func list() (map[string]listed, error) {
	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	all := map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
}

// measure returns, for each folder, which rooms each of its rooms uses.
func measure() (map[string]map[string]map[string]bool, error) {
	all, err := list()
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	exported := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(all[path].Export)
	})
	arrows := map[string]map[string]map[string]bool{}
	for importPath, p := range all {
		dir, ours := strings.CutPrefix(importPath, module)
		if !ours || strings.HasPrefix(dir, "rpc/belfry") {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		info := types.Info{Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: exported}).Check(importPath, set, files, &info); err != nil {
			return nil, err
		}
		for id, used := range info.Uses {
			if used.Pkg() == nil || !strings.HasPrefix(used.Pkg().Path(), module) || !used.Pos().IsValid() {
				continue
			}
			from := room(dir, set.Position(id.Pos()).Filename)
			to := room(strings.TrimPrefix(used.Pkg().Path(), module), set.Position(used.Pos()).Filename)
			folder := folderOf(dir)
			if folder != folderOf(strings.TrimPrefix(used.Pkg().Path(), module)) || from == to {
				continue
			}
			if arrows[folder] == nil {
				arrows[folder] = map[string]map[string]bool{}
			}
			if arrows[folder][from] == nil {
				arrows[folder][from] = map[string]bool{}
			}
			arrows[folder][from][to] = true
		}
	}
	return arrows, nil
}

// folderOf returns the folder whose rooms are counted together: the one at the root, or the program
// in cmd.
func folderOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if parts[0] == "cmd" {
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	return parts[0]
}

// room returns the room of a file in a package: the file, or the folder below that of the package.
func room(dir, name string) string {
	folder := folderOf(dir)
	if dir == folder {
		return filepath.Base(name)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, folder+"/"), "/")
	return first + "/"
}

// upward returns how many arrows run upward in the order that a greedy search finds: rooms without
// uses go to the bottom, rooms without users to the top, and of the rest the one with the most uses
// beyond its users.
func upward(arrows map[string]map[string]bool) int {
	rooms := map[string]bool{}
	for from, all := range arrows {
		rooms[from] = true
		for to := range all {
			rooms[to] = true
		}
	}
	left := slices.Sorted(maps.Keys(rooms))
	var top, bottom []string
	for len(left) > 0 {
		uses, users := map[string]int{}, map[string]int{}
		for _, from := range left {
			for _, to := range left {
				if arrows[from][to] {
					uses[from]++
					users[to]++
				}
			}
		}
		next := slices.MaxFunc(left, func(a, b string) int {
			return cmp.Or(cmp.Compare(rank(uses[a], users[a]), rank(uses[b], users[b])), strings.Compare(b, a))
		})
		if left = slices.DeleteFunc(left, func(r string) bool { return r == next }); uses[next] == 0 {
			bottom = append([]string{next}, bottom...)
		} else {
			top = append(top, next)
		}
	}
	at := map[string]int{}
	for i, r := range append(top, bottom...) {
		at[r] = i
	}
	up := 0
	for from, all := range arrows {
		for to := range all {
			if at[to] < at[from] {
				up++
			}
		}
	}
	return up
}

// rank says which room is placed next, by its uses and users among the rooms that are left.
func rank(uses, users int) int {
	if uses == 0 || users == 0 {
		return 1 << 20
	}
	return uses - users
}
