package planted

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/jepsen/nemesis"
	"github.com/belfrydb/belfry/jepsen/workload"
)

// TestBugs reads what bugs say of themselves.
func TestBugs(t *testing.T) {
	workloads, nemeses := workload.Names(workload.All()), nemesis.Names(nemesis.All())
	names := map[string]bool{}
	for _, b := range Bugs() {
		switch {
		case names[b.Name]:
			t.Errorf("%s: there are two of this name", b.Name)
		case !regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(b.Name), b.What == "", len(b.Edits) == 0:
			t.Errorf("%s: it has no proper name, says nothing or does nothing", b.Name)
		}
		names[b.Name] = true
		for what, list := range map[string]struct{ have, known []string }{
			"claim": {slices.Concat(b.Claims, b.Or), invariants()}, "workload": {b.Workloads, workloads},
			"nemesis": {b.Nemeses, nemeses},
		} {
			if len(list.have) == 0 && what != "nemesis" || slices.ContainsFunc(list.have, func(s string) bool {
				return !slices.Contains(list.known, s)
			}) {
				t.Errorf("%s: it has %q for %s", b.Name, list.have, what)
			}
		}
	}
}

// withoutBug are the invariants that no bug claims; DESIGN.md says why.
var withoutBug = []string{"I7", "I14", "I26", "I27"}

// TestOneToThreeBugsEach makes sure that each invariant has a bug that it must find, and none more
// than three.
func TestOneToThreeBugsEach(t *testing.T) {
	bugs := map[string]int{}
	for _, b := range Bugs() {
		for _, claim := range b.Claims {
			bugs[claim]++
		}
	}
	for _, invariant := range invariants() {
		least, most := 1, 3
		if slices.Contains(withoutBug, invariant) {
			least, most = 0, 0
		}
		if n := bugs[invariant]; n < least || n > most {
			t.Errorf("%s: %d bugs claim it, want %d to %d", invariant, n, least, most)
		}
	}
}

// invariants are the names of all invariants.
func invariants() []string {
	var names []string
	for n := range 47 {
		names = append(names, fmt.Sprintf("I%d", n+1))
	}
	return append(names, "M1", "M2", "M3", "M4")
}

// TestEditsAsk makes sure that each bug's edits ask for it, and for no bug that there is not.
func TestEditsAsk(t *testing.T) {
	asks := regexp.MustCompile(`planted\("([^"]*)"\)`)
	known := map[string]bool{}
	for _, b := range Bugs() {
		known[b.Name] = true
	}
	for _, b := range Bugs() {
		for _, e := range b.Edits {
			var asked []string
			for _, match := range asks.FindAllStringSubmatch(e.New, -1) {
				if asked = append(asked, match[1]); !known[match[1]] {
					t.Errorf("%s: an edit of %s asks for %q, which is no bug", b.Name, e.File, match[1])
				}
			}
			if !slices.Contains(asked, b.Name) {
				t.Errorf("%s: an edit of %s asks for %q", b.Name, e.File, asked)
			}
		}
	}
}

// TestEditsFit makes each bug's edits alone, and those of all bugs together, in the source as it
// is.
func TestEditsFit(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := Bugs()
	for _, bugs := range append(slices.Collect(slices.Chunk(all, 1)), all) {
		texts, err := editedFiles(root, bugs)
		if err != nil {
			t.Errorf("%s: %v", bugs[0].Name, err)
		}
		for file, text := range texts {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", bugs[0].Name, err)
			}
		}
	}
}

// TestEdit makes edits in a small source.
func TestEdit(t *testing.T) {
	const source = "one two three two"
	for name, row := range map[string]struct {
		edits []Edit
		want  string // empty for an error
	}{
		"out of order": {[]Edit{{Old: "three", New: "3"}, {Old: "one", New: "one one"}}, "one one two 3 two"},
		"not there":    {[]Edit{{Old: "four", New: "4"}}, ""},
		"there twice":  {[]Edit{{Old: "two", New: "2"}}, ""},
		"overlap":      {[]Edit{{Old: "one two", New: "1 2"}, {Old: "two three", New: "2 3"}}, ""},
		"same place":   {[]Edit{{Old: "one", New: "1"}, {Old: "one", New: "I"}}, ""},
	} {
		got, err := edit(source, row.edits)
		if got != row.want || errors.Is(err, errNoFit) != (row.want == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestBuild builds the planted server, which is as good as checking the types of all edits, and
// asks it for its version: without a bug, with one, and with one that there is not.
func TestBuild(t *testing.T) {
	program, err := Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, starts := range map[string]bool{"": true, "early-grant": true, "none-such": false} {
		out, err := start(t.Context(), program, name)
		if (err == nil) != starts {
			t.Errorf("with %s=%q: %v\n%s", Variable, name, err, out)
		}
		if !starts && !strings.Contains(out, "none-such") {
			t.Errorf("a bug that there is not is not named:\n%s", out)
		}
	}
}

func start(ctx context.Context, program, bug string) (string, error) {
	version := exec.CommandContext(ctx, program, "version")
	version.Env = append(os.Environ(), Variable+"="+bug)
	out, err := version.CombinedOutput()
	return string(out), err
}
