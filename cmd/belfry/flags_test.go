package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestMemoryFlag(t *testing.T) {
	h := newHarness(t, nil)
	for value, want := range map[string]string{
		"64MiB": `--memory: have "64MiB", want at least 96MiB`, "much": `--memory: have "much", want a size such as 300MiB`,
	} {
		if got := h.Run("serve", "--memory", value, "--print-config"); got.Code != cli.CodeUsage ||
			!strings.Contains(got.Err, want) {
			t.Errorf("--memory %s: %+v, want %q", value, got, want)
		}
	}
	if got := h.Run("serve", "--memory", "300MiB", "--print-config"); got.Code != cli.CodeOK ||
		!strings.Contains(got.Out, "300MiB") {
		t.Errorf("%+v", got)
	}
}

// TestFlagNames: each flag of the command line has a constant in cli/flag, and each constant there
// names a flag.
func TestFlagNames(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("cli", "flag", "flag.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	ast.Inspect(file, func(n ast.Node) bool {
		if value, ok := n.(*ast.BasicLit); ok && value.Kind == token.STRING {
			named = append(named, strings.Trim(value.Value, `"`))
		}
		return true
	})
	slices.Sort(named)
	used := map[string]bool{}
	cli.EachCommand(newRoot(cli.New(cli.NewSystem())), func(c *cobra.Command) {
		add := func(f *pflag.Flag) {
			if f.Name != "help" && f.Name != "no-descriptions" { // Cobra's own
				used[f.Name] = true
			}
		}
		c.LocalFlags().VisitAll(add)
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(used)), named); diff != "" {
		t.Errorf("flags of commands (-) and constants (+):\n%s", diff)
	}
}
