package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// serverPackage is the server's command.
const serverPackage = "github.com/belfrydb/belfry/cmd/belfry"

// build builds the server for fault injection into a directory, without libraries: an image has
// none.
func build(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "belfry")
	out, err := exec.CommandContext(ctx, "env", "CGO_ENABLED=0", "go", "build", "-tags", "jepsen", "-o", program,
		serverPackage).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the server: %w\n%s", err, out)
	}
	return program, nil
}

// buildLater builds a server into a directory that reads one format of logs and snapshots more, and
// is otherwise the same.
func buildLater(ctx context.Context, dir string) (string, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/belfrydb/belfry/fsm").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the source of the formats: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(source)), "format.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the source of the formats: %w", err)
	}
	line := regexp.MustCompile(`(?m)^const LatestFormat Format = (\d+)$`)
	found := line.FindStringSubmatch(string(text))
	if found == nil {
		return "", fmt.Errorf("%s does not name the latest format", path)
	}
	latest, err := strconv.Atoi(found[1])
	if err != nil {
		return "", fmt.Errorf("reading the latest format from %s: %w", path, err)
	}
	changed := line.ReplaceAllString(string(text), fmt.Sprintf("const LatestFormat Format = %d", latest+1))
	written, list, program := filepath.Join(dir, "later-format.go"), filepath.Join(dir, "later-overlay.json"),
		filepath.Join(dir, "belfry-later")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: written}})
	if err != nil {
		return "", fmt.Errorf("laying another format over the source: %w", err)
	}
	if err := errors.Join(os.WriteFile(written, []byte(changed), 0o600), os.WriteFile(list, overlay, 0o600)); err != nil {
		return "", fmt.Errorf("laying another format over the source: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-tags", "jepsen", "-overlay", list, "-o", program,
		serverPackage).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building a server of a later format: %w\n%s", err, out)
	}
	return program, nil
}

// version is that of the source that the server was built from.
func version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
