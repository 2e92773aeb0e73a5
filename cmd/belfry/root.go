package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/spelling"
)

// app is what the commands share: the process, and the flags that all of them have.
type app struct {
	*system
	server    string
	tlsCA     string
	tokenFile string
	output    string
	timeout   time.Duration
	config    string
}

const (
	defaultServer  = "127.0.0.1:7400"
	defaultTimeout = 30 * time.Second
)

// run carries out one command line and returns the exit code of the process. ctx ends when the command shall stop.
func run(ctx context.Context, sys *system, args []string) int {
	root := newRoot(sys) //nolint:contextcheck // each command gets the context from cobra
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return codeOK
	}
	if showsConfig(command, args) {
		_ = resolve(command, sys.lookupEnv) // what can be read; the mistake is err
		renderConfig(sys.out, command)
	}
	code := exitCode(ctx, err)
	if text := explain(err); text != "" && code < codeSignal {
		fmt.Fprintln(sys.err, "belfry:", withFlag(command, err, text))
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(sys.err, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return code
}

// newRoot returns the command tree.
func newRoot(sys *system) *cobra.Command {
	a := &app{system: sys, server: defaultServer, output: "table", timeout: defaultTimeout}
	root := &cobra.Command{
		Use:   "belfry",
		Short: "Belfry: a durable delay queue",
		Long: "Belfry keeps jobs until they are due and hands each to one consumer at a time.\n\n" +
			"Every flag marked with a BELFRY_ name can also be set in the environment or in the file that --config names;\n" +
			"a flag wins over the environment, the environment over the file.\n\n" + exitCodesText,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommandOnly,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			warnOfVariables(c.Root(), sys)
			if err := resolve(c, sys.lookupEnv); c.Annotations[despiteSettings] == "" {
				return err
			}
			return nil
		},
	}
	root.SetIn(sys.in)
	root.SetOut(sys.out)
	root.SetErr(sys.err)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.config, "config", "", "a `FILE` with settings: one name = value a line, # begins a comment")
	configurable(flags, "config")

	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("jobs", "Jobs:", a.clients(a.putCommand(), a.reserveCommand(), a.ackCommand(), a.nackCommand(), a.releaseCommand(),
		a.extendCommand(), a.cancelCommand(), a.rescheduleCommand(), a.runNowCommand(), a.getCommand(), a.listCommand(), a.redriveCommand())...)
	group("queues", "Queues:", a.queueCommand(), a.namespaceCommand())
	group("cluster", "Cluster:", append([]*cobra.Command{a.clusterCommand()}, a.clients(a.topCommand(), a.backupCommand(), a.restoreCommand())...)...)
	group("server", "Server:", a.serveCommand(), a.certCommand(), a.tokenCommand(), a.recoverCommand(), a.demoCommand(), a.benchCommand(), a.planCommand(), a.clients(a.healthCommand())[0], a.clients(a.doctorCommand())[0], a.versionCommand())
	group("migration", "Migration:", a.mirrorCommand())
	root.SetCompletionCommandGroupID("server")
	root.SetHelpCommandGroupID("server")
	root.InitDefaultCompletionCmd()
	markEnvironment(root)
	return root
}

// clients adds what every command has that talks to a server.
func (a *app) clients(commands ...*cobra.Command) []*cobra.Command {
	for _, c := range commands {
		flags := c.Flags()
		a.serverFlags(flags, "the server to talk to")
		flags.Var(&durationFlag{value: &a.timeout, text: defaultTimeout.String()}, "timeout", "how long to wait for an answer")
		a.outputFlag(c)
		configurable(flags, "timeout")
	}
	return commands
}

// serverFlags adds the flags that say how a server is reached.
func (a *app) serverFlags(flags *pflag.FlagSet, about string) {
	flags.StringVar(&a.server, "server", defaultServer, about)
	flags.StringVar(&a.tlsCA, "tls-ca", "", "a file of certificates of authorities that are believed about a server, instead of the system's; https is meant then unless --server says http")
	flags.StringVar(&a.tokenFile, "token-file", "", "a file with the token that calls carry, where the server wants one")
	configurable(flags, "server", "tls-ca", "token-file")
}

// outputFlag adds the choice between a table and JSON.
func (a *app) outputFlag(c *cobra.Command) *cobra.Command {
	c.Flags().VarP(newChoice(&a.output, "table", "json"), "output", "o", "table or json")
	configurable(c.Flags(), "output")
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
	hint := didYouMean(args[0], names)
	verb := spelling.Verb(args[0])
	if verb == "cancel" && slices.Contains(names, "delete") {
		verb = "delete" // jobs are cancelled, all else is deleted
	}
	if slices.Contains(names, verb) {
		hint = fmt.Sprintf("; did you mean %q?", verb)
	}
	return usagef("unknown command %q of %q%s", args[0], c.CommandPath(), hint)
}

// flagError says which flag was probably meant, or what is wrong with a value.
func flagError(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s: %s", invalid.GetFlag().Name, valueError(err))
	}
	if !ok {
		return usagef("%s", err)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	if len(name) == 1 {
		return usagef("unknown flag -%s", name)
	}
	hint := didYouMean(name, names, "--")
	if longer := slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, "-"+name) }); hint == "" && len(longer) == 1 {
		hint = fmt.Sprintf("; did you mean %q?", "--"+longer[0])
	}
	if strings.Contains(c.Use, "BODY") && slices.Contains([]string{"text", "data", "body"}, name) {
		hint = fmt.Sprintf("; the body is an argument: %s QUEUE BODY", c.CommandPath())
	}
	return usagef("unknown flag --%s%s", name, hint)
}

// withFlag names a field with which the server does not agree as the flag that set it, if the command has one of its name.
func withFlag(c *cobra.Command, err error, text string) string {
	fault, ok := fault.FromConnect(err)
	if !ok || fault.Field == "" || !strings.HasPrefix(fault.Message, fault.Field+": ") {
		return text
	}
	var name strings.Builder
	for _, r := range fault.Field {
		if unicode.IsUpper(r) {
			name.WriteByte('-')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	if c.Flags().Lookup(name.String()) == nil {
		return text
	}
	return strings.Replace(text, fault.Field+": ", "--"+name.String()+": ", 1)
}

// unlimited has a command accept any number of arguments.
const unlimited = -1

// arguments accepts between the given numbers of arguments; names say what is missing.
func arguments(least, most int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef("missing argument: %s", strings.Join(names[len(args):least], ", "))
		}
		if most != unlimited && len(args) > most {
			return usagef("one argument too many: %q", args[most])
		}
		return nil
	}
}

// didYouMean returns "; did you mean …?" if one of the candidates is near the word, else nothing.
func didYouMean(word string, candidates []string, prefix ...string) string {
	near := spelling.Nearest(word, candidates)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", strings.Join(prefix, "")+near)
}
