package daemon

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/belfrydb/belfry/cluster/catalog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/cmd/belfry/server"
)

// ShowFailedConfig shows the settings that can be read if a command line that failed was meant to
// show them.
func ShowFailedConfig(a *cli.App, c *cobra.Command, args []string) {
	if showsConfig(c, args) {
		_ = cli.Resolve(c, a.LookupEnv) // the mistake is the error of the command
		renderConfig(a.Out, c)
	}
}

// showsConfig reports whether a command line is a serve that shows its settings, also if it cannot
// be read to its end.
func showsConfig(c *cobra.Command, args []string) bool {
	f := c.Flags().Lookup(flag.PrintConfig)
	return f != nil && (f.Value.String() == "true" || slices.Contains(args, "--"+flag.PrintConfig))
}

// EffectiveConfig returns the settings of a command as lines of name, value and origin.
func EffectiveConfig(c *cobra.Command) [][]string {
	var lines [][]string
	add := func(f *pflag.Flag) {
		if cli.IsConfigurable(f) {
			lines = append(lines, []string{f.Name, cmp.Or(ImpliedValue(c, f), shownValue(f)), cli.OriginOf(f)})
		}
	}
	c.Flags().VisitAll(add)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if c.Flags().Lookup(f.Name) == nil { // before the command line was read, the two are apart
			add(f)
		}
	})
	return lines
}

// ImpliedValue returns the value of a setting of serve that was not set and whose default is not
// that of its flag; otherwise it is empty.
func ImpliedValue(c *cobra.Command, f *pflag.Flag) string {
	listen := c.Flags().Lookup(flag.Listen)
	if f.Changed || listen == nil {
		return ""
	}
	switch f.Name {
	case "peer-listen":
		return server.Neighbour(listen.Value.String(), 1)
	case "gossip-listen":
		return server.Neighbour(listen.Value.String(), 2)
	case "replication-factor":
		return strconv.Itoa(catalog.DefaultFactor)
	case "grace-period":
		return render.Duration(durationpb.New(catalog.DefaultGrace))
	default:
		return ""
	}
}

// renderConfig writes the settings of a command.
func renderConfig(w io.Writer, c *cobra.Command) {
	render.Rows(w, []string{"SETTING", "VALUE", "ORIGIN"}, EffectiveConfig(c))
}

// shownValue returns the value of a setting for people to see: keys and passwords are in files, of
// which only the names are shown, and what a URL has before its host or after its path is left out.
func shownValue(f *pflag.Flag) string {
	value := f.Value.String()
	if list, ok := f.Value.(pflag.SliceValue); ok {
		value = strings.Join(list.GetSlice(), ",")
	}
	switch {
	case value == "":
		return "-"
	case f.Name == "mirror-redis" || f.Name == "server":
		return withoutSecrets(value)
	default:
		return value
	}
}

// hidden stands where something was left out.
const hidden = "***"

// withoutSecrets returns a list of URLs, or what was meant for one, with neither users, passwords
// nor parameters.
func withoutSecrets(url string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		scheme, rest = "", url
	} else {
		scheme += "://"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = hidden + rest[at:]
	}
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest = rest[:at+1] + hidden
	}
	return fmt.Sprint(scheme, rest)
}
