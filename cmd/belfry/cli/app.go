// Package cli is what all verbs of the command line use: the process, the connection to a server,
// flags, settings, output and exit codes. See DESIGN.md beside this file.
package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/rpc/fault"

	"github.com/belfrydb/belfry/rpc/spelling"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// App is what the commands share: the process, and the flags that all of them have.
type App struct {
	*System
	Server    string
	tlsCA     string
	tokenFile string
	Output    string
	Timeout   time.Duration
	config    string
	// servers are those of the last connection; nil before the first.
	servers *serverList
	// Failed, if set, is told of a command line that failed, before its error is explained.
	Failed func(command *cobra.Command, args []string)
}

const (
	defaultServer  = "127.0.0.1:" + defaultPort
	defaultTimeout = 30 * time.Second
)

// New returns what the commands of one command line share.
func New(sys *System) *App {
	return &App{System: sys, Server: defaultServer, Output: "table", Timeout: defaultTimeout}
}

// Run carries out one command line and returns the exit code of the process. ctx ends when the
// command shall stop.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return CodeOK
	}
	if a.Failed != nil {
		a.Failed(command, args)
	}
	code := ExitCode(ctx, err)
	if text := Explain(err); text != "" && code < CodeSignal {
		fmt.Fprintln(a.Err, "belfry:", withFlag(command, err, text))
	}
	if _, ok := errors.AsType[*UsageError](err); ok {
		fmt.Fprintf(a.Err, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return code
}

// Group is a part of the command tree under a heading of the help.
type Group struct {
	ID, Title string
	Commands  []*cobra.Command
}

// Root returns the command tree.
func (a *App) Root(groups ...Group) *cobra.Command {
	root := Parent(&cobra.Command{
		Use:   "belfry",
		Short: "Belfry: a durable delay queue",
		Long: "Belfry keeps jobs until they are due and hands each to one consumer at a time.\n\n" +
			"Every flag marked with a BELFRY_ name can also be set in the environment or in the file that --config\n" +
			"names; a flag wins over the environment, the environment over the file.\n\n" + ExitCodesText,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			warnOfVariables(c.Root(), a.System)
			if err := Resolve(c, a.LookupEnv); c.Annotations[DespiteSettings] == "" {
				return err
			}
			return nil
		},
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.config, flag.Config, "", "a `FILE` with settings: one name = value a line, # begins a comment")
	Configurable(flags, flag.Config)
	for _, group := range groups {
		root.AddGroup(&cobra.Group{ID: group.ID, Title: group.Title})
		for _, c := range group.Commands {
			c.GroupID = group.ID
			root.AddCommand(c)
		}
	}
	EachCommand(root, func(c *cobra.Command) {
		c.Long = strings.TrimPrefix(c.Long, "\n") // the first line of a raw string
	})
	markEnvironment(root)
	return root
}

// ClientFlags adds the flags of every command that calls a server.
func (a *App) ClientFlags(c *cobra.Command) *cobra.Command {
	flags := c.Flags()
	a.ServerFlags(flags, "the server to talk to, or several with commas: the first that can be reached")
	flags.Var(NewDuration(&a.Timeout, defaultTimeout.String()), flag.Timeout, "how long to wait for an answer")
	Configurable(flags, flag.Timeout)
	return a.OutputFlag(c)
}

// ServerFlags adds the flags that say how a server is reached.
func (a *App) ServerFlags(flags *pflag.FlagSet, about string) {
	flags.StringVar(&a.Server, flag.Server, defaultServer, about)
	flags.StringVar(&a.tlsCA, flag.TLSCA, "",
		"a file of certificates of authorities that are believed about a server, instead of the system's; https is meant "+
			"then unless --server says http")
	flags.StringVar(&a.tokenFile, flag.TokenFile, "", "a file with the token that calls carry, where the server wants one")
	Configurable(flags, flag.Server, flag.TLSCA, flag.TokenFile)
}

// ServerArguments returns the flags, as name and value in turn, with which another command line
// reaches the same server.
func (a *App) ServerArguments() []string {
	var arguments []string
	if a.Server != defaultServer {
		arguments = append(arguments, "--server", a.Server)
	}
	if a.tlsCA != "" {
		arguments = append(arguments, "--tls-ca", a.tlsCA)
	}
	if a.tokenFile != "" {
		arguments = append(arguments, "--token-file", a.tokenFile)
	}
	return arguments
}

// OutputFlag adds the choice between a table and JSON.
func (a *App) OutputFlag(c *cobra.Command) *cobra.Command {
	c.Flags().VarP(Choice(&a.Output, "table", "json"), flag.Output, "o", "table or json")
	Configurable(c.Flags(), flag.Output)
	return c
}

// Parent adds the subcommands of a command that does nothing but show its help.
func Parent(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.Args = subcommandOnly
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(subcommands...)
	return c
}

// subcommandOnly refuses what is not the name of a subcommand, and says which was probably meant.
func subcommandOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := DidYouMean(args[0], names)
	verb := spelling.Verb(args[0])
	if verb == "cancel" && slices.Contains(names, "delete") {
		verb = "delete" // jobs are cancelled, all else is deleted
	}
	if slices.Contains(names, verb) {
		hint = fmt.Sprintf("; did you mean %q?", verb)
	}
	return Usagef("unknown command %q of %q%s", args[0], c.CommandPath(), hint)
}

// flagError says which flag was probably meant, or what is wrong with a value.
func flagError(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return Usagef("--%s: %s", invalid.GetFlag().Name, valueError(err))
	}
	if !ok {
		return Usagef("%s", err)
	}
	if c.HasSubCommands() { // the flag is one of a subcommand that is not there
		if err := subcommandOnly(c, c.Flags().Args()); err != nil {
			return err
		}
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	if len(name) == 1 {
		return Usagef("unknown flag -%s", name)
	}
	hint := DidYouMean(name, names, "--")
	if longer := slices.DeleteFunc(names, func(n string) bool {
		return !strings.HasSuffix(n, "-"+name)
	}); hint == "" && len(longer) == 1 {
		hint = fmt.Sprintf("; did you mean %q?", "--"+longer[0])
	}
	if strings.Contains(c.Use, "BODY") && slices.Contains([]string{"text", "data", "body"}, name) {
		hint = fmt.Sprintf("; the body is an argument: %s QUEUE BODY", c.CommandPath())
	}
	return Usagef("unknown flag --%s%s", name, hint)
}

// withFlag names the fields with which the server does not agree as the flags that set them, where
// the command has such flags. The name of a node is the argument, and the message has it.
func withFlag(c *cobra.Command, err error, text string) string {
	fault, ok := fault.FromConnect(err)
	if !ok || fault.Field == "" || !strings.HasPrefix(fault.Message, fault.Field+": ") {
		return text
	}
	if fault.Field == "name" && strings.HasSuffix(c.Use, " NODE") {
		return strings.Replace(text, "name: ", "", 1)
	}
	before, message, found := strings.Cut(text, fault.Field+": ")
	if !found {
		return text
	}
	parts := strings.Split(fault.Field+": "+message, "; ") // a problem each
	for i, part := range parts {
		field, problem, ok := strings.Cut(part, ": ")
		if name := flagOf(c, field); ok && name != "" {
			parts[i] = "--" + name + ": " + problem
		}
	}
	return before + strings.Join(parts, "; ")
}

// fieldSet is the annotation of a flag whose field in the API has another name.
const fieldSet = "belfry_field"

// SetsField says that a flag sets fields of other names, and those within them, so that a refusal of
// one names the flag.
func SetsField(flags *pflag.FlagSet, name string, fields ...string) {
	flags.Lookup(name).Annotations = map[string][]string{fieldSet: fields}
}

// flagOf returns the name of the flag that sets a field, or the nearest field around it; "" if there is
// none.
func flagOf(c *cobra.Command, field string) (name string) {
	var words strings.Builder
	for _, r := range field {
		if unicode.IsUpper(r) {
			words.WriteByte('-')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	for end := len(field); end > 0; end = strings.LastIndexAny(field[:end], ".[") {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(f.Annotations[fieldSet], field[:end]) {
				name = f.Name
			}
		})
		if name != "" {
			return name
		}
	}
	if c.Flags().Lookup(words.String()) == nil {
		return ""
	}
	return words.String()
}

// Unlimited has a command accept any number of arguments.
const Unlimited = -1

// Arguments accepts between the given numbers of arguments; names say what is missing.
func Arguments(least, most int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return Usagef("missing argument: %s", strings.Join(names[len(args):least], ", "))
		}
		if most != Unlimited && len(args) > most {
			return Usagef("one argument too many: %q", args[most])
		}
		return nil
	}
}

// DidYouMean returns "; did you mean …?" if one of the candidates is near the word, else nothing.
func DidYouMean(word string, candidates []string, prefix ...string) string {
	near := spelling.Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", strings.Join(prefix, "")+near)
}
