package main

import (
	"strings"
	"testing"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
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
