package belfry_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The rules that keep the state machine a function of its log: equal entries give equal state and
// equal results on every replica, today and when the log is read again.
const (
	ruleTypes       = "purity/types"        // the package does not type-check, so nothing can be said of it
	rulePureImport  = "purity/import"       // a package that knows more than its arguments
	rulePureName    = "purity/name"         // a name of a partly pure package that knows more than its arguments
	ruleMapRange    = "purity/map-range"    // map order differs at every range
	ruleConcurrency = "purity/concurrency"  // goroutines and channels: the scheduler decides
	ruleFloat       = "purity/float"        // rounding differs between architectures
	rulePointer     = "purity/pointer"      // addresses differ between replicas
	ruleGlobalState = "purity/global-state" // state outside the machine is in no snapshot
	rulePrint       = "purity/print"        // the machine has no output but its result
	ruleBuild       = "purity/build"        // another platform would run another machine
)

var purityRuleNames = []string{
	ruleTypes, rulePureImport, rulePureName, ruleMapRange, ruleConcurrency,
	ruleFloat, rulePointer, ruleGlobalState, rulePrint, ruleBuild,
}

// pureDir is the folder of the state machine. Every package in and below it is pure, unless it is
// in impureDirs. Tests may do what they like.
const pureDir = "fsm"

// impureDirs are folders below pureDir that no replica runs.
var impureDirs = []string{"fsm/fsmtest", "fsm/model"}

// isPure reports whether a folder holds code that every replica must run alike.
func isPure(dir string) bool {
	return inTree(dir, pureDir) && !slices.ContainsFunc(impureDirs, func(impure string) bool {
		return inTree(dir, impure)
	})
}

// pureImports returns what the pure packages import, sorted and each once.
func pureImports(t *tree) []string {
	var paths []string
	for _, dir := range pureDirs(t) {
		paths = append(paths, t.importsOf(dir)...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// pureDirs returns the folders of the pure packages, sorted and each once.
func pureDirs(t *tree) []string {
	var dirs []string
	for _, f := range t.files {
		if isPure(f.dir) {
			dirs = append(dirs, f.dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// purePackages are the packages whose functions see nothing but their arguments. A package that is
// not listed is refused; if it is as pure, add it. Where a list of names follows, only those of the
// package are allowed.
var purePackages = map[string][]string{
	"bufio": nil, "bytes": nil, "cmp": nil, "container/heap": nil, "crypto/sha256": nil, "encoding/base64": nil,
	"encoding/binary": nil, "encoding/hex": nil, "errors": nil, "hash": nil, "hash/crc32": nil, "io": nil, "iter": nil,
	"math": nil, "math/bits": nil, "slices": nil, "sort": nil, "strconv": nil, "strings": nil, "unicode": nil,
	"unicode/utf8":            nil,
	"github.com/google/btree": nil,
	"fmt":                     {"Append", "Appendf", "Errorf", "Sprint", "Sprintf", "Stringer"},
	"time":                    {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
}

// impureReasons says of the packages one is most tempted by why they are not listed.
var impureReasons = map[string]string{
	"context":      "the machine never waits",
	"crypto/rand":  "the machine has no randomness; ids come from the shard's serial",
	"hash/maphash": "its seed differs in every process",
	"log":          "the machine never logs; results say what happened",
	"log/slog":     "the machine never logs; results say what happened",
	"maps":         "its iterators have the order of the map, another one each time",
	"math/rand":    "the machine has no randomness; ids come from the shard's serial",
	"math/rand/v2": "the machine has no randomness; ids come from the shard's serial",
	"net":          "the machine does no I/O",
	"os":           "the machine does no I/O and has no environment",
	"reflect":      "reflection sees pointers and map order",
	"runtime":      "the machine must not know where it runs",
	"sync":         "one caller at a time, so no lock",
	"sync/atomic":  "one caller at a time, so nothing atomic",
	"unique":       "handles are pointers",
	"unsafe":       "addresses differ between replicas",
}

// An exports returns the compiler's export data of a package.
type exports func(path string) (io.ReadCloser, error)

// exportsOf asks the go command, in the folder of a module, for export data of packages and of all
// they import. It is faster
// than type-checking them from source, and right about modules and build tags.
func exportsOf(t *testing.T, dir string, paths []string) exports {
	t.Helper()
	paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == "unsafe" || p == "C" })
	args := append([]string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "--"}, paths...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -export: %v", err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(files[path])
	}
}

// A purity walks the machine's syntax trees with the types at hand.
type purity struct {
	info  *types.Info
	pkg   *types.Package
	file  *sourceFile
	found []finding
}

// checkPurity reports everything in the machine's packages that could differ between replicas.
func checkPurity(t *tree, lookup exports) []finding {
	var found []finding
	for _, dir := range pureDirs(t) {
		found = append(found, checkPure(t, dir, lookup)...)
	}
	return found
}

// checkPure is checkPurity for one package.
func checkPure(t *tree, dir string, lookup exports) []finding {
	p := &purity{info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Uses:  make(map[*ast.Ident]types.Object),
		Defs:  make(map[*ast.Ident]types.Object),
	}}
	var files []*sourceFile
	var syntax []*ast.File
	for _, f := range t.files {
		if f.dir == dir && !f.test {
			files, syntax = append(files, f), append(syntax, f.syntax)
		}
	}
	conf := types.Config{Importer: importer.ForCompiler(t.fset, "gc", importer.Lookup(lookup)), Error: func(err error) {
		var typeError types.Error
		if !errors.As(err, &typeError) {
			panic(fmt.Sprintf("go/types reports an error that is not a types.Error: %v", err))
		}
		at := t.fset.Position(typeError.Pos)
		p.found = append(p.found, finding{at.Filename, at.Line, ruleTypes, typeError.Msg})
	}}
	// The error is the first of those that Error was handed; what could be typed is looked at all the
	// same.
	p.pkg, _ = conf.Check(modulePath+"/"+dir, t.fset, syntax, p.info)
	for _, f := range files {
		p.file = f
		p.comments()
		ast.Inspect(f.syntax, p.visit)
	}
	return p.found
}

func (p *purity) report(n ast.Node, rule, format string, args ...any) bool {
	p.found = append(p.found, p.file.finding(n.Pos(), rule, format, args...))
	return true
}

// comments reports directives that choose another machine for another platform, or reach into other
// packages.
func (p *purity) comments() {
	for _, group := range p.file.syntax.Comments {
		for _, c := range group.List {
			if constraint.IsGoBuild(c.Text) || strings.HasPrefix(c.Text, "//go:linkname") {
				p.report(c, ruleBuild, "%s: every platform runs the same machine", c.Text)
			}
		}
	}
}

func (p *purity) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return p.imported(n)
	case *ast.GoStmt:
		p.report(n, ruleConcurrency, "the machine starts no goroutine")
	case *ast.SelectStmt:
		p.report(n, ruleConcurrency, "select chooses at random")
	case *ast.RangeStmt:
		if rangesOverMap(p.info.TypeOf(n.X)) {
			p.report(n, ruleMapRange, "the order of a map is another one each time; keep a sorted slice or a tree beside it")
		}
	case *ast.BasicLit:
		if n.Kind == token.STRING && strings.Contains(n.Value, "%p") {
			p.report(n, rulePointer, "%%p prints an address")
		}
	case *ast.AssignStmt:
		for _, left := range n.Lhs {
			p.assigned(left)
		}
	case *ast.IncDecStmt:
		p.assigned(n.X)
	case *ast.SelectorExpr:
		p.selector(n)
	}
	if x, ok := n.(ast.Expr); ok {
		p.expression(x)
	}
	return true
}

// imported looks at one import; false keeps the walk from looking into the spec itself.
func (p *purity) imported(spec *ast.ImportSpec) bool {
	path := importPath(spec)
	if within, ok := strings.CutPrefix(path, modulePath+"/"); ok && isPure(within) {
		return false
	}
	if _, pure := purePackages[path]; !pure {
		why, known := impureReasons[path]
		if !known {
			why = "it is not in purePackages; if its functions see nothing but their arguments, add it there"
		}
		p.report(spec, rulePureImport, "%s: %s", path, why)
	}
	return false
}

// selector looks at a name of an imported package of which only some names are allowed.
func (p *purity) selector(sel *ast.SelectorExpr) {
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return
	}
	name, ok := p.info.Uses[x].(*types.PkgName)
	if !ok {
		return
	}
	path := name.Imported().Path()
	if allowed := purePackages[path]; allowed != nil && !slices.Contains(allowed, sel.Sel.Name) {
		p.report(sel, rulePureName, "%s.%s: of this package the machine may use %s", path, sel.Sel.Name,
			strings.Join(allowed, ", "))
	}
}

// assigned looks at the left side of an assignment for a variable of the package.
func (p *purity) assigned(left ast.Expr) {
	for {
		switch x := left.(type) {
		case *ast.ParenExpr:
			left = x.X
		case *ast.StarExpr:
			left = x.X
		case *ast.IndexExpr:
			left = x.X
		case *ast.SelectorExpr:
			left = x.X
		case *ast.Ident:
			if v, ok := p.info.ObjectOf(x).(*types.Var); ok && p.pkg != nil && v.Parent() == p.pkg.Scope() {
				p.report(left, ruleGlobalState, "%s is outside the machine and in no snapshot", x.Name)
			}
			return
		default:
			return
		}
	}
}

// expression looks at the type of an expression.
func (p *purity) expression(x ast.Expr) {
	if id, ok := x.(*ast.Ident); ok {
		if b, ok := p.info.Uses[id].(*types.Builtin); ok && strings.HasPrefix(b.Name(), "print") {
			p.report(id, rulePrint, "%s writes to standard error", b.Name())
		}
	}
	typ := p.info.TypeOf(x)
	if typ == nil {
		return
	}
	// A type parameter's underlying type is its constraint, an interface: what it stands for shows
	// where it is given.
	switch t := typ.Underlying().(type) {
	case *types.Chan:
		p.report(x, ruleConcurrency, "the machine has no channels")
	case *types.Basic:
		if t.Info()&(types.IsFloat|types.IsComplex) != 0 {
			p.report(x, ruleFloat, "%s: count in whole units", t)
		}
		if t.Kind() == types.Uintptr || t.Kind() == types.UnsafePointer {
			p.report(x, rulePointer, "%s is an address", t)
		}
	}
}

// rangesOverMap reports whether a type, or for a type parameter any type it may stand for, is a
// map.
func rangesOverMap(t types.Type) bool {
	if t == nil {
		return false
	}
	switch u := t.Underlying().(type) {
	case *types.Map:
		return true
	case *types.Union:
		for term := range u.Terms() {
			if rangesOverMap(term.Type()) {
				return true
			}
		}
	case *types.Interface:
		for embedded := range u.EmbeddedTypes() {
			if rangesOverMap(embedded) {
				return true
			}
		}
	}
	return false
}
