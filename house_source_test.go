package belfry_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"
)

// modulePath is the module's path; a test compares it with go.mod.
const modulePath = "github.com/belfrydb/belfry"

// A tree is every Go file of a module, parsed. The rules look at nothing else, so they run over
// planted trees too.
type tree struct {
	fset  *token.FileSet
	files []*sourceFile
}

// A sourceFile is one Go file of a tree.
type sourceFile struct {
	path      string // slash-separated, from the root of the tree
	dir       string // "." for the root
	text      string
	lines     int
	test      bool // the name ends in _test.go
	generated bool // carries the standard "Code generated … DO NOT EDIT." line
	syntax    *ast.File
	fset      *token.FileSet
}

// parseTree parses all Go files of fsys except data of tests and scripts of continuous integration.
// A file that is not Go is an error: the other rules could say nothing about it.
func parseTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := walkFiles(fsys, func(name string) error {
		if path.Ext(name) != ".go" || strings.HasPrefix(name, ".") || slices.Contains(strings.Split(name, "/"), "testdata") {
			return nil
		}
		return t.add(fsys, name)
	})
	return t, err
}

// walkFiles visits every file of fsys that git would take in: .gitignore says what is left out.
func walkFiles(fsys fs.FS, visit func(name string) error) error {
	text, err := fs.ReadFile(fsys, ".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading .gitignore: %w", err)
	}
	patterns := strings.Fields(string(text))
	return fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("walking the tree: %w", err)
		case entry.IsDir() && (name == ".git" || ignored(patterns, name)):
			return fs.SkipDir
		case entry.IsDir() || ignored(patterns, name):
			return nil
		}
		return visit(name)
	})
}

// ignored reports whether one of git's ignore patterns covers a name. It knows the forms that
// .gitignore here uses: a pattern that begins with a slash names something in the root, any other
// the last element of a path.
func ignored(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		rooted, ok := strings.CutPrefix(strings.TrimSuffix(pattern, "/"), "/")
		if !ok {
			name = path.Base(name)
		}
		covers, err := path.Match(rooted, name)
		return err == nil && covers
	})
}

func (t *tree) add(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	t.files = append(t.files, &sourceFile{
		path:      name,
		dir:       path.Dir(name),
		text:      string(text),
		lines:     strings.Count(string(text), "\n"),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(syntax),
		syntax:    syntax,
		fset:      t.fset,
	})
	return nil
}

// importsOf returns what the files of one directory import, tests left out, sorted and each once.
func (t *tree) importsOf(dir string) []string {
	var paths []string
	for _, f := range t.files {
		if f.dir == dir && !f.test {
			for _, spec := range f.syntax.Imports {
				paths = append(paths, importPath(spec))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// line returns the line of a position in the file.
func (f *sourceFile) line(pos token.Pos) int { return f.fset.Position(pos).Line }

// finding reports a broken rule at a position in the file.
func (f *sourceFile) finding(pos token.Pos, rule, format string, args ...any) finding {
	return finding{path: f.path, line: f.line(pos), rule: rule, text: fmt.Sprintf(format, args...)}
}

// names maps the name under which a file knows each import to its path.
func (f *sourceFile) names() map[string]string {
	names := make(map[string]string)
	for _, spec := range f.syntax.Imports {
		p := importPath(spec)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && len(name) > 1 && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(p)) // math/rand/v2 is rand
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	return names
}

// qualified returns the import path and the name of a selector such as os.Exit; ok is false for a
// field or a method.
func qualified(names map[string]string, n ast.Node) (pkg, name string, ok bool) {
	sel, isSelector := n.(*ast.SelectorExpr)
	if !isSelector {
		return "", "", false
	}
	x, isIdent := sel.X.(*ast.Ident)
	if !isIdent {
		return "", "", false
	}
	pkg, ok = names[x.Name]
	return pkg, sel.Sel.Name, ok
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(fmt.Sprintf("the parser let through the import %s: %v", spec.Path.Value, err))
	}
	return p
}

// inTree reports whether dir is root or below it.
func inTree(dir, root string) bool {
	return dir == root || strings.HasPrefix(dir, root+"/")
}

// fs returns the planted files as a file system.
func (p planted) fs() fs.FS {
	fsys := make(fstest.MapFS)
	for name, text := range p.files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}
