package metrics

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestBuildInfoHasTheRevision: the metric of the build can be made of what a binary says of itself.
func TestBuildInfoHasTheRevision(t *testing.T) {
	m := buildInfo("v1.2.3", func() (*debug.BuildInfo, bool) {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: "abc"}}}, true
	})
	if got := m.Desc().String(); !strings.Contains(got, `"belfry_build_info"`) {
		t.Error(got)
	}
}
