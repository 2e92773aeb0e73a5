package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says what this binary was made from.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return a.outputFlag(&cobra.Command{
		Use:   "version",
		Short: "Show what this binary was built from",
		Args:  arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild(debug.ReadBuildInfo())
			return a.showValue(b, func(w io.Writer) { renderBuild(w, b) })
		},
	})
}

// thisBuild reads what the Go toolchain wrote into the binary.
func thisBuild(from *debug.BuildInfo, ok bool) build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

func renderBuild(w io.Writer, b build) {
	fmt.Fprintf(w, "belfry %s", b.Version)
	if b.Revision != "" {
		fmt.Fprintf(w, " (%.12s", b.Revision)
		if b.Modified {
			fmt.Fprint(w, ", modified")
		}
		fmt.Fprint(w, ")")
	}
	fmt.Fprintf(w, ", %s, %s\n", b.Go, b.Platform)
}
