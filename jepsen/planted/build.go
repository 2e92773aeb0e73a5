package planted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// errNoFit says that an edit does not fit the source.
var errNoFit = errors.New("the edit does not fit the source")

// Build builds the server with all bugs in dir, from the module that the working directory is in,
// and returns its path. Which bug it has is said by Variable when it is started. It is built with
// the tag "jepsen".
func Build(ctx context.Context, dir string) (program string, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	list, err := overlay(root, dir)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "belfry-planted")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "jepsen", "-overlay", list, "-o", program, "./cmd/belfry")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the planted server: %w\n%s", err, out)
	}
	return program, nil
}

// moduleRoot returns the directory of the module that the working directory is in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("asking for the module: %w", err)
	}
	file := string(bytes.TrimSpace(out))
	if filepath.Base(file) != "go.mod" {
		return "", errors.New("the working directory is in no module: run this within Belfry's source")
	}
	return filepath.Dir(file), nil
}

// overlay writes the edited files below dir, with the files that are added to their packages, and a
// list of them for the compiler, of which it returns the path.
func overlay(root, dir string) (list string, err error) {
	edited, err := editedFiles(root, Bugs())
	if err != nil {
		return "", err
	}
	for _, file := range slices.Sorted(maps.Keys(edited)) {
		folder := path.Dir(file)
		name, err := packageName(edited[file])
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		edited[folder+"/planted_overlay.go"] = switchText(name)
		if helpers := helpers()[folder]; helpers != "" {
			edited[folder+"/planted_helpers.go"] = helpers
		}
	}
	replaced := map[string]string{}
	for file, text := range edited {
		written := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("writing an edited file: %w", err)
		}
		replaced[filepath.Join(root, filepath.FromSlash(file))] = written
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", fmt.Errorf("writing the list of edited files: %w", err)
	}
	list = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return "", fmt.Errorf("writing the list of edited files: %w", err)
	}
	return list, nil
}

// editedFiles returns the text of each file that bugs edit, by its path from root, with all edits
// made.
func editedFiles(root string, bugs []Bug) (map[string]string, error) {
	byFile := map[string][]Edit{}
	for _, b := range bugs {
		for _, e := range b.Edits {
			if !slices.Contains(byFile[e.File], e) {
				byFile[e.File] = append(byFile[e.File], e)
			}
		}
	}
	texts := map[string]string{}
	for file, edits := range byFile {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, fmt.Errorf("reading what a bug edits: %w", err)
		}
		if texts[file], err = edit(string(source), edits); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return texts, nil
}

// edit makes edits, each where its old text is in the source.
func edit(source string, edits []Edit) (string, error) {
	for _, e := range edits {
		if n := strings.Count(source, e.Old); n != 1 {
			return "", fmt.Errorf("%w: it has %d times %q", errNoFit, n, e.Old)
		}
	}
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b Edit) int { return strings.Index(source, a.Old) - strings.Index(source, b.Old) })
	var out strings.Builder
	done := 0
	for _, e := range edits {
		at := strings.Index(source, e.Old)
		if at < done {
			return "", fmt.Errorf("%w: another edit overlaps %q", errNoFit, e.Old)
		}
		out.WriteString(source[done:at])
		out.WriteString(e.New)
		done = at + len(e.Old)
	}
	out.WriteString(source[done:])
	return out.String(), nil
}

func packageName(source string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		return "", fmt.Errorf("reading the name of the package: %w", err)
	}
	return file.Name.Name, nil
}
