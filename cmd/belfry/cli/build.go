package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build says what this binary was made from.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ThisBuild returns what the Go toolchain wrote into this binary.
func ThisBuild() Build { return buildOf(debug.ReadBuildInfo()) }

// buildOf reads what the Go toolchain wrote into a binary.
func buildOf(from *debug.BuildInfo, ok bool) Build {
	b := Build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return b
	}
	b.Version = from.Main.Version
	for _, setting := range from.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Revision = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String describes the build in one line.
func (b Build) String() string {
	text := "belfry " + b.Version
	if b.Revision != "" {
		text += fmt.Sprintf(" (%.12s", b.Revision)
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + ", " + b.Go + ", " + b.Platform
}
