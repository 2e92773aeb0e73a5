package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/rpc/spelling"
)

// settingMark annotates the flags that the environment and the file may set too.
const settingMark = "belfry_setting"

// DespiteSettings annotates a command that runs although the settings have a mistake, and says so
// itself.
const DespiteSettings = "belfry_despite_settings"

// EnvPrefix begins the variables of all flags.
const EnvPrefix = "BELFRY_"

// Configurable marks flags. Only what describes a server or the way to it is marked: a forgotten
// variable in the environment must not decide what a put or a purge does.
func Configurable(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flag := flags.Lookup(name)
		if flag.Annotations == nil {
			flag.Annotations = make(map[string][]string)
		}
		flag.Annotations[settingMark] = []string{EnvName(name)}
	}
}

// IsConfigurable reports whether a flag may also be set by the environment or the settings file.
func IsConfigurable(flag *pflag.Flag) bool { return len(flag.Annotations[settingMark]) > 0 }

// EnvName returns the environment variable of a flag: node-id is BELFRY_NODE_ID.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// markEnvironment writes the variable of each configurable flag into its help.
func markEnvironment(root *cobra.Command) {
	EachCommand(root, func(c *cobra.Command) {
		mark := func(f *pflag.Flag) {
			if IsConfigurable(f) {
				f.Usage += " [" + EnvName(f.Name) + "]"
			}
		}
		c.LocalNonPersistentFlags().VisitAll(mark)
		c.PersistentFlags().VisitAll(mark)
	})
}

// EachCommand calls f with a command and all commands below it.
func EachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		EachCommand(sub, f)
	}
}

// Resolve gives each configurable flag of a command its value: what the command line says, else the
// environment, else the file that --config names, else the default. After a mistake it goes on, so
// that what can be read is known; the first one is the error.
func Resolve(c *cobra.Command, lookupEnv func(string) (string, bool)) error {
	failed := fromEnvironment(c, "config", lookupEnv)
	note := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	file := settingsFile{}
	if path := c.Flag(flag.Config).Value.String(); path != "" {
		text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
		if err != nil {
			note(Usagef("reading the settings: %s", err))
		}
		file, err = ParseSettings(path, text, KnownSettings(c.Root()))
		note(err)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !IsConfigurable(f) {
			return
		}
		if note(fromEnvironment(c, f.Name, lookupEnv)); !f.Changed {
			note(file.Apply(c.Flags(), f.Name))
		}
	})
	return failed
}

// fromEnvironment sets a flag from its variable unless the command line set it. An empty variable
// counts as not set.
func fromEnvironment(c *cobra.Command, name string, lookupEnv func(string) (string, bool)) error {
	if c.Flag(name).Changed {
		return nil
	}
	value, ok := lookupEnv(EnvName(name))
	if !ok || value == "" {
		return nil
	}
	if err := setFrom(c.Flags(), name, value, EnvName(name)); err != nil {
		return Usagef("%s: %s", EnvName(name), valueError(err))
	}
	return nil
}

// setting is one line of a settings file.
type setting struct {
	Value string
	line  int
}

type settingsFile struct {
	path     string
	Settings map[string]setting
}

// Apply sets the flag of a name to the value of the file, if the file has one.
func (f settingsFile) Apply(flags *pflag.FlagSet, name string) error {
	s, ok := f.Settings[name]
	if !ok {
		return nil
	}
	if err := setFrom(flags, name, s.Value, fmt.Sprintf("%s:%d", f.path, s.line)); err != nil {
		return Usagef("%s:%d: %s: %s", f.path, s.line, name, valueError(err))
	}
	return nil
}

// warnOfVariables says which variables of the environment are probably meant for this command, but
// misspelled. It is no error: orchestrators set variables like BELFRY_SERVICE_HOST for a service of
// that name.
func warnOfVariables(root *cobra.Command, sys *System) {
	const slipsMax = 2
	known := []string{EnvName("config")}
	for _, name := range KnownSettings(root) {
		known = append(known, EnvName(name))
	}
	for _, variable := range sys.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvPrefix) || value == "" || slices.Contains(known, name) {
			continue
		}
		if near := spelling.Nearest(name, known); near != "" && spelling.Edits(name, near) <= slipsMax {
			fmt.Fprintf(sys.Err, "belfry: warning: the environment has %s, which means nothing; did you mean %s?\n", name, near)
		}
	}
}

// KnownSettings returns the names that a file may have: one file may serve all commands.
func KnownSettings(root *cobra.Command) []string {
	var names []string
	EachCommand(root, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if IsConfigurable(f) && f.Name != "config" {
				names = append(names, f.Name)
			}
		})
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if IsConfigurable(f) && f.Name != "config" {
				names = append(names, f.Name)
			}
		})
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// ParseSettings reads lines of the form name = value. It ignores blank lines and lines that begin
// with #. A value may stand in double quotes. An unknown name is an error, because a setting that
// is silently ignored is worse than none. After an error it continues with the lines below, and it
// returns the first error.
func ParseSettings(path string, text []byte, known []string) (file settingsFile, failed error) {
	file = settingsFile{path: path, Settings: make(map[string]setting)}
	note := func(format string, args ...any) {
		if failed == nil {
			failed = Usagef(format, args...)
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := fmt.Sprintf("%s:%d", path, number)
		name, value, found := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		earlier, twice := file.Settings[name]
		switch {
		case !found:
			note("%s: want name = value, have %q", at, line)
		case !slices.Contains(known, name):
			note("%s: unknown setting %q%s", at, name, DidYouMean(name, known))
		case twice:
			note("%s: %s is already set in line %d", at, name, earlier.line)
		default:
			file.Settings[name] = setting{Value: unquoted(value), line: number}
		}
	}
	if err := lines.Err(); err != nil {
		note("%s: %s", path, err)
	}
	return file, failed
}

func unquoted(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

// setFrom sets a flag and notes what set it, or could not.
func setFrom(flags *pflag.FlagSet, name, value, origin string) error {
	err := flags.Set(name, value)
	if err != nil {
		origin += " (invalid)"
	}
	return errors.Join(err, flags.SetAnnotation(name, originMark, []string{origin}))
}

// OriginOf says what set a flag: "default", "flag", a variable of the environment, or a file and
// its line.
func OriginOf(f *pflag.Flag) string {
	switch from := f.Annotations[originMark]; {
	case len(from) > 0:
		return from[0]
	case f.Changed:
		return "flag"
	default:
		return "default"
	}
}

// originMark annotates a flag that was set by other than the command line with what set it.
const originMark = "belfry_origin"
