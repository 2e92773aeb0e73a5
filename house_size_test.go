package belfry_test

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
)

// The rules about names and parameters that say nothing, and about tests that hide or wait. How long
// a function is, and that there is no init, golangci-lint judges.
const (
	ruleBoolParam  = "size/bool-parameter"
	ruleFolderName = "size/folder-name"
	ruleSleep      = "tests/sleep"
	ruleSkip       = "tests/skip"
)

var sizeRuleNames = []string{ruleBoolParam, ruleFolderName, ruleSleep, ruleSkip}

// emptyNames say nothing about what a package is for.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "lib"}

// boolParamsAllowed are exported functions with a bool parameter whose form someone else
// prescribes, with the reason.
var boolParamsAllowed = map[string]string{}

// checkSize reports names of folders and parameters that say nothing, and what hides in tests.
// Generated code is not for readers.
func checkSize(t *tree) []finding {
	var found []finding
	bubbles := bubblesByDir(t)
	for _, f := range t.files {
		if f.generated {
			continue
		}
		if slices.Contains(emptyNames, path.Base(f.dir)) {
			found = append(found,
				f.finding(f.syntax.Package, ruleFolderName, "the folder's name says nothing; name it after its subject"))
		}
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				found = append(found, checkParameters(f, fn)...)
			}
		}
		if f.test {
			found = append(found, checkTestManners(f, bubbles[f.dir])...)
		}
	}
	return found
}

func checkParameters(f *sourceFile, fn *ast.FuncDecl) []finding {
	var found []finding
	if f.test || !exported(fn) || boolParamsAllowed[f.dir+"."+fn.Name.Name] != "" {
		return found
	}
	for _, param := range fn.Type.Params.List {
		if name, ok := param.Type.(*ast.Ident); ok && name.Name == "bool" {
			found = append(found,
				f.finding(param.Pos(), ruleBoolParam, "%s: true and false say nothing to the reader of a call", fn.Name.Name))
		}
	}
	return found
}

// exported reports whether a function can be called from another package: its name, and its
// receiver's, are exported.
func exported(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || !fn.Name.IsExported() {
		return fn.Name.IsExported()
	}
	receiver := fn.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}

// bubblesByDir lists, by folder, the functions of tests that run what they are given inside a
// bubble of synctest.
func bubblesByDir(t *tree) map[string][]string {
	bubbles := make(map[string][]string)
	for _, f := range t.files {
		names := f.names()
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !f.test || fn.Recv != nil || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if pkg, name, ok := qualified(names, n); ok && pkg == "testing/synctest" && name == "Test" {
					bubbles[f.dir] = append(bubbles[f.dir], fn.Name.Name)
				}
				return true
			})
		}
	}
	return bubbles
}

// A mannersWalk looks at one test file for sleeping and skipping.
type mannersWalk struct {
	file    *sourceFile
	names   map[string]string
	bubbles []string // functions of the package that open a bubble
	bubble  bool     // the walk is inside one
	found   []finding
}

func checkTestManners(f *sourceFile, bubbles []string) []finding {
	w := &mannersWalk{file: f, names: f.names(), bubbles: bubbles}
	w.walk(f.syntax, nil)
	return w.found
}

// walk visits a node; tests says of each parameter in scope whether it is a test's.
func (w *mannersWalk) walk(root ast.Node, tests map[string]bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				w.walk(n.Body, w.withParams(tests, n.Type))
			}
			return false
		case *ast.FuncLit:
			w.walk(n.Body, w.withParams(tests, n.Type))
			return false
		case *ast.CallExpr:
			if w.isBubble(n) {
				w.inside(n, tests)
				return false
			}
		case *ast.CommClause:
			// <-time.After as a case of a select is a time limit; only the statements after it are looked
			// at.
			for _, stmt := range n.Body {
				w.walk(stmt, tests)
			}
			return false
		case *ast.ExprStmt:
			if !w.bubble && w.isBareAfter(n.X) {
				w.report(n, ruleSleep, "waiting for time.After is a sleep")
			}
		case *ast.SelectorExpr:
			w.selector(n, tests)
		}
		return true
	})
}

// isBubble reports whether a call runs its function literals inside a bubble of synctest, itself or
// by a function of the package. A sleep there takes no time and is how time passes; elsewhere it is
// a guess that fails on a slow machine.
func (w *mannersWalk) isBubble(call *ast.CallExpr) bool {
	if fn, ok := call.Fun.(*ast.Ident); ok {
		return slices.Contains(w.bubbles, fn.Name)
	}
	pkg, name, ok := qualified(w.names, call.Fun)
	return ok && pkg == "testing/synctest" && name == "Test"
}

// inside walks the arguments of a call that opens a bubble.
func (w *mannersWalk) inside(call *ast.CallExpr, tests map[string]bool) {
	outer := w.bubble
	w.bubble = true
	for _, arg := range call.Args {
		w.walk(arg, tests)
	}
	w.bubble = outer
}

func (w *mannersWalk) report(n ast.Node, rule, text string) {
	w.found = append(w.found, w.file.finding(n.Pos(), rule, "%s", text))
}

func (w *mannersWalk) selector(n *ast.SelectorExpr, tests map[string]bool) {
	pkg, name, ok := qualified(w.names, n)
	switch {
	case ok && pkg == "time" && name == "Sleep" && !w.bubble:
		w.report(n, ruleSleep, "wait for a condition, or run inside synctest.Test")
	case ok && pkg == "testing" && name == "Short":
		w.report(n, ruleSkip, "a test that a flag turns off is a test that does not run")
	case !ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, n.Sel.Name):
		if x, isIdent := n.X.(*ast.Ident); isIdent && tests[x.Name] {
			w.report(n, ruleSkip, "a skipped test passes; fail and say what is missing")
		}
	}
}

// isBareAfter reports whether an expression is <-time.After(d).
func (w *mannersWalk) isBareAfter(x ast.Expr) bool {
	receive, ok := x.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return false
	}
	call, ok := receive.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	pkg, name, ok := qualified(w.names, call.Fun)
	return ok && pkg == "time" && name == "After"
}

// withParams returns the scope inside a function: its parameters hide those outside. rapid's T is
// no test's parameter: its Skip throws away one generated case, not the test.
func (w *mannersWalk) withParams(outer map[string]bool, fn *ast.FuncType) map[string]bool {
	inner := maps.Clone(outer)
	if inner == nil {
		inner = make(map[string]bool)
	}
	for _, field := range fn.Params.List {
		typ := field.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		pkg, name, ok := qualified(w.names, typ)
		for _, param := range field.Names {
			inner[param.Name] = ok && pkg == "testing" && slices.Contains([]string{"T", "B", "F", "TB"}, name)
		}
	}
	return inner
}
