package belfry_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// ruleUpward: in a folder at the root, too many of the arrows between its rooms run upward.
const ruleUpward = "arrows/upward"

var arrowRuleNames = []string{ruleUpward}

// upwardPercentMax bounds the arrows that run upward, of all arrows of a folder.
const upwardPercentMax = 20

// arrows are the rooms that each room uses. The rooms of a folder at the root, or of a program in
// cmd, are the files of its own package and each folder below it. There is an arrow from a room to
// another one if it uses a function, method, field or other name that the other declares.
type arrows map[string]map[string]bool

// checkArrows reports the folders in which too many arrows run upward.
func checkArrows(all map[string]arrows) []finding {
	var found []finding
	for folder, a := range all {
		if up, count := a.upward(), a.count(); 100*up > upwardPercentMax*count {
			found = append(found, finding{folder, 0, ruleUpward,
				fmt.Sprintf("%d of %d arrows between its rooms run upward, at most %d %%", up, count, upwardPercentMax)})
		}
	}
	return found
}

// outsideImports returns what packages of a tree import that is not in its module.
func outsideImports(src *tree) []string {
	imported := map[string]bool{}
	for _, f := range src.files {
		for _, spec := range f.syntax.Imports {
			if p := importPath(spec); !f.test && !inTree(p, modulePath) {
				imported[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(imported))
}

// An arrowWalk type-checks the packages of a tree, each once, and draws the arrows.
type arrowWalk struct {
	t        *testing.T
	src      *tree
	byDir    map[string][]*sourceFile
	packages map[string]*types.Package // by folder
	outside  types.Importer
	all      map[string]arrows // by folder at the root
}

// arrowsOf draws the arrows of a tree, tests and generated code left out. lookup has export data of
// what the tree imports from elsewhere.
func arrowsOf(t *testing.T, src *tree, lookup exports) map[string]arrows {
	t.Helper()
	w := &arrowWalk{t: t, src: src, byDir: map[string][]*sourceFile{}, packages: map[string]*types.Package{},
		outside: importer.ForCompiler(src.fset, "gc", importer.Lookup(lookup)), all: map[string]arrows{}}
	for _, f := range src.files {
		if !f.test && f.dir != "." && builds(f) {
			w.byDir[f.dir] = append(w.byDir[f.dir], f)
		}
	}
	for dir := range w.byDir {
		if _, err := w.Import(modulePath + "/" + dir); err != nil {
			t.Fatalf("type-checking %s: %v", dir, err)
		}
	}
	return w.all
}

// builds reports whether a file belongs to the build on this system.
func builds(f *sourceFile) bool {
	context := build.Default
	context.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(f.text)), nil }
	match, err := context.MatchFile(f.dir, path.Base(f.path))
	return err == nil && match
}

// Import implements types.Importer.
func (w *arrowWalk) Import(imported string) (*types.Package, error) {
	dir, ours := strings.CutPrefix(imported, modulePath+"/")
	if !ours {
		return w.outside.Import(imported)
	}
	if p := w.packages[dir]; p != nil {
		return p, nil
	}
	var files []*ast.File
	generated := false
	for _, f := range w.byDir[dir] {
		files = append(files, f.syntax)
		generated = generated || f.generated
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	p, err := (&types.Config{Importer: w, IgnoreFuncBodies: generated}).Check(imported, w.src.fset, files, &info)
	if err != nil {
		return nil, err
	}
	w.packages[dir] = p
	if !generated {
		w.draw(dir, info.Uses)
	}
	return p, nil
}

// draw adds the arrows of a package.
func (w *arrowWalk) draw(dir string, uses map[*ast.Ident]types.Object) {
	folder := folderOf(dir)
	for id, used := range uses {
		if used.Pkg() == nil || !used.Pos().IsValid() {
			continue
		}
		other, ours := strings.CutPrefix(used.Pkg().Path(), modulePath+"/")
		if !ours || folderOf(other) != folder {
			continue
		}
		from, to := w.room(dir, id.Pos()), w.room(other, used.Pos())
		if from == to {
			continue
		}
		if w.all[folder] == nil {
			w.all[folder] = arrows{}
		}
		if w.all[folder][from] == nil {
			w.all[folder][from] = map[string]bool{}
		}
		w.all[folder][from][to] = true
	}
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

// room returns the room of a place in a package: the file, or the folder below that of the package.
func (w *arrowWalk) room(dir string, at token.Pos) string {
	folder := folderOf(dir)
	if dir == folder {
		return path.Base(w.src.fset.Position(at).Filename)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, folder+"/"), "/")
	return first + "/"
}

func (a arrows) count() int {
	all := 0
	for _, to := range a {
		all += len(to)
	}
	return all
}

// upward returns how many arrows run upward, to an earlier room, in the order of the rooms.
func (a arrows) upward() int {
	at := map[string]int{}
	for i, r := range a.order() {
		at[r] = i
	}
	up := 0
	for from, all := range a {
		for to := range all {
			if at[to] < at[from] {
				up++
			}
		}
	}
	return up
}

// order returns an order of the rooms in which few arrows run upward, found by a greedy search:
// rooms without uses go to the bottom, rooms without users to the top, and of the rest the one with
// the most uses beyond its users.
func (a arrows) order() []string {
	rooms := map[string]bool{}
	for from, all := range a {
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
				if a[from][to] {
					uses[from]++
					users[to]++
				}
			}
		}
		next := slices.MaxFunc(left, func(x, y string) int {
			return cmp.Or(cmp.Compare(rank(uses[x], users[x]), rank(uses[y], users[y])), strings.Compare(y, x))
		})
		if left = slices.DeleteFunc(left, func(r string) bool { return r == next }); uses[next] == 0 {
			bottom = append([]string{next}, bottom...)
		} else {
			top = append(top, next)
		}
	}
	return append(top, bottom...)
}

// rank says which room is placed next, by its uses and users among the rooms that are left.
func rank(uses, users int) int {
	if uses == 0 || users == 0 {
		return 1 << 20
	}
	return uses - users
}

// using returns a package with a name of its own that uses the names of packages of a planted tree.
func using(paths ...string) string {
	text := "package p\n\nconst N = 1\n"
	for i, p := range paths {
		text = strings.Replace(text, "\n\nconst", fmt.Sprintf("\n\nimport p%d %q\n\nconst", i, modulePath+"/"+p), 1)
		text += fmt.Sprintf("\nconst _ = p%d.N\n", i)
	}
	return text
}

var plantedArrows = []planted{
	{
		name: "a fifth runs upward",
		files: map[string]string{
			"hall/wing/deep/a.go": using("hall/attic"),
			"hall/attic/a.go":     using("hall/wing"),
			"hall/wing/a.go":      using("hall/cellar", "hall/shed"),
			"hall/cellar/a.go":    using("hall/shed"),
			"hall/shed/a.go":      using(),
		},
	},
	{
		name: "folders use each other, and so do files",
		files: map[string]string{
			"hall/wing/deep/a.go":   using("hall/attic"),
			"hall/attic/a.go":       using("hall/wing"),
			"hall/wing/a.go":        using("yard"),
			"yard/a.go":             "package yard\n\nconst N = 1\n\ntype a struct{ b }\n\nfunc (a) run() {}\n",
			"yard/b.go":             "package yard\n\ntype b struct{}\n\nfunc call(x a) { x.run() }\n",
			"yard/c_test.go":        "package yard\n\nfunc test(x a) { x.gone() }\n",
			"cmd/one/a.go":          using("cmd/two"),
			"cmd/two/a.go":          using(),
			"rpc/belfry/v1/a.pb.go": generatedHead + using(),
			"rpc/a.go":              using("rpc/belfry/v1"),
		},
		want: []string{"hall:0: arrows/upward", "yard:0: arrows/upward"},
	},
}

func TestArrowRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedArrows, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkArrows(arrowsOf(t, parsePlanted(t, p), nil))
	})
}
