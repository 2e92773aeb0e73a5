package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writeGolden is set in the environment to have the golden files written as the command prints now.
const writeGolden = "TEST_WRITES_GOLDEN"

// TestHelp compares the help of every command with a file, so that a change of the command line is
// seen in review.
func TestHelp(t *testing.T) {
	var names []string
	cli.EachCommand(newRoot(cli.New(&cli.System{})), func(c *cobra.Command) {
		if c.IsAvailableCommand() || c.Name() == "belfry" {
			names = append(names, strings.TrimPrefix(c.CommandPath(), "belfry"))
		}
	})
	var files []string
	for _, name := range names {
		if strings.HasPrefix(name, " completion") || name == " help" {
			continue // cobra's words, not ours
		}
		args := append(strings.Fields(name), "--help")
		file := filepath.Join("testdata", "help", "belfry"+strings.ReplaceAll(name, " ", "-")+".txt")
		files = append(files, file)
		t.Run(file, func(t *testing.T) {
			h := newHarness(t, nil)
			got := h.Run(args...)
			if got.Code != 0 || got.Err != "" {
				t.Fatalf("%v: %+v", args, got)
			}
			if os.Getenv(writeGolden) != "" {
				if err := os.WriteFile(file, []byte(got.Out), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.Out); diff != "" {
				t.Errorf("%s=1 go test writes it anew; help (-want +got):\n%s", writeGolden, diff)
			}
		})
	}
	there, err := filepath.Glob(filepath.Join("testdata", "help", "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	if diff := cmp.Diff(files, there); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestVerbsHaveExamples: a command that takes an argument shows a line to copy, which is one of its
// own.
func TestVerbsHaveExamples(t *testing.T) {
	cli.EachCommand(newRoot(cli.New(&cli.System{})), func(c *cobra.Command) {
		if !c.HasSubCommands() && c.IsAvailableCommand() && strings.Contains(c.Use, " ") &&
			!strings.Contains(c.Example, c.CommandPath()+" ") {
			t.Errorf("%s has the examples %q, of which none is of it", c.CommandPath(), c.Example)
		}
	})
}

// TestExamplesParse reads the examples of the help as command lines: each names commands and flags
// that there are.
func TestExamplesParse(t *testing.T) {
	root := newRoot(cli.New(&cli.System{}))
	examples := 0
	cli.EachCommand(root, func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			for part := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune("|&$();\n", r) }) {
				words := strings.Fields(part)
				if len(words) == 0 || words[0] != "belfry" {
					continue
				}
				examples++
				found, rest, err := newRoot(cli.New(&cli.System{})).Find(words[1:])
				if err != nil || found.Name() == "belfry" {
					t.Errorf("%q: there is no such command: %v", part, err)
					continue
				}
				if err := found.ParseFlags(joinQuoted(rest)); err != nil {
					t.Errorf("%q: %v", part, err)
				}
			}
		}
	})
	if examples < 8 {
		t.Errorf("found %d examples", examples)
	}
}

// joinQuoted makes one word of each quoted text, as a shell does.
func joinQuoted(words []string) []string {
	var joined []string
	inside := false
	for _, word := range words {
		if inside {
			joined[len(joined)-1] += " " + word
		} else {
			joined = append(joined, word)
		}
		if strings.HasPrefix(word, "'") {
			inside = true
		}
		if strings.HasSuffix(word, "'") {
			inside = false
		}
	}
	return joined
}

// TestShortFlagsMeanOneThing: -d is a delay everywhere, and so on.
func TestShortFlagsMeanOneThing(t *testing.T) {
	means := make(map[string]string)
	cli.EachCommand(newRoot(cli.New(&cli.System{})), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand == "" {
				return
			}
			if before, ok := means[f.Shorthand]; ok && before != f.Name {
				t.Errorf("-%s is --%s here and --%s elsewhere: %s", f.Shorthand, f.Name, before, c.CommandPath())
			}
			means[f.Shorthand] = f.Name
		})
	})
	want := map[string]string{
		"o": "output", "d": "delay", "H": "header", "f": "file", "w": "wait", "n": "max", "e": "error", "s": "state",
		"y": "yes", "q": "queue",
	}
	delete(means, "h") // cobra's help
	if diff := cmp.Diff(want, means); diff != "" {
		t.Errorf("short flags (-want +got):\n%s", diff)
	}
}
