package cli

import (
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	from := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}, {Key: "other", Value: "x"},
		},
	}
	b := buildOf(from, true)
	if want := "belfry v1.2.3 (0123456789ab, modified), " + b.Go + ", " + b.Platform; b.String() != want {
		t.Errorf("got %q, want %q", b, want)
	}
	if got := buildOf(nil, false); got.Version != "unknown" || got.Go == "" {
		t.Errorf("without build information: %+v", got)
	}
}
